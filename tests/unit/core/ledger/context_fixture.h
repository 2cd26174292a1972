#pragma once
#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

namespace gpumem::core {

inline constexpr Bytes kOneContext = mebibytes(8);
inline constexpr Bytes kTwoContexts = mebibytes(16);

/// The pool has 64 of 256 MiB. Without a figure, a context is expected to take a thirty-second of the device.
/// A pool that grows leaves 12 MiB free in any case.
inline Policy with_contexts() {
  Policy policy = small_policy();
  policy.devices[0].total = mebibytes(256);
  policy.past_broker.allowance = kTwoContexts;
  return policy;
}

struct BrokerContext : testing::Test {
  explicit BrokerContext(const Policy& policy = with_contexts()) : machine(policy) {
    leave_free(mebibytes(12));
  }

  void expect_nobody_asked() {
    machine.pass_in_steps(std::chrono::seconds(60));
    EXPECT_THAT(machine.events_of(Event::Kind::kPressure), testing::IsEmpty());
    EXPECT_THAT(machine.events_of(Event::Kind::kTerminating), testing::IsEmpty());
  }
  void expect_whole_once_others_leave() {
    machine.driver.restore(0);
    machine.pass_in_steps(Store::kLongestPause);
    EXPECT_EQ(missing(), Bytes{});
  }
  /// Other programs take all of the device but this and the pool.
  void leave_free(Bytes bytes) { machine.driver.steal(0, machine.driver.room(0) - bytes); }
  RequestId announce(SessionId session, Duration wait = {}) {
    const RequestId id = machine.request_ids.next();
    machine.broker.announce_context(id, session, {"GPU-0", wait}, machine.now);
    machine.collect();
    return id;
  }
  void done(SessionId session, ContextDone::Outcome outcome = ContextDone::Outcome::kMade) {
    machine.broker.context_done(session, {"GPU-0", outcome}, machine.now);
    machine.collect();
  }
  void observe(std::uint32_t uid, Bytes used) {
    machine.broker.begin_observation(0);
    Observation seen;
    seen.broker = mebibytes(64) - missing();
    seen.used = seen.broker + used;
    seen.processes.emplace_back().pid = peer_of(uid).pid;
    seen.processes.back().used = used;
    machine.broker.observe(seen, machine.now);
    machine.collect();
  }
  DeviceView view() const { return machine.broker.devices()[0]; }
  Bytes missing() const { return view().missing; }
  Bytes outside(const std::string& tenant) const {
    for (const TenantView& one : machine.broker.tenants())
      if (one.name == tenant) return one.outside;
    return {};
  }

  Machine machine;
};

}  // namespace gpumem::core
