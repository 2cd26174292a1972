#include <gmock/gmock.h>

#include "tests/unit/core/arbiter/arbiter_fixture.h"

// As many requests wait as may. An event must not visit all of them. The tests read no clock: if each event
// visited every waiting request, they would pass the time limit.

namespace gpumem::core {
namespace {

constexpr int kWaiting = 16'384;
constexpr int kEvents = 200'000;

class ArbiterBounds : public ArbiterWorld {
 protected:
  // Events of somebody who is never held back, next to everything that waits.
  void live_through_events(TenantId busy) {
    for (int i = 0; i < kEvents; ++i) {
      ask(busy, 1, 1);
      ASSERT_EQ(admitted().size(), 1u);
      give_back(busy, 1, 1);
    }
  }

  TenantId holder = tenant(burst());
};

TEST_F(ArbiterBounds, JointRequestsThatCouldBeClaimsAreNotWalkedThrough) {
  const TenantId busy = tenant(promise(2));
  const TenantId many = ledger.add_tenant(Quotas{burst(), promise(40)});
  ledger.reserve(holder, 0, {98});
  for (int i = 0; i < kWaiting; ++i) ask_both(many, 10);
  live_through_events(busy);
  EXPECT_EQ(arbiter.waiting(0), static_cast<std::size_t>(kWaiting));
  for (int i = 0; i < kEvents; ++i) {
    give_back(holder, 1);
    EXPECT_THAT(admitted(), testing::IsEmpty());
    ledger.reserve(holder, 0, {1});
  }
}

TEST_F(ArbiterBounds, ClaimsForWhichThereIsNoMemoryAreNotWalkedThrough) {
  constexpr int kTenants = kWaiting;
  Ledger wide{{{kTenants * 4}, {kTenants * 4}}};
  Arbiter among{wide, {{1}, {1}}, kAging};
  for (DeviceIndex device = 0; device < 2; ++device) wide.set_lending(device, true);
  const Quota quota{{2}, {kTenants * 4}};
  const TenantId holder_of_all = wide.add_tenant(Quotas{{{}, {kTenants * 4}}, {{}, {kTenants * 4}}});
  for (DeviceIndex device = 0; device < 2; ++device) wide.reserve(holder_of_all, device, {kTenants * 4});
  for (std::uint64_t i = 1; i <= kTenants; ++i) {
    const TenantId one = wide.add_tenant(Quotas{quota, quota});
    among.add({.id = RequestId{i},
               .session = SessionId{i},
               .tenant = one,
               .parts = {{SliceId{2 * i}, 0, {2}, {2}}, {SliceId{2 * i + 1}, 1, {2}, {2}}},
               .asked = now,
               .deadline = now + std::chrono::hours(1)});
  }
  for (int i = 0; i < kEvents; ++i) {
    const auto device = static_cast<DeviceIndex>(i % 2);
    wide.release(holder_of_all, device, {1}, Charge::kOffered);
    ASSERT_THAT(among.admit(), testing::IsEmpty());
    wide.release(holder_of_all, 1 - device, {2}, Charge::kOffered);
    ASSERT_THAT(among.admit(), testing::IsEmpty()) << "one device has 1, the other 2";
    wide.reserve(holder_of_all, device, {1});
    wide.reserve(holder_of_all, 1 - device, {2});
  }
  EXPECT_EQ(among.claims(0).size(), static_cast<std::size_t>(kTenants));
}

TEST_F(ArbiterBounds, OneThatWaitsLongDoesNotKeepThoseThatHaveGone) {
  ledger.reserve(holder, 0, {100});
  const auto patient = ask(holder, 1);
  for (int i = 0; i < kEvents; ++i) {
    const auto gone = ask(holder, 1);
    ASSERT_TRUE(arbiter.remove(RequestId{gone}));
    ASSERT_EQ(arbiter.next_deadline(), now + kAging);
  }
  pass(kAging);
  EXPECT_EQ(arbiter.next_deadline(), now - kAging + std::chrono::hours(1)) << "nobody else is to age";
  EXPECT_EQ(arbiter.waiting_before(RequestId{patient + kEvents + 1}, 0), 1u);
}

}  // namespace
}  // namespace gpumem::core
