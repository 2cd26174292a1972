#include "daemon/host/loop/loop.h"

#include <time.h>

#include <algorithm>
#include <boost/asio/post.hpp>

#include "base/crash_point.h"
#include "base/log.h"
#include "base/text/missing_memory.h"
#include "daemon/host/loop/processor_clock.h"

namespace gpumem::host {
namespace {

// Until the journal is tried again.
constexpr auto kJournalRetry = std::chrono::milliseconds(1100);

core::TimePoint processor_time() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return core::TimePoint(std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec));
}

bool is_expiry(const core::Event& event) { return event.kind == core::Event::Kind::kExpired; }

// One that no session has lost: this broker has not got its memory.
void warn_of_lost_region(const core::Event& event) {
  if (event.kind == core::Event::Kind::kRegionLost && !event.session)
    spdlog::warn("tenant '{}' has lost a region: {}", event.tenant, event.words);
}

}  // namespace

Result<std::unique_ptr<Loop>> Loop::create(Options options) {
  const cuda::Driver& driver = *options.driver;
  std::optional<Journal::Content> before = std::move(options.before);
  const std::filesystem::path folder = options.journal_folder;
  const std::vector<std::string> devices = options.devices;
  std::map<LeaseId, KeptDescriptor> kept = std::move(options.kept);
  const DescriptorStore* const store = options.store;
  const cuda::Nvml* const nvml = options.nvml;
  const auto host_nodes = options.host_nodes;
  options.policy.max_extents = options.budget.extents();
  std::unique_ptr<Loop> loop(new Loop(std::move(options)));
  auto extents = Extents::create(
      loop->io_,
      {.driver = &driver,
       .nvml = nvml,
       .devices = loop->broker_.policy().devices,
       .host_nodes = host_nodes,
       .store = store,
       .done =
           [self = loop.get()](const core::JobResult& result) {
             self->serve(kOwnFlow, [self, result] {
               self->run([&](core::Broker& broker, core::TimePoint at) { broker.job_done(result, at); });
               self->note_missing();
             });
           },
       .standing_of = [self = loop.get()](LeaseId lease) -> std::optional<StorePlaces::Standing> {
         const auto standing = self->broker_.standing_of(lease);
         if (!standing) return std::nullopt;
         return StorePlaces::Standing{standing->tenant, standing->is_kept};
       }});
  if (!extents) return extents.error();
  loop->extents_ = std::move(*extents);
  if (!before) {
    // Processes of an earlier job may still run: they must not join another job by its number.
    const auto epoch = std::chrono::system_clock::now().time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(epoch).count();
    loop->broker_.number_jobs_after(core::CommandJobId{static_cast<std::uint64_t>(seconds)});
  }
  if (!kept.empty()) {
    // Even without a journal, the number of a descriptor that may still be kept is not given to other memory.
    if (!before) before.emplace();
    LeaseId& last = before->checkpoint.last.lease;
    last = std::max(last, kept.rbegin()->first);
  }
  if (before) loop->take_over(*before, kept);
  loop->extents_->forget(std::move(kept));
  if (auto begun = loop->journal_.begin(folder, devices, loop->broker_); !begun) return begun.error();
  crash_at(CrashPoint::kRestartBegun);
  return loop;
}

Loop::Loop(Options options)
    : driver_folder_(std::move(options.driver_folder)),
      is_host_of_driver_(options.host_nodes),
      administrators_(*options.administrators),
      connections_(*options.connections),
      budget_(options.budget),
      disposal_(options.lane_socket.takes_descriptors),
      unread_(io_, budget_.unread_of_a_user(), disposal_),
      work_guard_(boost::asio::make_work_guard(io_)),
      broker_(std::move(options.policy)),
      silent_({budget_.silent(), budget_.silent_of_a_user()}),
      listener_(io_, listening(options)),
      warnings_(io_),
      deadline_(io_, [this] { queue_tick(); }),
      journal_retry_(io_),
      grace_(io_),
      making_ends_(io_),
      broadcast_(io_),
      turns_(ProcessorClock(std::chrono::steady_clock::now, processor_time)) {
  events_.begin(std::move(options.history), std::chrono::system_clock::now());
}

Loop::~Loop() {
  if (thread_.joinable()) {
    run_and_wait([this](core::Broker&, core::TimePoint) {
      listener_.stop();
      for (auto& [id, client] : clients_) end_requests_of(id);
    });
    io_.stop();
    thread_.join();
  }
  extents_.reset();  // joins the workers, which post to io_
}

void Loop::start() {
  std::promise<void> settled;
  settled_ = &settled;
  thread_ = std::thread([this] { io_.run(); });
  post([](core::Broker& broker, core::TimePoint at) { broker.tick(at); });
  settled.get_future().wait();
  crash_at(CrashPoint::kRestartSettled);
}

void Loop::listen(core::PacketReceiver& receiver) {
  boost::asio::post(io_, [this, &receiver] {
    receiver_ = &receiver;
    make_spare_ends();
    listener_.start();
    end_grace();
    crash_at(CrashPoint::kRestartListening);
  });
}

NamedDescriptors Loop::drain() {
  NamedDescriptors lent;
  run_and_wait([&](core::Broker& broker, core::TimePoint) {
    listener_.stop();
    crash_at(CrashPoint::kShutdownBegun);
    // From here on everything that ends, ends with this broker alone.
    journal_.close(broker);
    lent = extents_->all_lent();
    for (const auto& [session, client] : clients_)
      if (client.link->is_open()) client.link->stop();
    crash_at(CrashPoint::kShutdownLeft);
    broker.drain();
  });
  // Subscribers get the resulting events, and then the end.
  run_and_wait([this](core::Broker&, core::TimePoint) {
    events_.close();
    for (const auto& [session, client] : clients_) client.link->stop();
  });
  return lent;
}

std::size_t Loop::session_count() {
  std::size_t count = 0;
  run_and_wait([&](core::Broker& broker, core::TimePoint) { count = broker.sessions().size(); });
  return count;
}

Result<void> Loop::apply(core::Policy policy, std::string cause) {
  Result<void> applied;
  run_and_wait([&](core::Broker& broker, core::TimePoint at) {
    applied = broker.apply(std::move(policy), at, std::move(cause));
  });
  return applied;
}

void Loop::set_observer(core::Observer* observer) {
  run_and_wait([&](core::Broker&, core::TimePoint) { observer_ = observer; });
}

void Loop::post(Work work) { post_to({}, std::move(work)); }

void Loop::post_for(std::optional<int> connection, Work work) {
  const auto caller = connection ? connections_.find(*connection) : std::nullopt;
  if (!caller) return post(std::move(work));
  post_to(flow_of(caller->peer, caller->admin), std::move(work));
}

void Loop::post_to(const Flow& flow, Work work) {
  boost::asio::post(io_, [this, flow, since = now(), work = std::move(work)]() mutable {
    serve(flow, [this, since, work = std::move(work)] {
      there_since_ = since;
      run(work);
      there_since_ = core::TimePoint::max();
    });
  });
}

void Loop::go_on(SessionId session, Work work) {
  const auto client = clients_.find(session);
  if (client == clients_.end()) return;  // its lane is gone, and nobody waits for an answer
  queue(client->second.flow, [this, work = std::move(work)] { run(work); });
}

void Loop::run_and_wait(const Work& work) {
  std::promise<void> done;
  boost::asio::post(io_, [&] {
    queue(kOwnFlow, [&] {
      run(work);
      done.set_value();
    });
  });
  done.get_future().wait();
}

void Loop::queue(const Flow& flow, Turns::Work work) {
  turns_.add(flow, std::move(work));
  if (std::exchange(turns_posted_, true)) return;
  boost::asio::post(io_, [this] { take_turns(); });
}

void Loop::serve(const Flow& flow, Turns::Work work) {
  if (turns_posted_ || running_) return queue(flow, std::move(work));
  turns_.add(flow, std::move(work));
  turns_posted_ = true;
  take_turns();
}

void Loop::queue_own(Work work) {
  queue(kOwnFlow, [this, work = std::move(work)] { run(work); });
}

// One turn, then the sockets and timers are looked at, which may bring work of others.
void Loop::take_turns() {
  turns_.run_stretch();
  turns_posted_ = !turns_.empty();
  if (turns_posted_) boost::asio::post(io_, [this] { take_turns(); });
}

void Loop::queue_tick() {
  if (std::exchange(tick_queued_, true)) return;
  queue(kOwnFlow, [this] {
    tick_queued_ = false;
    run([](core::Broker& broker, core::TimePoint at) { broker.tick(at); });
  });
}

core::Duration Loop::unread() const { return std::max(now() - there_since_, core::Duration::zero()); }

void Loop::run(const Work& work) {
  if (running_) return work(broker_, now());
  running_ = true;
  work(broker_, now());
  do_effects();
  running_ = false;
  if (auto events = broker_.outbox().take_events(); !events.empty()) {
    if (std::ranges::any_of(events, is_expiry)) crash_at(CrashPoint::kRegionExpired);
    std::ranges::for_each(events, warn_of_lost_region);
    events_.add(std::move(events), broker_, now(), std::chrono::system_clock::now());
  }
  for (const SessionId session : broker_.outbox().take_touched()) publish(session);
  for (const auto& done : std::exchange(after_, {})) done();
  extents_->begin_jobs();
  publish_soon();
  deadline_.arm(broker_.next_deadline());
  if (journal_.is_failing()) try_journal_again();
  if (settled_ != nullptr && broker_.settled()) std::exchange(settled_, nullptr)->set_value();
}

Result<void> Loop::write_down() {
  if (journal_.write(broker_, now())) return {};
  return Error{Code::kUnavailable, journal_.why()};
}

void Loop::region_kept(const std::vector<LeaseId>& leases) {
  for (const LeaseId lease : leases) {
    if (const auto standing = broker_.standing_of(lease))
      extents_->region_kept(standing->extent, standing->device);
  }
}

void Loop::send(SessionId session, std::string_view bytes, const core::SentExtents& extents) {
  const auto client = clients_.find(session);
  // With the lane its extents may be gone, while the session is kept until they have come back.
  if (client == clients_.end() || !client->second.link->is_open()) return;
  client->second.link->send(bytes, extents);
}

bool Loop::is_behind(SessionId session) const {
  const auto client = clients_.find(session);
  return client != clients_.end() && client->second.link->is_behind();
}

RequestId Loop::grow(SessionId session, const core::Grow& asked, GrowAnswer answer) {
  core::Grow request = asked;
  request.unread = unread();
  const auto place = broker_.place_kept(session, request, now());
  const RequestId id = place ? *place : request_ids_.next();
  pending_.add(id, session, std::move(answer));
  run([&](core::Broker& broker, core::TimePoint at) {
    broker.grow(id, session, request, at);
    crash_at(CrashPoint::kGrowDecided);
  });
  return id;
}

RequestId Loop::reserve_for_job(SessionId session, const core::ReserveForJob& asked, GrowAnswer answer) {
  core::ReserveForJob request = asked;
  request.unread = unread();
  const auto place = broker_.place_kept(session, request, now());
  const RequestId id = place ? *place : request_ids_.next();
  pending_.add(id, session, std::move(answer));
  run([&](core::Broker& broker, core::TimePoint at) { broker.reserve_for_job(id, session, request, at); });
  return id;
}

RequestId Loop::announce_context(SessionId session, const core::AnnounceContext& request, GrowAnswer answer) {
  const RequestId id = request_ids_.next();
  pending_.add(id, session, std::move(answer));
  run([&](core::Broker& broker, core::TimePoint at) { broker.announce_context(id, session, request, at); });
  return id;
}

RequestId Loop::map_region(SessionId session, const core::MapRegion& request, MapAnswer answer) {
  const RequestId id = request_ids_.next();
  pending_maps_.add(id, session, std::move(answer));
  run([&](core::Broker& broker, core::TimePoint at) { broker.map_or_wait(id, session, request, at); });
  return id;
}

void Loop::cancel(RequestId request) {
  run([&](core::Broker& broker, core::TimePoint at) { broker.cancel(request, at); });
  if (auto answer = pending_.take(request))
    (*answer)(core::GrowFailure{{Code::kCancelled, "the request was withdrawn"}, {}});
  if (auto answer = pending_maps_.take(request))
    (*answer)(Error{Code::kCancelled, "the request was withdrawn"});
}

void Loop::end_requests_of(SessionId session) {
  for (const GrowAnswer& answer : pending_.take_all_of(session))
    answer(core::GrowFailure{{Code::kCancelled, "the session has ended"}, {}});
  for (const MapAnswer& answer : pending_maps_.take_all_of(session))
    answer(Error{Code::kCancelled, "the session has ended"});
}

void Loop::try_journal_again() {
  journal_retry_.expires_after(kJournalRetry);
  journal_retry_.async_wait([this](const boost::system::error_code& error) {
    if (!error) run([](core::Broker&, core::TimePoint) {});
  });
}

// The log says when a pool begins to lack memory, and when it is whole.
void Loop::note_missing() {
  if (settled_ != nullptr) return;  // the pools are being created
  const std::vector<core::DevicePolicy>& devices = broker_.policy().devices;
  lacks_memory_.resize(devices.size());
  for (core::DeviceIndex i = 0; i < devices.size(); ++i) {
    const Bytes missing = broker_.missing(i);
    const bool lacks = !missing.is_zero();
    if (lacks == lacks_memory_[i]) continue;
    lacks_memory_[i] = lacks;
    if (lacks)
      warnings_.warn(devices[i].uuid + ": " + to_string(missing) + " of the pool of " +
                     to_string(devices[i].pool) + " are missing, " + missing_because(devices[i].uuid) +
                     "; the pool grows when they free memory");
    else
      spdlog::info("{}: the pool of {} is whole", devices[i].uuid, to_string(devices[i].pool));
  }
}

}  // namespace gpumem::host
