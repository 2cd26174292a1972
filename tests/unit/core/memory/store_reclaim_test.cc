#include "tests/unit/core/memory/store_fixture.h"

// What was lent is free only once the driver has proved it.

namespace gpumem::core {
namespace {

TEST_F(StoreTest, FreesALeaseOnceItsBytesCanBeCreatedAgain) {
  run();
  const auto lent = lend(RequestId{1}, mebibytes(8));
  let_go(lent);
  take_back(lent, 1);
  advance();
  EXPECT_TRUE(freed.empty()) << "nothing is proved yet";
  EXPECT_FALSE(store.settled());
  run();
  EXPECT_EQ(freed.size(), lent.size());
  EXPECT_TRUE(quarantined.empty());
  EXPECT_EQ(store.warm(), kPool);
}

TEST_F(StoreTest, NeverLendsAnExtentAgain) {
  run();
  const auto lent = lend(RequestId{1}, kPool);
  let_go(lent);
  take_back(lent, 1);
  run();
  for (const Extent& extent : lend(RequestId{2}, kPool)) {
    for (const Extent& old : lent) EXPECT_NE(extent.id, old.id);
  }
}

TEST_F(StoreTest, FreesTheFirstOfManyLeasesLongBeforeTheLast) {
  run();
  std::vector<Extent> lent;
  for (std::uint64_t i = 1; i <= kPool.count / mebibytes(2).count; ++i) {
    const auto one = lend(RequestId{i}, mebibytes(2));
    lent.insert(lent.end(), one.begin(), one.end());
  }
  let_go(lent);
  take_back(lent, 1);
  advance();
  while (!jobs.empty()) {
    const std::size_t before = freed.size();
    finish_one();
    EXPECT_LE(freed.size(), std::max<std::size_t>(5 * before, 8));
    if (before != 0) continue;
    EXPECT_TRUE(assembled.contains(want(mebibytes(2)))) << "of what is proved free";
  }
  EXPECT_EQ(freed.size(), lent.size());
}

class StoreOfManyLeases : public StoreTest {
 protected:
  /// Lends the whole pool in extents of 2 MiB.
  std::vector<Extent> lend_all() {
    std::vector<Extent> lent;
    for (run(); store.warm() != Bytes{};) lent.push_back(lend(RequestId{++last_lent_}, mebibytes(2)).front());
    return lent;
  }
  /// Takes them back, used by sessions in turns. Answers how many extents are created to prove them free.
  std::size_t created_to_prove(const std::vector<Extent>& lent, std::uint64_t sessions) {
    std::uint64_t id = 0;
    for (const Extent& extent : lent) {
      store.take_back(LeaseId{last_lent_ - id}, extent, false, SessionId{1 + id % sessions});
      ++id;
    }
    freed.clear();
    advance();
    std::size_t created = 0;
    for (; freed.size() + quarantined.size() < lent.size(); finish_one())
      jobs.for_each([&](const Job& job) {
        if (counted_.insert(job.id).second)
          for (const Job::Step& step : job.steps) created += step.create.size();
      });
    return created;
  }

 private:
  std::uint64_t last_lent_ = 0;
  std::set<JobId> counted_;
};

// A driver call for each would let the next wait.
TEST_F(StoreOfManyLeases, ProvesWhatOneSessionAloneHasUsedByFewLargeExtents) {
  auto lent = lend_all();
  ASSERT_EQ(lent.size(), 32U);
  let_go(lent);
  EXPECT_EQ(created_to_prove(lent, 1), 2U + 1 + 3 + 2) << "the stock; then of 32, 8 and 2 MiB";
  EXPECT_EQ(freed.size(), 32U);
  run();
  EXPECT_EQ(store.warm(), kPool);
  lent = lend_all();
  let_go(lent);
  EXPECT_EQ(created_to_prove(lent, 2), 32U) << "one may keep what another let go of";
}

TEST_F(StoreOfManyLeases, FreesAllButOneOfASessionIfOneIsHeldOnTo) {
  auto lent = lend_all();
  const Extent kept = lent[20];
  std::erase(lent, kept);
  let_go(lent);
  lent.insert(lent.begin() + 20, kept);
  created_to_prove(lent, 1);
  EXPECT_EQ(freed.size(), 31U) << "each by itself, at once: no memory is loose, as a proof of other leases";
  EXPECT_EQ(quarantined.size(), 1U);
  driver.let_go(kept.id);
  pass_in_steps(kLong);
  EXPECT_EQ(freed.size(), 32U);
  EXPECT_EQ(store.warm(), kPool);
}

TEST_F(StoreTest, QuarantinesALeaseThatIsStillInUseAndFreesItLater) {
  run();
  const auto lent = lend(RequestId{1}, mebibytes(2));
  take_back(lent, 1);
  run();
  EXPECT_EQ(quarantined, std::set{LeaseId{1}});
  EXPECT_EQ(store.missing(), Bytes{0}) << "it is somebody's charge";
  EXPECT_EQ(pass_in_steps(std::chrono::seconds(1)) > 2, true);
  EXPECT_TRUE(freed.empty());
  let_go(lent);
  pass_in_steps(kLong);
  EXPECT_EQ(freed, std::set{LeaseId{1}});
  EXPECT_EQ(store.warm(), kPool);
  EXPECT_EQ(store.next_deadline(), std::nullopt);
}

TEST_F(StoreTest, QuarantinesOnlyTheLeaseThatIsHeldOnTo) {
  run();
  const auto hostile = lend(RequestId{1}, mebibytes(2));
  const auto honest = lend(RequestId{2}, mebibytes(2));
  let_go(honest);
  take_back(hostile, 1);
  take_back(honest, 2);
  run();
  EXPECT_EQ(quarantined, std::set{LeaseId{1}});
  EXPECT_EQ(freed, std::set{LeaseId{2}});
}

TEST_F(StoreTest, ProvesFirstWhatAProcessThatIsGoneHasKnown) {
  run();
  const auto hostile = lend(RequestId{1}, mebibytes(2));
  const auto known = lend(RequestId{2}, mebibytes(2));
  take_back(hostile, 1);
  take_back(known, 2);
  run();
  ASSERT_EQ(quarantined.size(), 2u);
  let_go(known);
  store.retry_now(LeaseId{2}, now);
  run();
  EXPECT_EQ(freed, std::set{LeaseId{2}}) << "the memory that it let go of is no proof for another's lease";
}

TEST_F(StoreTest, RetriesQuarantinedLeasesThoughOtherJobsEndAllTheTime) {
  run();
  const auto held = lend(RequestId{1}, mebibytes(2));
  take_back(held, 1);
  run();
  let_go(held);
  for (std::uint64_t i = 2; i < 100 && freed.count(LeaseId{1}) == 0; ++i) {
    const auto churned = lend(RequestId{i}, mebibytes(2));
    let_go(churned);
    take_back(churned, i);
    pass(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(freed.contains(LeaseId{1}));
}

TEST_F(StoreTest, KeepsALeaseChargedThatCannotBeProvedFreeForMemoryTakenPastTheBroker) {
  run();
  const auto lent = lend(RequestId{1}, mebibytes(8));
  let_go(lent);
  take_back(lent, 1);
  driver.fails = [](const Extent&) { return true; };
  run();
  EXPECT_EQ(quarantined.size(), lent.size());
  EXPECT_EQ(store.missing(), Bytes{0});
  driver.fails = nullptr;
  pass_in_steps(kLong);
  EXPECT_EQ(freed.size(), lent.size());
}

TEST_F(StoreTest, TriesProofsAgainAtOnceThoughMissingMemoryIsLookedForSeldom) {
  driver.steal(0, mebibytes(32));
  run();
  pass_in_steps(std::chrono::seconds(60));
  const auto lent = lend(RequestId{1}, mebibytes(8));
  take_back(lent, 1);
  run();
  let_go(lent);
  pass_in_steps(std::chrono::milliseconds(100));
  EXPECT_EQ(freed.size(), lent.size());
  pass_in_steps(std::chrono::seconds(3));
  EXPECT_EQ(store.missing(), mebibytes(32));
}

TEST_F(StoreTest, PausesNoLongerBetweenProofsHoweverLongMemoryIsHeld) {
  run();
  const auto held = lend(RequestId{1}, mebibytes(2));
  take_back(held, 1);
  pass_in_steps(std::chrono::minutes(10));
  const auto late = lend(RequestId{2}, mebibytes(2));
  take_back(late, 2);
  run();
  let_go(late);
  pass_in_steps(std::chrono::milliseconds(100));
  EXPECT_EQ(freed.size(), 1u) << "proofs of what has just come back begin with short pauses";
  pass_in_steps(std::chrono::minutes(10));
  let_go(held);
  pass_in_steps(kLong);
  EXPECT_EQ(freed.size(), 2u);
}

TEST_F(StoreTest, TidiesOnlyWhenNothingIsUnderWay) {
  run();
  const auto lent = lend(RequestId{1}, mebibytes(8));
  let_go(lent);
  take_back(lent, 1);
  advance();
  ASSERT_EQ(jobs.size(), 1u);
  store.want(RequestId{2}, mebibytes(6));
  store.want(RequestId{3}, mebibytes(2));
  advance();
  ASSERT_TRUE(assembled.contains(RequestId{3})) << "of the stock of small ones, which is used up now";
  EXPECT_EQ(jobs.size(), 1u);
  finish_one();
  EXPECT_FALSE(jobs.empty()) << "it is made up for now";
}

TEST(StoreOfManyPieces, TriesFewProofsAtOnceAndPausesBetween) {
  StoreWorld world(gibibytes(2));
  world.run();
  for (std::uint64_t i = 1; i <= 1024; ++i) world.take_back(world.lend(RequestId{i}, mebibytes(2)), i);
  world.run();
  ASSERT_EQ(world.quarantined.size(), 1024u);
  for (int round = 0; round < 10; ++round) {
    world.now = world.store.next_deadline().value();
    std::size_t tried = 0;
    for (world.advance(); !world.jobs.empty(); world.advance()) {
      const Job job = world.jobs.pop();
      tried += job.steps.size();
      world.store.finish(world.driver.run(job), world.now);
    }
    EXPECT_GT(tried, 0u) << "in round " << round;
    EXPECT_LE(tried, 256u) << "in round " << round;
  }
}

TEST(StoreOfManyPieces, TriesNoMoreThanSomeAtOnceAndPausesBetween) {
  IdSource<ExtentId> extents;
  IdSource<JobId> ids;
  Store store{0, gibibytes(2), mebibytes(2), extents, ids};
  FakeDriver driver{{gibibytes(2)}};
  driver.steal(0, gibibytes(2));
  TimePoint now{};
  for (int round = 0; round < 100; ++round) {
    std::size_t tried = 0;
    for (auto progress = store.advance(now); !progress.jobs.empty(); progress = store.advance(now)) {
      ASSERT_EQ(progress.jobs.size(), 1u);
      tried += progress.jobs[0].steps.size();
      ASSERT_LE(tried, 256u) << "in round " << round;
      store.finish(driver.run(progress.jobs[0]), now);
    }
    now = std::max(now, store.next_deadline().value_or(now));
  }
}

}  // namespace
}  // namespace gpumem::core
