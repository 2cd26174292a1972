#pragma once
#include <gmock/gmock.h>

#include <cstdio>
#include <optional>
#include <set>

#include "tests/promises/world.h"
#include "tests/unit/core/policies.h"

namespace gpumem::core::promises {

/// One device of 8 GiB, and as much besides, that lends idle guarantees and ends sessions: 2 s to give back,
/// 5 s between SIGTERM and SIGKILL.
inline Policy ending_policy(std::vector<TenantRule> tenants) {
  Policy policy;
  policy.devices = {core::device("GPU-0", gibibytes(8))};
  policy.devices[0].total = gibibytes(16);
  policy.devices[0].reclaim = {.lend_guarantees = true,
                               .deadline = std::chrono::seconds(2),
                               .escalation = Escalation::kEndSession,
                               .grace = std::chrono::seconds(5)};
  policy.tenants = std::move(tenants);
  return policy;
}

inline Quota quota(Bytes guarantee, Bytes limit) { return {guarantee, limit}; }

/// A world that must be without fault at the end of each test.
class Situation : public testing::Test {
 protected:
  static constexpr Duration kDeadline = std::chrono::seconds(2);
  static constexpr Duration kGrace = std::chrono::seconds(5);
  /// The longest that a request within its guarantee may wait.
  static constexpr Duration kPromised = kDeadline + kGrace + ClaimClock::kSlack;

  void begin(const Policy& policy) {
    world.emplace(policy, 1);
    world->set_context({});  // round figures
  }
  Process& come(std::uint32_t uid, Traits traits = {}) {
    Process& process = world->spawn(uid, traits);
    EXPECT_TRUE(world->connect(process));
    return process;
  }
  /// Grows at once.
  Process& come_with(Bytes bytes, std::uint32_t uid, Traits traits = {}) {
    Process& process = come(uid, traits);
    const RequestId request = world->grow(process, bytes);
    world->pass(std::chrono::milliseconds(200));
    EXPECT_TRUE(world->is_granted(request));
    return process;
  }
  std::set<std::int64_t> signalled() const {
    std::set<std::int64_t> pids;
    for (const auto& [pid, signal] : world->signals()) pids.insert(pid);
    return pids;
  }
  void TearDown() override {
    if (world->fault().empty()) world->finish();
    EXPECT_EQ(world->fault(), "");
    if (HasFailure()) std::printf("%s", world->history().c_str());
  }

  std::optional<World> world;
};

}  // namespace gpumem::core::promises
