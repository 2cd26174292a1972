#include <algorithm>

#include "daemon/core/broker.h"

// What the driver says of a device, held against the ledger. The rule of whose memory a figure is:
// reconcile.h.

namespace gpumem::core {

/// One observation on its way into the ledger.
class Broker::Observing {
 public:
  Observing(Broker& broker, const Observation& seen, TimePoint now)
      : broker_(broker), seen_(seen), now_(now), device_(broker.reconciled_[seen.device]) {}

  void run();

 private:
  using Process = Observation::Process;
  // The sessions of one process; the first is charged for it.
  struct Client {
    std::vector<Session*> sessions;
    Bytes leases;
    Bytes declared;
    std::uint64_t started = 0;
    bool listed = false;
  };
  struct Suspect {
    const Process& process;
    PastBroker& watch;
    std::string tenant;
    SessionId session;  // none: a foreigner
  };

  const DevicePolicy& policy() const { return broker_.policy_.devices[seen_.device]; }
  const PastBrokerPolicy& rules() const { return broker_.policy_.past_broker; }
  Bytes total() const { return policy().total; }
  Bytes used(const Process& process) const { return std::min(process.used, total()); }
  Bytes extents() const { return policy().pool.minus(broker_.ledger_.missing(seen_.device)); }

  void find_clients();
  Client* client(const Process& process);
  bool has_just_left(const Process& process) const;
  std::vector<std::optional<Bytes>> shares();
  void see(const Process& process, std::optional<Bytes> own);
  void see_client(const Process& process, Client& client, Bytes own);
  void charge_client(Client& client, Bytes overhead, Bytes past, bool measured);
  void see_foreigner(const Process& process);
  void charge_foreigner(Foreigner& foreigner, TenantId tenant, Bytes bytes);
  TenantId tenant_of_process(const Process& process);
  void drop_foreigners();
  void pursue(const Suspect& suspect);
  void list(const Suspect& suspect, Bytes bytes);
  void tell(Event::Kind kind, const Suspect& suspect, const std::string& words);
  void sum_up();

  Broker& broker_;
  const Observation& seen_;
  const TimePoint now_;
  Reconciled& device_;
  std::map<std::int64_t, Client> clients_;
  std::map<std::int64_t, Foreigner> foreigners_;  // as they are now
  Bytes foreign_;                                 // held by them, charged or not
};

void Broker::Observing::run() {
  find_clients();
  const auto own = shares();
  device_.view.processes.clear();
  for (std::size_t i = 0; i < seen_.processes.size(); ++i) see(seen_.processes[i], own[i]);
  for (auto& [pid, client] : clients_) {
    if (client.listed) continue;
    // It holds nothing now. Its context may come at any time.
    const bool begun = std::ranges::any_of(client.sessions, [&](Session* session) {
      const auto known = session->outside.find(seen_.device);
      return known != session->outside.end() && known->second.begun;
    });
    charge_client(client, begun ? policy().context_overhead : Bytes{}, {}, false);
  }
  drop_foreigners();
  sum_up();
}

void Broker::Observing::find_clients() {
  for (auto& [id, session] : broker_.sessions_) {
    Client& client = clients_[session.peer.pid];
    client.sessions.push_back(&session);
    client.started = std::max(client.started, session.peer.started);
    if (const auto outside = session.outside.find(seen_.device); outside != session.outside.end()) {
      client.declared += outside->second.declared;
      client.leases += outside->second.freed - outside->second.freed_before;
    }
    for (const LeaseId id_on_loan : session.leases) {
      const Lease& lease = broker_.leases_.at(id_on_loan);
      if (lease.device == seen_.device) client.leases += lease.extent.size;
    }
  }
  clients_.erase(0);  // processes of other PID namespaces: the driver cannot name them either
  for (auto& [pid, client] : clients_) std::ranges::sort(client.sessions, {}, &Session::id);
}

Broker::Observing::Client* Broker::Observing::client(const Process& process) {
  const auto found = clients_.find(process.pid);
  if (found == clients_.end()) return nullptr;
  // Another process that was given the same pid, before or after.
  const bool is_another =
      found->second.started != 0 && process.started != 0 && found->second.started != process.started;
  return is_another ? nullptr : &found->second;
}

bool Broker::Observing::has_just_left(const Process& process) const {
  return std::ranges::binary_search(device_.clients_before, process.pid);
}

std::vector<std::optional<Bytes>> Broker::Observing::shares() {
  std::vector<Booked> booked;
  for (const Process& process : seen_.processes) {
    const Client* known = client(process);
    booked.push_back({used(process), known != nullptr ? known->leases : Bytes{}});
  }
  const Bytes own = seen_.broker.is_zero() ? extents() : seen_.broker;
  return own_memory(booked, own, seen_.used);
}

void Broker::Observing::see(const Process& process, std::optional<Bytes> own) {
  if (Client* known = client(process)) {
    known->listed = true;
    if (own) return see_client(process, *known, *own);
    if (const Bytes past = known->sessions.front()->outside[seen_.device].past; !past.is_zero()) {
      Session& session = *known->sessions.front();
      list({process, session.outside[seen_.device].watch, broker_.tenant_name(session.id), session.id}, past);
    }
    return;
  }
  if (process.pid > 0 && !process.used.is_zero() && !has_just_left(process)) see_foreigner(process);
}

void Broker::Observing::see_client(const Process& process, Client& client, Bytes own) {
  const Bytes besides = own.minus(client.declared);
  const Bytes overhead = std::min(besides, rules().allowance);
  const Bytes past = besides - overhead;
  charge_client(client, overhead, past, true);
  Session& session = *client.sessions.front();
  const Suspect suspect{process, session.outside[seen_.device].watch, broker_.tenant_name(session.id),
                        session.id};
  if (suspect.watch.see(past)) {
    tell(Event::Kind::kPastBroker, suspect,
         "besides its leases, what it declared, and " + to_string(overhead) + " for its context");
  }
  if (past.is_zero()) return;
  list(suspect, past);
  pursue(suspect);
}

void Broker::Observing::charge_client(Client& client, Bytes overhead, Bytes past, bool measured) {
  for (Session* session : client.sessions) {
    const bool is_first = session == client.sessions.front();
    const auto known = session->outside.find(seen_.device);
    if (known == session->outside.end() && !(is_first && (measured || !overhead.is_zero()))) continue;
    broker_.set_outside(*session, seen_.device, &Outside::overhead, is_first ? overhead : Bytes{});
    broker_.set_outside(*session, seen_.device, &Outside::past, is_first ? past : Bytes{});
    Outside& outside = session->outside[seen_.device];
    outside.measured = measured;
    if (!is_first || !measured) outside.watch.see({});
  }
}

void Broker::Observing::see_foreigner(const Process& process) {
  Foreigner& foreigner = foreigners_[process.pid];
  if (auto before = device_.foreigners.find(process.pid);
      before != device_.foreigners.end() && before->second.started == process.started) {
    foreigner = before->second;
    device_.foreigners.erase(before);
  }
  foreigner.started = process.started;
  const Bytes bytes = used(process);
  const bool matters = bytes > rules().allowance;
  charge_foreigner(foreigner, matters ? tenant_of_process(process) : TenantId{}, bytes);
  foreign_ += bytes;
  const Suspect suspect{
      process, foreigner.watch, foreigner.tenant ? broker_.tenants_.at(foreigner.tenant).name : "", {}};
  if (foreigner.watch.see(matters ? bytes : Bytes{}))
    tell(Event::Kind::kPastBroker, suspect, "no client of the broker");
  list(suspect, bytes);
  if (matters) pursue(suspect);
}

// None: nobody is to be charged.
TenantId Broker::Observing::tenant_of_process(const Process& process) {
  if (process.started == 0) return {};
  const auto match =
      tenant_of(broker_.policy_,
                {.pid = process.pid, .uid = process.uid, .gids = process.gids, .command = process.command});
  if (!match) return {};
  const auto tenant = broker_.admit_tenant(*match);
  return tenant ? *tenant : TenantId{};
}

void Broker::Observing::charge_foreigner(Foreigner& foreigner, TenantId tenant, Bytes bytes) {
  const TenantId before = foreigner.tenant;
  if (before) broker_.ledger_.release_outside(before, seen_.device, foreigner.charged);
  if (tenant) broker_.ledger_.charge_outside(tenant, seen_.device, bytes);
  foreigner.tenant = tenant;
  foreigner.charged = tenant ? bytes : Bytes{};
  if (before && before != tenant) broker_.retire_tenant(before);
}

// Those that are gone, that became clients, or whose pid another process has now.
void Broker::Observing::drop_foreigners() {
  for (auto& [pid, foreigner] : device_.foreigners) charge_foreigner(foreigner, {}, {});
  device_.foreigners = std::move(foreigners_);
}

void Broker::Observing::pursue(const Suspect& suspect) {
  const Process& process = suspect.process;
  // Seen twice: a single look may catch what is just on its way. What is older than the broker may hold
  // leases of an earlier one. What is the machine's own, such as a display, is not ours to end.
  const bool is_sure = suspect.watch.again && process.started != 0 && process.started > seen_.broker_started;
  const bool is_the_machines = process.uid == 0 && !suspect.session;
  if (!rules().end || !is_sure || is_the_machines || suspect.watch.kill_at) return;
  const TimePoint kill_at = now_ + policy().reclaim.grace;
  suspect.watch.kill_at = kill_at;
  broker_.endings_.push_back({kill_at, seen_.device, process.pid, process.started, suspect.session});
  if (suspect.session)
    broker_.effects_.emplace_back(SignalSession{suspect.session, Signal::kTerminate});
  else
    broker_.effects_.emplace_back(SignalForeigner{process.pid, process.started, Signal::kTerminate});
  tell(Event::Kind::kTerminating, suspect, "for memory held past the broker");
}

void Broker::Observing::list(const Suspect& suspect, Bytes bytes) {
  const Process& process = suspect.process;
  device_.view.processes.push_back({process.pid, process.uid, process.command, suspect.tenant, bytes});
}

void Broker::Observing::tell(Event::Kind kind, const Suspect& suspect, const std::string& words) {
  const Process& process = suspect.process;
  Event& event = broker_.note(kind, now_);
  event.tenant = suspect.tenant;
  event.session = suspect.session;
  event.device = seen_.device;
  event.bytes = suspect.watch.bytes;
  event.pid = process.pid;
  event.words = (process.command.empty() ? "" : process.command + ": ") + words;
}

void Broker::Observing::sum_up() {
  Reconciliation& view = device_.view;
  view.seen = now_;
  view.used = std::min(seen_.used, total());
  view.extents = extents();
  view.overhead = view.declared = {};
  view.past_broker = foreign_;
  for (const auto& [id, session] : broker_.sessions_) {
    const auto outside = session.outside.find(seen_.device);
    if (outside == session.outside.end()) continue;
    view.overhead += outside->second.overhead;
    view.declared += outside->second.declared;
    view.past_broker += outside->second.past;
  }
  view.unexplained = view.used.minus(view.extents + view.overhead + view.declared + view.past_broker);
  std::ranges::sort(view.processes, std::greater{}, &Reconciliation::Process::bytes);
  // A process may come or go between the driver's answers: only what stays is told.
  const Bytes stays = std::min(std::exchange(device_.unexplained_before, view.unexplained), view.unexplained);
  if (!device_.unexplained.tells(stays)) return;
  Event& event = broker_.note(Event::Kind::kUnexplained, now_);
  event.device = seen_.device;
  event.bytes = stays;
}

void Broker::begin_observation(DeviceIndex device) {
  Reconciled& reconciled = reconciled_.at(device);
  reconciled.clients_before.clear();
  for (auto& [id, session] : sessions_) {
    reconciled.clients_before.push_back(session.peer.pid);
    if (const auto outside = session.outside.find(device); outside != session.outside.end())
      outside->second.freed_before = outside->second.freed;
  }
  std::ranges::sort(reconciled.clients_before);
}

void Broker::observe(const Observation& observation, TimePoint now) {
  Reconciled& reconciled = reconciled_.at(observation.device);
  reconciled.view.problem = observation.problem;
  if (observation.problem.empty()) Observing(*this, observation, now).run();
  settle(now);
}

const Reconciliation& Broker::reconciliation(DeviceIndex device) const { return reconciled_.at(device).view; }

std::optional<TimePoint> Broker::reconcile_deadline() const {
  const auto first = std::ranges::min_element(endings_, {}, &Ending::at);
  return first == endings_.end() ? std::nullopt : std::optional(first->at);
}

const PastBroker* Broker::watch_of(const Ending& ending) const {
  if (ending.session) {
    const auto session = sessions_.find(ending.session);
    if (session == sessions_.end()) return nullptr;
    const auto outside = session->second.outside.find(ending.device);
    return outside == session->second.outside.end() ? nullptr : &outside->second.watch;
  }
  const auto& foreigners = reconciled_[ending.device].foreigners;
  const auto found = foreigners.find(ending.pid);
  return found == foreigners.end() || found->second.started != ending.started ? nullptr
                                                                              : &found->second.watch;
}

void Broker::end_overdue(TimePoint now) {
  const auto later =
      std::partition(endings_.begin(), endings_.end(), [&](const Ending& one) { return one.at <= now; });
  for (auto ending = endings_.begin(); ending != later; ++ending) {
    const PastBroker* watch = watch_of(*ending);
    // What it has given back meanwhile it need not die for.
    if (watch == nullptr || watch->kill_at != ending->at || !policy_.past_broker.end) continue;
    Event& event = note(Event::Kind::kKilling, now);
    event.session = ending->session;
    event.device = ending->device;
    event.bytes = watch->bytes;
    event.pid = ending->pid;
    event.words = "for memory held past the broker";
    if (ending->session) {
      event.tenant = tenant_name(ending->session);
      effects_.emplace_back(SignalSession{ending->session, Signal::kKill});
    } else {
      const TenantId tenant = reconciled_[ending->device].foreigners.at(ending->pid).tenant;
      if (tenant) event.tenant = tenants_.at(tenant).name;
      effects_.emplace_back(SignalForeigner{ending->pid, ending->started, Signal::kKill});
    }
  }
  endings_.erase(endings_.begin(), later);
}

}  // namespace gpumem::core
