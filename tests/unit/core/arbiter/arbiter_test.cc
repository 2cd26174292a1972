#include "daemon/core/arbiter/arbiter.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

namespace gpumem::core {
namespace {

using Ids = std::vector<std::uint64_t>;

// A pool of 100: 30 are ann's for sure; bob and cid have no guarantee, cid a limit of 40.
class ArbiterTest : public testing::Test {
 protected:
  std::uint64_t ask(TenantId tenant, std::uint64_t bytes, std::uint64_t session = 1, int deadline = 100) {
    const std::uint64_t id = ++last_;
    arbiter.add({.id = RequestId{id},
                 .session = SessionId{session},
                 .tenant = tenant,
                 .parts = {{SliceId{session}, 0, {bytes}, {bytes}}},
                 .asked = {},
                 .wait = {},
                 .deadline = at(deadline)});
    return id;
  }
  Ids admitted() {
    Ids ids;
    for (const Granted& granted : arbiter.admit()) ids.push_back(granted.request.id.value);
    return ids;
  }
  static TimePoint at(int seconds) { return TimePoint(std::chrono::seconds(seconds)); }

  Ledger ledger{{{100}, {100}}};
  TenantId ann = ledger.add_tenant(Quotas{{{30}, {100}}, {}});
  TenantId bob = ledger.add_tenant(Quotas{{{0}, {100}}, {}});
  TenantId cid = ledger.add_tenant(Quotas{{{0}, {40}}, {}});
  Arbiter arbiter{ledger, {{1}, {1}}, std::chrono::seconds(30)};

 private:
  std::uint64_t last_ = 0;
};

TEST_F(ArbiterTest, LetsARequestWithinItsGuaranteeOvertakeBursts) {
  ledger.reserve(bob, 0, {70});
  ask(cid, 10);
  const auto guaranteed = ask(ann, 30);
  EXPECT_EQ(admitted(), Ids{guaranteed});
}

TEST_F(ArbiterTest, LetsNoRequestThatIsOnlyPartlyGuaranteedOvertake) {
  ledger.reserve(bob, 0, {60});
  ask(cid, 20);
  const auto partly = ask(ann, 31);
  EXPECT_EQ(admitted(), Ids{});
  arbiter.remove_all_of(SessionId{1});
  EXPECT_EQ(arbiter.waiting(0), 0u);
  EXPECT_EQ(ask(ann, 31), partly + 1);
  EXPECT_EQ(admitted(), Ids{partly + 1});
}

// The reclaimer plans anew when the revision is another: that takes time by the number of sessions.
TEST_F(ArbiterTest, HasTheSameRevisionAfterARequestThatCameAndWentAlone) {
  ledger.reserve(bob, 0, {70});
  ask(ann, 40);
  EXPECT_EQ(admitted(), Ids{});
  const auto before = arbiter.revision(0);
  std::set<std::uint64_t> with;
  for (int i = 0; i < 3; ++i) {
    const RequestId denied{ask(cid, 10)};
    EXPECT_EQ(admitted(), Ids{});
    with.insert(arbiter.revision(0));
    arbiter.remove(denied);
    EXPECT_EQ(arbiter.revision(0), before);
  }
  EXPECT_EQ(with.size(), 3u) << "no two states have one revision";
  EXPECT_FALSE(with.contains(before));
}

TEST_F(ArbiterTest, HasAnotherRevisionAfterARequestThatWentBehindAnother) {
  const auto before = arbiter.revision(0);
  const RequestId first{ask(cid, 60)};
  ask(bob, 110, 2);
  arbiter.remove(first);
  EXPECT_NE(arbiter.revision(0), before);
}

TEST_F(ArbiterTest, HoldsNobodyUpForARequestThatOnlyItsOwnLimitHoldsBack) {
  ledger.reserve(cid, 0, {40});
  ask(cid, 10);
  const auto next = ask(bob, 30);
  EXPECT_EQ(admitted(), Ids{next});
}

TEST_F(ArbiterTest, HoldsNobodyUpForARequestThatTheGuaranteesOfOthersNeverLeaveRoomFor) {
  ask(bob, 71);
  const auto next = ask(cid, 10);
  EXPECT_EQ(admitted(), Ids{next});
}

TEST_F(ArbiterTest, LetsTheNextGoAtOnceWhenAnOvertakingGrantBringsTheFirstToItsLimit) {
  ledger.set_quotas(ann, {{{30}, {50}}, {}});
  ledger.reserve(bob, 0, {60});
  ask(ann, 45);
  const auto burst = ask(cid, 10);
  const auto guaranteed = ask(ann, 20);
  EXPECT_EQ(admitted(), (Ids{guaranteed, burst}));
}

TEST_F(ArbiterTest, KeepsItsDevicesApart) {
  ledger.reserve(cid, 0, {40});
  ask(bob, 60);
  EXPECT_EQ(admitted(), Ids{});
  EXPECT_EQ(arbiter.waiting(0), 1u);
  EXPECT_EQ(arbiter.waiting(1), 0u);
}

TEST_F(ArbiterTest, RemovesByRequestBySessionAndByDeadline) {
  const auto one = ask(bob, 60, 1, 5);
  ask(bob, 60, 2, 3);
  ask(cid, 60, 2, 9);
  ask(cid, 60, 3, 3);
  EXPECT_EQ(arbiter.next_deadline(), at(3));
  EXPECT_TRUE(arbiter.remove_expired(at(2), 9).empty());
  EXPECT_EQ(arbiter.remove_expired(at(3), 1).size(), 1u);
  EXPECT_EQ(arbiter.remove_expired(at(3), 9).size(), 1u);
  EXPECT_EQ(arbiter.remove(RequestId{one})->parts[0].bytes, Bytes{60});
  EXPECT_FALSE(arbiter.remove(RequestId{one}));
  EXPECT_FALSE(arbiter.remove(RequestId{99}));
  EXPECT_EQ(arbiter.remove_all_of(SessionId{2}).size(), 1u);
  EXPECT_EQ(arbiter.next_deadline(), std::nullopt);
}

TEST_F(ArbiterTest, CountsWhoWaits) {
  ledger.reserve(bob, 0, {70});
  ask(bob, 10, 1);
  ask(cid, 20, 2);
  ask(cid, 30, 2);
  EXPECT_EQ(arbiter.waiting(0, cid), 2u);
  EXPECT_EQ(arbiter.waiting_of(SessionId{2}), 2u);
  EXPECT_EQ(arbiter.waiting_bytes(SliceId{2}), Bytes{50});
  EXPECT_EQ(arbiter.waiting_before(RequestId{3}, 0), 2u);
  arbiter.remove(RequestId{2});
  EXPECT_EQ(arbiter.waiting_before(RequestId{3}, 0), 1u);
  EXPECT_EQ(arbiter.waiting_before(RequestId{2}, 0), 1u) << "the request itself need not wait";
  EXPECT_EQ(arbiter.waiting_before(RequestId{3}, 1), 0u) << "on another device";
}

}  // namespace
}  // namespace gpumem::core
