#include <algorithm>
#include <utility>

#include "daemon/core/sessions/unmanaged.h"

// Holds the driver's figures of a device against the ledger. The rule of whose memory a figure is:
// reconcile.h.

namespace gpumem::core {

/// One observation on its way into the ledger.
class Unmanaged::Look {
 public:
  Look(Unmanaged& unmanaged, const Observation& seen, Bytes moving, TimePoint now)
      : unmanaged_(unmanaged),
        state_(unmanaged.state_),
        seen_(seen),
        moving_(moving),
        now_(now),
        device_(unmanaged.devices_[seen.device]) {}

  void run();

 private:
  using Process = Observation::Process;
  // The sessions of one process; the first is charged for it.
  struct Client {
    std::vector<Session*> sessions;
    Bytes leases;
    Bytes declared;
    Bytes excused;
    std::uint64_t started = 0;
    bool listed = false;
  };
  struct Suspect {
    const Process& process;
    PastBroker& watch;
    std::string tenant;
    SessionId session;  // none: a foreign process
  };

  const DevicePolicy& policy() const { return state_.policy.devices[seen_.device]; }
  const PastBrokerPolicy& rules() const { return state_.policy.past_broker; }
  Bytes total() const { return policy().total; }
  Bytes used(const Process& process) const { return std::min(process.used, total()); }
  Bytes extents() const { return policy().pool.minus(state_.ledger.missing(seen_.device)); }

  void find_clients();
  Client* client(const Process& process);
  bool has_just_left(const Process& process) const;
  std::vector<std::optional<Bytes>> shares();
  void see(const Process& process, std::optional<Bytes> own);
  void see_client(const Process& process, Client& client, Bytes own);
  void charge_client(Client& client, Bytes overhead, Bytes past, bool measured);
  void see_foreign_process(const Process& process);
  void charge_foreign_process(ForeignProcess& foreign, TenantId tenant, Bytes bytes);
  TenantId tenant_of_process(const Process& process);
  void drop_foreign_processes();
  void pursue(const Suspect& suspect);
  void list(const Suspect& suspect, Bytes bytes);
  void account(const Process& process, const std::string& tenant, const Accounting::Process& parts);
  bool tells_processes() const;
  void tell(Event::Kind kind, const Suspect& suspect, const std::string& words);
  void sum_up();
  void note_hindrance();

  Unmanaged& unmanaged_;
  State& state_;
  const Observation& seen_;
  const Bytes moving_;  // by the broker's own driver calls
  const TimePoint now_;
  Reconciled& device_;
  std::map<std::int64_t, Client> clients_;
  std::map<std::int64_t, ForeignProcess> foreign_processes_;  // as they are now
  Bytes foreign_;                                             // held by them, charged or not
  Bytes contexts_;                                            // of clients, as the driver says
  Bytes others_;                                              // held by processes, and not lent
};

void Unmanaged::Look::run() {
  find_clients();
  const auto own = shares();
  device_.view.processes.clear();
  device_.view.accounting = {};
  for (std::size_t i = 0; i < seen_.processes.size(); ++i) see(seen_.processes[i], own[i]);
  for (auto& [pid, client] : clients_) {
    if (client.listed) continue;
    // The client holds nothing now. Its context may come at any time.
    const bool begun = std::ranges::any_of(client.sessions, [&](Session* session) {
      const auto known = session->outside.find(seen_.device);
      return known != session->outside.end() && known->second.begun && known->second.room.is_zero();
    });
    charge_client(client, begun ? policy().context_overhead : Bytes{}, {}, false);
  }
  drop_foreign_processes();
  sum_up();
  note_hindrance();
}

void Unmanaged::Look::find_clients() {
  for (auto& [id, session] : state_.sessions) {
    if (session->exited) continue;  // another process may have its number
    Client& client = clients_[session->peer.pid];
    client.sessions.push_back(session.get());
    client.started = std::max(client.started, session->peer.started);
    if (const auto outside = session->outside.find(seen_.device); outside != session->outside.end()) {
      client.declared += outside->second.declared;
      client.excused += unmanaged_.outside_.excused(*session, seen_.device);
    }
    const Holding& holding = session->holding(seen_.device);
    client.leases += holding.charges.total() + holding.freed - holding.freed_before;
    client.leases += state_.imports.kept(id, seen_.device).used;
  }
  clients_.erase(0);  // processes of other PID namespaces: the driver cannot name them either
  for (auto& [pid, client] : clients_) std::ranges::sort(client.sessions, {}, &Session::id);
}

Unmanaged::Look::Client* Unmanaged::Look::client(const Process& process) {
  const auto found = clients_.find(process.pid);
  if (found == clients_.end()) return nullptr;
  // Another process that was given the same pid, before or after.
  const bool is_another =
      found->second.started != 0 && process.started != 0 && found->second.started != process.started;
  return is_another ? nullptr : &found->second;
}

bool Unmanaged::Look::has_just_left(const Process& process) const {
  return std::ranges::binary_search(device_.clients_before, process.pid);
}

std::vector<std::optional<Bytes>> Unmanaged::Look::shares() {
  std::vector<Booked> booked;
  for (const Process& process : seen_.processes) {
    const Client* known = client(process);
    booked.push_back({used(process), known != nullptr ? known->leases : Bytes{}});
  }
  const Bytes own = seen_.broker.is_zero() ? extents() : seen_.broker;
  return own_memory(booked, own, seen_.used);
}

void Unmanaged::Look::see(const Process& process, std::optional<Bytes> own) {
  if (Client* known = client(process)) {
    known->listed = true;
    if (own) return see_client(process, *known, *own);
    Session& session = *known->sessions.front();
    OutsideCharge& outside = session.outside[seen_.device];
    others_ += outside.overhead + outside.past;
    account(process, session.tenant_name,
            {.context = outside.overhead,
             .declared = known->declared,
             .past_broker = outside.past,
             .is_client = true,
             .is_estimate = true});
    if (!outside.past.is_zero())
      list({process, outside.watch, session.tenant_name, session.id}, outside.past);
    return;
  }
  if (process.pid > 0 && !process.used.is_zero() && !has_just_left(process)) see_foreign_process(process);
}

// Declared memory that limits have no room for is charged, and yet counts as taken past the broker.
void Unmanaged::Look::see_client(const Process& process, Client& client, Bytes own) {
  contexts_ += std::min(own, rules().allowance);
  others_ += own;
  const Bytes besides = own.minus(client.declared);
  const Bytes overhead = std::min(besides, rules().allowance);
  charge_client(client, overhead, besides - overhead, true);
  const Bytes inexcusable = own.minus(client.excused).minus(rules().allowance);
  Session& session = *client.sessions.front();
  account(
      process, session.tenant_name,
      {.context = overhead, .declared = own - besides, .past_broker = besides - overhead, .is_client = true});
  const Suspect suspect{process, session.outside[seen_.device].watch, session.tenant_name, session.id};
  if (suspect.watch.see(inexcusable, seen_.regular, now_, rules().confirm)) {
    tell(Event::Kind::kPastBroker, suspect,
         "besides its leases, what it declared within its limit, and " + to_string(overhead) +
             " for its context");
  }
  if (inexcusable.is_zero()) return;
  list(suspect, inexcusable);
  pursue(suspect);
}

void Unmanaged::Look::charge_client(Client& client, Bytes overhead, Bytes past, bool measured) {
  for (Session* session : client.sessions) {
    const bool is_first = session == client.sessions.front();
    const auto known = session->outside.find(seen_.device);
    if (known == session->outside.end() && !(is_first && (measured || !overhead.is_zero()))) continue;
    unmanaged_.outside_.set(*session, seen_.device, &OutsideCharge::overhead, is_first ? overhead : Bytes{});
    unmanaged_.outside_.set(*session, seen_.device, &OutsideCharge::past, is_first ? past : Bytes{});
    OutsideCharge& outside = session->outside[seen_.device];
    outside.measured = measured;
    if (!is_first || !measured) outside.watch.clear();
  }
}

void Unmanaged::Look::see_foreign_process(const Process& process) {
  ForeignProcess& foreign = foreign_processes_[process.pid];
  if (auto before = device_.foreign_processes.find(process.pid);
      before != device_.foreign_processes.end() && before->second.started == process.started) {
    foreign = before->second;
    device_.foreign_processes.erase(before);
  }
  foreign.started = process.started;
  const Bytes bytes = used(process);
  const bool matters = bytes > rules().allowance;
  charge_foreign_process(foreign, matters ? tenant_of_process(process) : TenantId{}, bytes);
  foreign_ += bytes;
  others_ += bytes;
  const Suspect suspect{
      process, foreign.watch, foreign.tenant ? state_.tenants.name(foreign.tenant) : "", {}};
  account(process, suspect.tenant, {.past_broker = bytes});
  if (foreign.watch.see(matters ? bytes : Bytes{}, seen_.regular, now_, rules().confirm))
    tell(Event::Kind::kPastBroker, suspect, "no client of the broker");
  list(suspect, bytes);
  if (matters) pursue(suspect);
}

// None: nobody is to be charged.
TenantId Unmanaged::Look::tenant_of_process(const Process& process) {
  if (process.started == 0) return {};
  const auto match = tenant_of(state_.policy, {.pid = process.pid,
                                               .uid = process.uid,
                                               .gids = process.gids,
                                               .command = process.command,
                                               .pod = process.pod,
                                               .owner = process.owner});
  if (!match) return {};
  const auto tenant = state_.tenants.admit(state_.policy, *match);
  return tenant ? *tenant : TenantId{};
}

void Unmanaged::Look::charge_foreign_process(ForeignProcess& foreign, TenantId tenant, Bytes bytes) {
  const TenantId before = foreign.tenant;
  if (before) {
    const TenantId leaf = state_.tenants.leaf_of(before);
    state_.ledger.release_outside(leaf, seen_.device, foreign.charged);
    state_.charge_unasked(leaf, seen_.device, foreign.charged, {});
  }
  if (tenant) {
    const TenantId leaf = state_.tenants.leaf_of(tenant);
    state_.ledger.charge_outside(leaf, seen_.device, bytes);
    state_.charge_unasked(leaf, seen_.device, {}, bytes);
  }
  foreign.tenant = tenant;
  foreign.charged = tenant ? bytes : Bytes{};
  if (before && before != tenant) state_.tenants.retire(state_.tenants.leaf_of(before));
}

// Drops processes that are gone, that became clients, or whose pid another process has now.
void Unmanaged::Look::drop_foreign_processes() {
  for (auto& [pid, foreign] : device_.foreign_processes) charge_foreign_process(foreign, {}, {});
  device_.foreign_processes = std::move(foreign_processes_);
}

void Unmanaged::Look::pursue(const Suspect& suspect) {
  const Process& process = suspect.process;
  // A single look may catch memory that is just on its way. A process that is older than the broker may hold
  // leases of an earlier one. A process of the machine, such as a display, is not ours to end.
  const bool is_sure =
      suspect.watch.lasting && process.started != 0 && process.started > seen_.broker_started;
  const bool is_the_machines = process.uid == 0 && process.pod.empty() && !suspect.session;
  const bool is_left_alone = is_the_machines || (process.left_to_driver && !suspect.session);
  if (!rules().end || !is_sure || is_left_alone || suspect.watch.kill_at) return;
  const TimePoint kill_at = now_ + policy().reclaim.grace;
  suspect.watch.kill_at = kill_at;
  unmanaged_.endings_.push_back({kill_at, seen_.device, process.pid, process.started, suspect.session});
  if (suspect.session)
    state_.outbox.emit(SignalSession{suspect.session, Signal::kTerminate});
  else
    state_.outbox.emit(SignalForeignProcess{process.pid, process.started, Signal::kTerminate});
  tell(Event::Kind::kTerminating, suspect, "for memory held past the broker");
}

void Unmanaged::Look::list(const Suspect& suspect, Bytes bytes) {
  const Process& process = suspect.process;
  device_.view.processes.push_back({process.pid, process.uid, process.command, suspect.tenant, bytes});
}

void Unmanaged::Look::account(const Process& process, const std::string& tenant,
                              const Accounting::Process& parts) {
  Accounting::Process one = parts;
  one.pid = process.pid;
  one.uid = process.uid;
  one.command = process.command;
  one.tenant = tenant;
  one.used = used(process);
  device_.view.accounting.add(std::move(one));
}

bool Unmanaged::Look::tells_processes() const {
  const auto is_told = [](const Process& process) { return !process.used.is_zero(); };
  return seen_.processes.empty() || !seen_.broker.is_zero() || std::ranges::any_of(seen_.processes, is_told);
}

void Unmanaged::Look::tell(Event::Kind kind, const Suspect& suspect, const std::string& words) {
  const Process& process = suspect.process;
  Event& event = state_.outbox.note(kind, now_);
  event.tenant = suspect.tenant;
  event.session = suspect.session;
  if (suspect.session) {
    Session& session = state_.session(suspect.session);
    event.job = session.job;
    event.uid = session.peer.user();
    if (kind == Event::Kind::kTerminating) session.why = words;
  }
  event.device = seen_.device;
  event.bytes = suspect.watch.bytes;
  event.pid = process.pid;
  event.words = (process.command.empty() ? "" : process.command + ": ") + words;
}

void Unmanaged::Look::sum_up() {
  Reconciliation& view = device_.view;
  view.seen = now_;
  view.used = std::min(seen_.used, total());
  view.extents = extents();
  view.contexts = contexts_;
  view.overhead = view.declared = {};
  view.past_broker = foreign_;
  for (const auto& [id, session] : state_.sessions) {
    const auto outside = session->outside.find(seen_.device);
    if (outside == session->outside.end()) continue;
    view.overhead += outside->second.overhead;
    view.declared += outside->second.declared;
    view.past_broker += outside->second.past;
  }
  view.unexplained = view.used.minus(view.extents + view.overhead + view.declared + view.past_broker);
  std::ranges::sort(view.processes, std::greater{}, &Reconciliation::Process::bytes);
  Accounting& sum = view.accounting;
  sum.tells_processes = tells_processes();
  if (!sum.tells_processes) sum = {.declared = view.declared};
  sum.total = seen_.total;
  sum.free = seen_.free;
  sum.used = view.used;
  sum.created = view.extents;
  sum.moving = moving_;
  // A process may come or go between the driver's answers: only what stays is told.
  const Bytes stays = std::min(std::exchange(device_.unexplained_before, view.unexplained), view.unexplained);
  if (!device_.unexplained.tells(stays)) return;
  Event& event = state_.outbox.note(Event::Kind::kUnexplained, now_);
  event.device = seen_.device;
  event.bytes = stays;
}

// The driver proves memory of the pool free where it has room for it. It lacks room for what others have
// taken beyond the rest of the device, less the part that is missing from the pool. In an elastic pool, any
// memory that was taken at the wrong moment can hide the fall of the used bytes.
void Unmanaged::Look::note_hindrance() {
  const auto unexplained =
      device_.view.accounting.tells_processes ? device_.view.accounting.unexplained() : 0;
  const Charges charges = state_.ledger.charges(seen_.device);
  const Bytes on_its_way = charges[Charge::kReturning] + charges[Charge::kQuarantined] + moving_;
  const auto booked_on_nobody = [&](Bytes less, Bytes more) {
    const auto bytes = unexplained + static_cast<std::int64_t>(more.count - less.count);
    return Bytes{static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0))};
  };
  device_.drivers_own =
      std::clamp(device_.drivers_own, booked_on_nobody(moving_, {}), booked_on_nobody({}, on_its_way));
  const Bytes rest = total().minus(policy().pool) + state_.ledger.missing(seen_.device);
  state_.hinders_proofs[seen_.device] =
      policy().is_elastic() ? device_.view.past_broker : (others_ + device_.drivers_own).minus(rest);
}

// ---- Observations ----

Unmanaged::Unmanaged(State& state, Outside& outside)
    : state_(state), outside_(outside), devices_(state.policy.devices.size()) {}

void Unmanaged::begin_observation(DeviceIndex device, Bytes jobs_ended) {
  Reconciled& reconciled = devices_.at(device);
  reconciled.jobs_ended_before = jobs_ended;
  reconciled.clients_before.clear();
  for (auto& [id, session] : state_.sessions) {
    if (!session->exited) reconciled.clients_before.push_back(session->peer.pid);
    if (const auto holding = session->holdings.find(device); holding != session->holdings.end())
      holding->second.freed_before = holding->second.freed;
  }
  std::ranges::sort(reconciled.clients_before);
}

void Unmanaged::observe(const Observation& observation, Bytes jobs_started, TimePoint now) {
  Reconciled& reconciled = devices_.at(observation.device);
  reconciled.view.problem = observation.problem;
  const Bytes moving = jobs_started - reconciled.jobs_ended_before;
  if (observation.problem.empty()) Look(*this, observation, moving, now).run();
  state_.past_broker[observation.device] = reconciled.view.past_broker;
}

}  // namespace gpumem::core
