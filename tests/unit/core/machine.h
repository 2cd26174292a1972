#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/broker/broker.h"
#include "daemon/core/memory/job.h"
#include "tests/support/core_world.h"
#include "tests/unit/core/policies.h"

namespace gpumem::core {

/// The request, for memory of the slice.
template <class Request>
Request of_leases(Request request, SliceId slice, std::vector<LeaseId> leases) {
  request.slice = slice;
  request.leases = std::move(leases);
  return request;
}

/// A broker with a driver and clients that behave, unless told otherwise: what is offered to a session is
/// held by its process until it gives it back or exits. Jobs run at once, or when the test says so. What a
/// session is asked for it keeps, unless clients are `cooperative`.
class Machine : public CoreWorld<> {
 public:
  enum class Start { kReady, kEmpty };

  explicit Machine(const Policy& policy = small_policy(), Start start = Start::kReady) : CoreWorld(policy) {
    broker.outbox().keep_changes();
    if (start == Start::kEmpty) return;
    broker.tick(now);
    run_jobs();
    EXPECT_TRUE(broker.settled());
  }

  // ---- The host's part ----

  /// Takes the effects: jobs queue up, offers reach their process, answers are kept.
  void collect() {
    absorb();
    do {
      while (jobs_run_at_once && run_job()) {
      }
    } while (cooperative && heed_bells());
  }
  bool run_job() {
    const auto queue = std::ranges::find_if(jobs, [](const auto& one) { return !one.empty(); });
    if (queue == jobs.end()) return false;
    broker.job_done(driver.run(queue->pop()), now);
    absorb();
    return true;
  }
  void run_jobs() {
    collect();
    while (run_job()) {
    }
  }
  void pass(Duration time) {
    now += time;
    broker.tick(now);
    collect();
  }
  /// Passes time from deadline to deadline, as far as `time` reaches.
  void pass_in_steps(Duration time) {
    const TimePoint end = now + time;
    int standing_still = 0;
    for (auto next = broker.next_deadline(); next && *next <= end; next = broker.next_deadline()) {
      standing_still = *next > now ? 0 : standing_still + 1;
      if (standing_still == 100) {
        ADD_FAILURE() << "a deadline that has come stays";
        return;
      }
      pass(std::max(*next - now, Duration::zero()));
    }
    pass(end - now);
  }

  /// The broker dies, and another takes over from what it has written down. Processes keep what they use, by
  /// numbers of their own: see before(). Returns the sessions that it knows.
  /// `keep`  of these the extents' descriptors are handed to the next broker.
  /// `last`  what it wrote before it died in the middle of an event.
  std::vector<RestoredSession> restart(Policy policy = small_policy(), const std::vector<Grant>& keep = {},
                                       const std::vector<Checkpoint::Change>& last = {}) {
    std::vector<std::string> devices;
    for (const DevicePolicy& one : broker.policy().devices) devices.push_back(one.uuid);
    absorb();
    Checkpoint checkpoint = written;
    for (const Checkpoint::Change& change : last) checkpoint.apply(change);
    for (JobQueue<Job>& queue : jobs) queue.clear();
    std::map<LeaseId, ExtentId> kept;
    for (const Grant& grant : keep)
      for (const OfferedLease& one : grant.leases) kept.emplace(one.lease, one.extent.id);
    std::set<LeaseId> leases;
    std::set<ExtentId> extents;
    for (const auto& [lease, extent] : kept) {
      leases.insert(lease);
      extents.insert(extent);
    }
    driver.lose_broker(kOtherNumbers, extents);
    for (auto& [session, extents] : held)
      for (ExtentId& id : extents) id.value += kOtherNumbers;
    std::destroy_at(&broker);
    std::construct_at(&broker, std::move(policy));
    broker.outbox().keep_changes();
    const Restored restored = broker.restore(checkpoint, devices, leases, now);
    adopted.clear();
    for (const RestoredExtent& one : restored.extents) {
      rename(ExtentId{kept.at(one.lease).value + kOtherNumbers}, one.extent.id);
      adopted.emplace(one.lease, one.extent.id);
    }
    written = broker.checkpoint();
    std::vector<Checkpoint::Change> made;
    broker.outbox().take_changes(made);  // they are part of what was written
    broker.tick(now);
    run_jobs();
    return restored.sessions;
  }
  /// An extent of the broker before, by the number that this one gives it.
  void rename(ExtentId before, ExtentId given) {
    driver.rename(before, given);
    for (auto& [session, extents] : held) std::ranges::replace(extents, before, given);
  }
  /// A grant of the broker before the latest restart, by the numbers that its extents have now.
  Grant before(Grant grant) const {
    for (OfferedLease& one : grant.leases) {
      const auto found = adopted.find(one.lease);
      one.extent.id = found != adopted.end() ? found->second : ExtentId{one.extent.id.value + kOtherNumbers};
    }
    return grant;
  }

  // ---- The clients' part ----

  /// Comes back to a session of the broker before, with all of these.
  Result<void> resume(SessionId session, std::vector<SliceId> slices, const std::vector<Grant>& grants,
                      std::vector<ImportId> imports = {}) {
    Inventory inventory{std::move(slices), {}, std::move(imports)};
    for (const Grant& grant : grants)
      std::ranges::move(leases_of(grant), std::back_inserter(inventory.leases));
    std::ranges::sort(inventory.leases);
    auto resumed = broker.resume(session, inventory, now);
    collect();
    return resumed;
  }
  SessionId connect(std::uint32_t uid) { return broker.open_session(peer_of(uid), "test", now).value(); }
  SliceId slice(SessionId session, Bytes limit = {}, const std::string& device = "GPU-0") {
    return broker.open_slice(session, {device, limit, "test"}).value().id;
  }
  RequestId grow(SessionId session, const Grow& request) {
    const auto place = broker.place_kept(session, request, now);
    const RequestId id = place ? *place : request_ids.next();
    answers.erase(id);  // of a broker before
    broker.grow(id, session, request, now);
    collect();
    return id;
  }
  RequestId grow(SessionId session, const std::vector<GrowthPart>& parts, Duration wait = {}) {
    return grow(session, Grow{parts, wait});
  }
  RequestId grow(SessionId session, SliceId slice, Bytes bytes, Duration wait = {}) {
    return grow(session, {{slice, bytes}}, wait);
  }
  /// Grows, maps and accepts; the grant must come.
  Grant get(SessionId session, SliceId slice, Bytes bytes) {
    const RequestId id = grow(session, slice, bytes);
    EXPECT_TRUE(is_granted(id)) << why(id);
    const Grant grant = answers.at(id).value();
    EXPECT_TRUE(broker.accept(session, grant.id));
    return grant;
  }
  /// Takes 46 MiB of a fresh machine of small_policy() so that kGrowthWithJob more need a driver job.
  void use_up_stock(SessionId session, SliceId slice) {
    get(session, slice, mebibytes(40));
    get(session, slice, mebibytes(6));
  }
  static constexpr Bytes kGrowthWithJob = mebibytes(4);
  static std::vector<LeaseId> leases_of(const Grant& grant) {
    std::vector<LeaseId> ids;
    for (const OfferedLease& one : grant.leases) ids.push_back(one.lease);
    return ids;
  }
  void stop_using(SessionId session, const Grant& grant) {
    for (const OfferedLease& one : grant.leases) {
      if (std::erase(held[session], one.extent.id) != 0) driver.let_go(one.extent.id);
    }
  }
  Result<void> give_back(SessionId session, SliceId slice, const Grant& grant) {
    stop_using(session, grant);
    return keep_but_give_back(session, slice, grant);
  }
  /// What a hostile client does.
  Result<void> keep_but_give_back(SessionId session, SliceId slice, const Grant& grant) {
    auto answer = broker.give_back(session, {slice, leases_of(grant)}, now);
    collect();
    return answer;
  }
  void cancel(RequestId id) {
    broker.cancel(id, now);
    collect();
  }
  void say_spent(SessionId session, DeviceIndex device = 0) {
    const auto& devices = broker.policy().devices;
    const bool is_known = device < devices.size();
    EXPECT_EQ(bool{broker.spent(session, {is_known ? devices[device].uuid : "GPU-none"}, now)}, is_known);
    pass({});
  }
  /// Gives back what the session is asked for of the device, in whole leases; says so where it has no more.
  void heed(SessionId session, DeviceIndex device = 0) {
    while (asked_of(session, device) != Bytes{}) {
      const OfferedLease* lease = best_to_give(session, device);
      if (lease == nullptr) return say_spent(session, device);
      const OfferedLease given = *lease;
      std::erase(held[session], given.extent.id);
      driver.let_go(given.extent.id);
      EXPECT_TRUE(broker.give_back(session, {given.slice, std::vector{given.lease}}, now));
      collect();
    }
  }
  /// The process ends, however: the kernel lets go of everything it used.
  void die(SessionId session) {
    for (const ExtentId id : held[session]) driver.let_go(id);
    held.erase(session);
    broker.exited(session, now);
    collect();
  }
  void say_goodbye(SessionId session) {
    for (const ExtentId id : held[session]) driver.let_go(id);
    held.erase(session);
    broker.session_ended(session, SessionEnd::kReleased, now);
    collect();
  }
  void lose_lane(SessionId session) {
    broker.session_ended(session, SessionEnd::kLost, now);
    collect();
  }

  // ---- What can be seen ----

  bool is_answered(RequestId id) const { return answers.contains(id); }
  bool is_granted(RequestId id) const { return is_answered(id) && answers.at(id).has_value(); }
  Code code(RequestId id) const { return answers.at(id).error().error.code; }
  std::string why(RequestId id) const {
    if (!is_answered(id)) return "waits";
    return is_granted(id) ? "granted" : to_string(answers.at(id).error().error);
  }
  const Denial& denial(RequestId id) const { return answers.at(id).error().denial.value(); }
  Charges charges(const std::string& tenant, DeviceIndex device = 0) const {
    for (const TenantView& view : broker.tenants()) {
      if (view.name == tenant && view.device == device) return view.charges;
    }
    return {};
  }
  Bytes charged(const std::string& tenant, DeviceIndex device = 0) const {
    return charges(tenant, device).total();
  }
  /// What the session's figures ask it to give back.
  Bytes asked_of(SessionId session, DeviceIndex device = 0) const {
    return broker.knows(session) ? Bytes{broker.figures(session).devices[device].pressure} : Bytes{};
  }
  std::vector<Event> events_of(Event::Kind kind) const {
    std::vector<Event> some;
    std::ranges::copy_if(events, std::back_inserter(some),
                         [&](const Event& one) { return one.kind == kind; });
    return some;
  }
  Bytes free() const { return broker.devices()[0].free; }
  Bytes in(Charge state) const { return broker.devices()[0].charges[state]; }
  bool knows_tenant(const std::string& name) const {
    return std::ranges::any_of(broker.tenants(), [&](const TenantView& view) { return view.name == name; });
  }
  /// Nobody is charged, and the driver has exactly the pool, all of it warm.
  bool is_as_new() const {
    const DeviceView view = broker.devices()[0];
    return view.charges.total().is_zero() && view.warm == view.policy.pool &&
           driver.handled(0) == view.policy.pool && view.free == view.policy.pool && !has_jobs();
  }

  bool jobs_run_at_once = true;
  bool cooperative = false;
  std::map<RequestId, Result<Grant, GrowFailure>> answers;
  std::map<RequestId, Result<MappedRegion>> maps;
  std::map<RequestId, NameReserved> reserved;
  std::map<GrantId, SessionId> offers;
  std::vector<SessionId> forgotten;
  int looks = 0;  ///< at the devices, that the broker wants
  std::map<SessionId, std::vector<ExtentId>> held;
  std::map<LeaseId, ExtentId> adopted;  ///< by the latest broker from the one before
  std::map<SessionId, int> bells;
  std::vector<std::pair<SessionId, Signal>> signals;
  std::vector<SignalForeignProcess> foreign_signals;
  std::vector<Event> events;
  Checkpoint written;  ///< by the changes that the broker has told
  IdSource<RequestId> request_ids;

 private:
  static constexpr std::uint64_t kOtherNumbers = std::uint64_t{1} << 40;

  void absorb() {
    std::vector<Checkpoint::Change> changes;
    broker.outbox().take_changes(changes);
    for (const Checkpoint::Change& change : changes) written.apply(change);
    EXPECT_EQ(written, broker.checkpoint()) << "what a broker writes down is all that the next one needs";
    take_effects(*this);
    std::ranges::move(broker.outbox().take_events(), std::back_inserter(events));
  }
  // True if a bell was heard.
  bool heed_bells() {
    const std::set<SessionId> sessions = std::exchange(rung_, {});
    for (const SessionId session : sessions) {
      for (DeviceIndex device = 0; device < broker.devices().size(); ++device) heed(session, device);
    }
    return !sessions.empty();
  }
  // The smallest lease that suffices, else the largest.
  const OfferedLease* best_to_give(SessionId session, DeviceIndex device) {
    const Bytes asked = asked_of(session, device);
    const OfferedLease* best = nullptr;
    for (const ExtentId id : held[session]) {
      const OfferedLease& one = lent_.at(id);
      if (one.device != device) continue;
      const auto rank = [&](const OfferedLease& lease) {
        const Bytes size = lease.extent.size;
        return size >= asked ? std::pair(0, size.count) : std::pair(1, ~size.count);
      };
      if (best == nullptr || rank(one) < rank(*best)) best = &one;
    }
    return best;
  }
  friend CoreWorld<>;
  void take(SendOffer& effect) {
    offers[effect.grant.id] = effect.session;
    for (const OfferedLease& one : effect.grant.leases) {
      driver.hold(one.extent.id, one.is_private);
      held[effect.session].push_back(one.extent.id);
      lent_.insert_or_assign(one.extent.id, one);
    }
  }
  void take(AnswerGrow& effect) {
    if (effect.answer && effect.answer->id) {  // else something was reserved
      EXPECT_TRUE(offers.contains(effect.answer->id)) << "an offer comes before its answer";
    }
    EXPECT_TRUE(answers.emplace(effect.request, std::move(effect.answer)).second) << "answered twice";
  }
  void take(AnswerMap& effect) {
    EXPECT_FALSE(maps.contains(effect.request) || reserved.contains(effect.request)) << "answered twice";
    if (!effect.answer) {
      maps.emplace(effect.request, effect.answer.error());
    } else if (auto* region = std::get_if<MappedRegion>(&*effect.answer)) {
      maps.emplace(effect.request, std::move(*region));
    } else {
      reserved.emplace(effect.request, std::get<NameReserved>(*effect.answer));
    }
  }
  void take(RingDoorbell& effect) {
    ++bells[effect.session];
    rung_.insert(effect.session);
  }
  void take(SignalSession& effect) { signals.emplace_back(effect.session, effect.signal); }
  void take(SignalForeignProcess& effect) { foreign_signals.push_back(effect); }
  void take(ForgetSession& effect) { forgotten.push_back(effect.session); }
  void take(LookAtDevices&) { ++looks; }

  std::set<SessionId> rung_;
  std::map<ExtentId, OfferedLease> lent_;
};

}  // namespace gpumem::core
