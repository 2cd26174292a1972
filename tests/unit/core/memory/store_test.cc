#include "tests/unit/core/memory/store_fixture.h"

namespace gpumem::core {
namespace {

TEST_F(StoreTest, IsMissingItsWholePoolUntilItIsCreated) {
  EXPECT_EQ(store.missing(), kPool);
  EXPECT_FALSE(store.settled());
  advance();
  EXPECT_FALSE(store.settled());
  run();
  EXPECT_EQ(store.missing(), Bytes{0});
  EXPECT_EQ(store.warm(), kPool);
  EXPECT_EQ(driver.handled(0), kPool);
  EXPECT_TRUE(store.settled());
  EXPECT_EQ(store.next_deadline(), std::nullopt);
}

TEST_F(StoreTest, AssemblesExtentsThatAddUp) {
  run();
  for (std::uint64_t i = 1; i <= 6; ++i) {
    lend(RequestId{i}, mebibytes(2 * i));
    EXPECT_EQ(total(assembled[RequestId{i}]), mebibytes(2 * i));
  }
  EXPECT_EQ(store.warm(), mebibytes(22));
}

TEST_F(StoreTest, AssemblesTheWholePoolAtOnce) {
  run();
  EXPECT_EQ(total(lend(RequestId{1}, kPool)), kPool);
  EXPECT_EQ(store.warm(), Bytes{0});
  EXPECT_TRUE(store.settled());
}

TEST_F(StoreTest, AssemblesExtentsOfTheSizeThatIsPreferredAndNeverWaitsForThem) {
  Store large{0, gibibytes(1), mebibytes(2), extent_ids, job_ids};
  FakeDriver its_driver{{gibibytes(1)}};
  for (auto progress = large.advance(now); !progress.jobs.empty(); progress = large.advance(now)) {
    for (const Job& job : progress.jobs) large.finish(its_driver.run(job), now);
  }
  large.want(RequestId{1}, mebibytes(16), mebibytes(2));
  large.want(RequestId{2}, mebibytes(16));
  auto progress = large.advance(now);
  ASSERT_EQ(progress.assembled.size(), 2u);
  EXPECT_EQ(progress.assembled[0].extents.size(), 8u);
  EXPECT_EQ(progress.assembled[1].extents.size(), 2u);
  large.want(RequestId{3}, large.warm(), mebibytes(2));
  EXPECT_EQ(large.advance(now).assembled.size(), 1u) << "from whatever is there";
  EXPECT_EQ(large.warm(), Bytes{});
}

TEST_F(StoreTest, MakesOneExtentOfAnySizeAndBreaksItUpWhenItComesBack) {
  run();
  std::uint64_t number = 0;
  for (const Bytes size : {mebibytes(4), mebibytes(20), mebibytes(32), mebibytes(2), kPool}) {
    const RequestId request{++number};
    store.want(request, size, kOneExtent);
    run();
    ASSERT_EQ(assembled[request].size(), 1u) << to_string(size);
    EXPECT_EQ(assembled[request].front().size, size);
    EXPECT_EQ(store.warm() + size, kPool);
    store.take_back(LeaseId{number}, assembled[request].front());
    run();
    EXPECT_TRUE(freed.contains(LeaseId{number}));
    EXPECT_EQ(store.warm(), kPool);
    EXPECT_TRUE(store.settled());
  }
  EXPECT_EQ(driver.handled(0), kPool);
}

TEST_F(StoreTest, MakesOneExtentOfManySmallOnes) {
  run();
  std::vector<Extent> small;
  for (std::uint64_t i = 1; i <= 32; ++i) {
    store.want(RequestId{i}, mebibytes(2));
    run();
    std::ranges::copy(assembled[RequestId{i}], std::back_inserter(small));
  }
  ASSERT_EQ(store.warm(), Bytes{});
  store.put_back(small);
  store.want(RequestId{33}, mebibytes(62), kOneExtent);
  run();
  ASSERT_EQ(assembled[RequestId{33}].size(), 1u);
}

TEST_F(StoreTest, GivesOneExtentThatIsWithdrawnWhileItIsMadeToOthers) {
  run();
  store.want(RequestId{1}, mebibytes(20), kOneExtent);
  advance();
  EXPECT_TRUE(store.withdraw(RequestId{1}));
  store.want(RequestId{2}, kPool);
  run();
  EXPECT_EQ(total(assembled[RequestId{2}]), kPool);
}

TEST_F(StoreTest, GivesOneExtentThatWasPutBackToOthers) {
  run();
  store.want(RequestId{1}, mebibytes(20), kOneExtent);
  run();
  store.put_back(assembled[RequestId{1}]);
  EXPECT_EQ(total(lend(RequestId{2}, kPool)), kPool);
}

TEST_F(StoreTest, CallsOneExtentUnobtainableThatWasTakenPastTheBrokerAndFindsItInPiecesLater) {
  run();
  store.want(RequestId{1}, kPool, kOneExtent);
  driver.fails = [](const Extent& extent) { return extent.size > mebibytes(2); };
  run();
  EXPECT_FALSE(assembled.contains(RequestId{1}));
  driver.fails = nullptr;
  pass_in_steps(kLong);
  EXPECT_EQ(store.missing(), Bytes{});
  EXPECT_TRUE(assembled.contains(RequestId{1}) || unobtainable.contains(RequestId{1}));
}

// A store of 192 GiB, of which all is in the largest extents, and no stock is made yet.
class LargeStoreTest : public StoreOf {
 protected:
  static constexpr Bytes kSize = gibibytes(192);

  LargeStoreTest() : StoreOf(kSize) {
    while (!store.missing().is_zero()) store.finish(driver.run(store.advance(now).jobs.front()), now);
  }
  // Runs jobs until the wish is served; answers how many extents were created for that.
  std::uint64_t creations_until(RequestId wanted) {
    const std::uint64_t before = driver.creations();
    for (advance(); !assembled.contains(wanted) && !jobs.empty();) finish_one();
    return driver.creations() - before;
  }
};

TEST_F(LargeStoreTest, LetsAGrowthWaitForOneCreationWhateverElseIsUnderWay) {
  std::uint64_t number = 0;
  for (int round = 0; round < 5; ++round) {
    for (const Bytes size : {mebibytes(64), mebibytes(2), mebibytes(20), mebibytes(46), mebibytes(64)}) {
      const RequestId request{++number};
      store.want(request, size, size);
      EXPECT_LE(creations_until(request), 1u) << "request " << number << " of " << to_string(size);
    }
  }
}

TEST_F(LargeStoreTest, ServesARequestBeforeItProvesWhatCameBack) {
  run();
  store.want(RequestId{1}, gibibytes(1), mebibytes(128));
  run();
  std::uint64_t lease = 0;
  for (const Extent& extent : assembled[RequestId{1}]) store.take_back(LeaseId{++lease}, extent);
  advance();
  store.want(RequestId{2}, mebibytes(64));
  EXPECT_LE(creations_until(RequestId{2}), 1u);
  run();
  EXPECT_EQ(store.warm(), kSize - mebibytes(64));
}

TEST_F(LargeStoreTest, HasReadyWhatWasAskedForBefore) {
  std::uint64_t number = 0;
  for (int round = 0; round < 2; ++round) {
    std::uint64_t created = 0;
    for (int i = 0; i < 8; ++i) {
      const RequestId request{++number};
      store.want(request, mebibytes(20), kOneExtent);
      created += creations_until(request);
    }
    EXPECT_EQ(round == 1 ? created : 0u, 0u);
    run();
  }
}

TEST_F(LargeStoreTest, HurriesWhatIsBeingMadeForTheStock) {
  advance();
  const std::size_t begun = jobs.size();
  ASSERT_GT(begun, 1u);
  store.want(RequestId{1}, mebibytes(2), kOneExtent);
  advance();
  EXPECT_EQ(jobs.size(), begun) << "nothing is made for it alone";
  EXPECT_LE(creations_until(RequestId{1}), 1u);
}

TEST_F(LargeStoreTest, TellsNothingFreeThatIsAboutToBeCreated) {
  store.want(RequestId{1}, mebibytes(20), kOneExtent);
  advance();
  store.look(RequestId{2});
  advance();
  while (!looked.contains(RequestId{2})) finish_one();
  EXPECT_GT(driver.room(0), Bytes{}) << "the rest of what was broken is created later";
  EXPECT_EQ(looked[RequestId{2}], Bytes{});
}

TEST_F(StoreTest, KeepsWhatItWasToReleaseIfThatIsWithdrawn) {
  run();
  store.release(RequestId{1}, mebibytes(8));
  EXPECT_EQ(store.missing(), mebibytes(8));
  EXPECT_TRUE(store.withdraw(RequestId{1}));
  EXPECT_EQ(store.missing(), Bytes{});
  run();
  EXPECT_EQ(store.warm(), kPool);
}

TEST_F(LargeStoreTest, KeepsNothingReadyForWhoAsksAndWithdraws) {
  for (std::uint64_t number = 1; number <= 20; ++number) {
    store.want(RequestId{number}, mebibytes(20), kOneExtent);
    store.withdraw(RequestId{number});
  }
  run();
  store.want(RequestId{99}, mebibytes(20), kOneExtent);
  EXPECT_EQ(creations_until(RequestId{99}), 1u);
}

TEST_F(LargeStoreTest, HasAQuarterOfThePoolReshapedAtATimeWhoeverAsksAndWithdraws) {
  std::uint64_t number = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const RequestId request{++number};
    store.want(request, mebibytes(514 + 2 * i), kOneExtent);
    advance();
    store.withdraw(request);
  }
  EXPECT_GE(store.warm(), gibibytes(140));
  store.want(RequestId{++number}, gibibytes(2), gibibytes(2));
  EXPECT_EQ(creations_until(RequestId{number}), 0u) << "what is warm is there for others";
  store.want(RequestId{++number}, mebibytes(64), mebibytes(64));
  EXPECT_LE(creations_until(RequestId{number}), 64u);
}

TEST_F(LargeStoreTest, HoldsWhatAWishTakesWhileTheRestIsMade) {
  store.want(RequestId{1}, gibibytes(190) + mebibytes(2));
  advance();
  ASSERT_FALSE(assembled.contains(RequestId{1}));
  EXPECT_EQ(store.warm(), gibibytes(190)) << "held for it";
  store.want(RequestId{2}, gibibytes(2));
  advance();
  EXPECT_FALSE(assembled.contains(RequestId{2})) << "not by a later one";
  EXPECT_TRUE(store.withdraw(RequestId{1}));
  advance();
  EXPECT_TRUE(assembled.contains(RequestId{2})) << "it is anybody's now";
  run();
  EXPECT_EQ(store.warm(), gibibytes(190));
}

TEST_F(LargeStoreTest, GivesBackWhatAWishHeldIfTheRestCannotBeMade) {
  store.want(RequestId{1}, gibibytes(191));
  driver.fails = [](const Extent&) { return true; };
  run();
  EXPECT_TRUE(unobtainable.contains(RequestId{1}));
  EXPECT_EQ(store.warm() + store.missing(), kSize);
}

TEST_F(LargeStoreTest, GivesWhatAWithdrawnWishHadClaimedToOthers) {
  for (std::uint64_t i = 1; i <= 3; ++i) store.want(RequestId{i}, mebibytes(64));
  advance();
  ASSERT_FALSE(jobs.empty());
  for (std::uint64_t i = 1; i <= 3; ++i) EXPECT_TRUE(store.withdraw(RequestId{i}));
  run();
  EXPECT_EQ(store.warm(), kSize);
  EXPECT_TRUE(store.settled());
}

TEST_F(StoreTest, LetsALaterWishThatNeedsNoJobGoFirst) {
  run();
  lend(RequestId{1}, mebibytes(32));
  lend(RequestId{2}, mebibytes(6));
  lend(RequestId{3}, mebibytes(16));
  run();
  store.want(RequestId{4}, mebibytes(4), kOneExtent);
  store.want(RequestId{5}, mebibytes(2));
  advance();
  EXPECT_FALSE(assembled.contains(RequestId{4})) << "8 MiB are broken for it";
  EXPECT_TRUE(assembled.contains(RequestId{5}));
  run();
  EXPECT_TRUE(assembled.contains(RequestId{4}));
}

TEST_F(StoreTest, GivesAWithdrawnWishNothing) {
  run();
  lend(RequestId{1}, mebibytes(32));
  store.want(RequestId{2}, mebibytes(30));
  EXPECT_TRUE(store.withdraw(RequestId{2}));
  EXPECT_FALSE(store.withdraw(RequestId{2}));
  EXPECT_FALSE(store.withdraw(RequestId{1}));
  run();
  EXPECT_FALSE(assembled.contains(RequestId{2}));
  EXPECT_EQ(store.warm(), mebibytes(32));
}

TEST_F(StoreTest, KeepsWhatWasBrokenForAWishThatIsWithdrawnMeanwhile) {
  advance();
  finish_one();  // created, not yet tidied
  store.want(RequestId{1}, mebibytes(50));
  advance();
  EXPECT_FALSE(assembled.contains(RequestId{1}));
  EXPECT_TRUE(store.withdraw(RequestId{1}));
  run();
  EXPECT_EQ(store.warm(), kPool);
  EXPECT_EQ(driver.handled(0), kPool);
}

TEST_F(StoreTest, CallsMemoryUnobtainableThatWasTakenPastTheBrokerDuringAReshape) {
  advance();
  finish_one();
  store.want(RequestId{1}, mebibytes(62));
  advance();
  driver.fails = [](const Extent&) { return true; };
  while (!jobs.empty()) finish_one();
  EXPECT_TRUE(unobtainable.contains(RequestId{1}));
  EXPECT_FALSE(assembled.contains(RequestId{1}));
  EXPECT_EQ(store.warm() + store.missing(), kPool);
  driver.fails = nullptr;
  pass_in_steps(kLong);
  EXPECT_EQ(store.warm(), kPool);
}

// Whether the driver tells how much memory is free.
struct StoreThatLacksMemory : StoreTest, testing::WithParamInterface<bool> {
  StoreThatLacksMemory() { driver.tells_free = GetParam(); }
};

TEST_P(StoreThatLacksMemory, HasAtOnceWhatThereIsAndTheRestOnceOthersFreeIt) {
  ASSERT_EQ(driver.steal(0, mebibytes(6)), mebibytes(6));
  run();
  EXPECT_EQ(store.warm(), mebibytes(58)) << "pieces of the granularity fill what is left";
  EXPECT_EQ(store.missing(), mebibytes(6));
  EXPECT_TRUE(store.settled());
  driver.restore(0);
  pass_in_steps(kLong);
  EXPECT_EQ(store.warm(), kPool);
  EXPECT_EQ(store.missing(), Bytes{0});
  EXPECT_EQ(store.next_deadline(), std::nullopt);
}

TEST_P(StoreThatLacksMemory, PausesLongerAndLongerWhileNothingCanBeCreated) {
  driver.steal(0, kPool);
  run();
  const std::size_t first = pass_in_steps(std::chrono::seconds(1));
  const std::size_t later = pass_in_steps(std::chrono::seconds(60));
  EXPECT_GT(first, 4u);
  EXPECT_LT(first, 12u);
  EXPECT_GE(later, 29u) << "every two seconds, for ever";
  EXPECT_LE(later, 32u);
}

INSTANTIATE_TEST_SUITE_P(, StoreThatLacksMemory, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "WithFigures" : "WithoutFigures");
});

TEST(StoreOfALargeDevice, GrowsInFewLargeExtentsAndLeavesMemoryFree) {
  StoreWorld at(gibibytes(20), gibibytes(24));
  at.store.keep_free(gibibytes(1));
  at.driver.steal(0, gibibytes(18));
  at.run();
  EXPECT_EQ(at.store.warm(), gibibytes(5));
  EXPECT_EQ(at.driver.room(0), gibibytes(1));
  at.driver.steal(0, gibibytes(1));
  at.pass_in_steps(std::chrono::seconds(10));
  EXPECT_EQ(at.store.warm(), gibibytes(5)) << "it keeps what it has";
  const std::uint64_t created = at.driver.creations();
  at.driver.restore(0);
  at.pass(at.store.next_deadline().value() - at.now);
  EXPECT_EQ(at.store.warm(), gibibytes(20));
  EXPECT_LE(at.driver.creations() - created, 32u);
}

TEST_F(StoreTest, ServesAWishThoughOthersReturnMemoryAllTheTime) {
  run();
  lend(RequestId{1}, mebibytes(40));
  lend(RequestId{2}, mebibytes(4));
  std::uint64_t last = 100;
  const auto borrow_and_return = [&] {
    const RequestId id{++last};
    store.want(id, mebibytes(2));
    advance();
    if (!assembled.contains(id)) return store.withdraw(id);
    take_back(assembled[id], last);
    advance();
    return true;
  };
  borrow_and_return();
  borrow_and_return();  // from now on one of these two is always on its way back
  store.want(RequestId{3}, mebibytes(4));
  advance();
  EXPECT_FALSE(assembled.contains(RequestId{3})) << "8 MiB have to be broken for it";
  for (int i = 0; i < 50 && !assembled.contains(RequestId{3}); ++i) {
    finish_one();
    borrow_and_return();
    ASSERT_FALSE(jobs.empty());
  }
  EXPECT_TRUE(assembled.contains(RequestId{3}));
}

using StoreDeathTest = StoreTest;

TEST_F(StoreDeathTest, AbortsWhenAJobEndsTwice) {
  advance();
  const JobResult result = driver.run(jobs.pop());
  store.finish(result, now);
  EXPECT_DEATH(store.finish(result, now), "a job ends once");
}

}  // namespace
}  // namespace gpumem::core
