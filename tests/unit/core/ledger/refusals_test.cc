// Clients that a bound turns away are counted, by the bound.
#include "daemon/core/words/refusals.h"

#include "tests/unit/core/machine.h"

namespace gpumem::core {
namespace {

std::uint64_t count_of(Bound bound) { return refusals()[static_cast<std::size_t>(bound)]; }

/// By how much the bound's count rises while `refused` is done, and whether no other's does.
template <class Refused>
std::uint64_t rise(Bound bound, Refused&& refused) {
  std::array<std::uint64_t, kBounds> before{};
  for (std::size_t i = 0; i < kBounds; ++i) before[i] = refusals()[i];
  refused();
  for (std::size_t i = 0; i < kBounds; ++i) {
    if (i == static_cast<std::size_t>(bound)) continue;
    EXPECT_EQ(refusals()[i], before[i]) << kBoundNames[i];
  }
  return count_of(bound) - before[static_cast<std::size_t>(bound)];
}

Policy tight_policy() {
  Policy policy = small_policy();
  policy.max_sessions = 2;
  policy.max_sessions_per_tenant = 1;
  policy.max_slices_per_session = 1;
  policy.max_requests_per_session = 1;
  return policy;
}

TEST(Refusals, OfSessionsAreCountedForTheTenantAndForAll) {
  Machine machine(tight_policy());
  machine.connect(1);
  const auto refuse = [&](std::uint32_t uid) {
    EXPECT_FALSE(machine.broker.open_session(peer_of(uid), "more", machine.now));
  };
  EXPECT_EQ(rise(Bound::kSessions, [&] { refuse(1); }), 1u);
  machine.connect(2);
  EXPECT_EQ(rise(Bound::kSessions, [&] { refuse(2); }), 1u);
}

TEST(Refusals, OfSlicesAreCounted) {
  Machine machine(tight_policy());
  const SessionId session = machine.connect(1);
  machine.slice(session);
  EXPECT_EQ(rise(Bound::kSlices,
                 [&] {
                   EXPECT_FALSE(machine.broker.open_slice(session, {"GPU-0", {}, "more"}));
                 }),
            1u);
}

TEST(Refusals, OfRequestsAreCounted) {
  Machine machine(tight_policy());
  const SessionId ann = machine.connect(1), bob = machine.connect(2);
  machine.get(bob, machine.slice(bob), mebibytes(48));
  const SliceId slice = machine.slice(ann);
  machine.grow(ann, slice, mebibytes(32), std::chrono::seconds(60));
  EXPECT_EQ(
      rise(Bound::kRequests, [&] { machine.grow(ann, slice, mebibytes(32), std::chrono::seconds(60)); }), 1u);
}

TEST(Refusals, OfSomebodyWhoMayNotAreNone) {
  Machine machine(tight_policy());
  EXPECT_EQ(rise(Bound::kSessions,
                 [&] { EXPECT_FALSE(machine.broker.open_session(peer_of(99), "stranger", machine.now)); }),
            0u);
}

}  // namespace
}  // namespace gpumem::core
