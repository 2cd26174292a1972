// Statistics add up, and the snapshot names every block: both held against a naive count.
#include <algorithm>
#include <map>
#include <random>

#include "tests/unit/allocator/engine_fixture.h"

namespace gpumem::allocator::test {
namespace {

struct Figures : EngineTest {};

/// Random use, counted by hand.
struct Naive {
  std::map<Address, Bytes> blocks;
  Bytes in_use;
  std::uint64_t allocations = 0;
};

struct CountedFigures : Figures {
  void take(Bytes bytes) {
    const Address at = allocate(bytes);
    naive_.blocks.emplace(at, bytes);
    naive_.in_use += bytes;
    ++naive_.allocations;
  }
  void give(std::map<Address, Bytes>::iterator which) {
    free(which->first, which->second);
    naive_.in_use -= which->second;
    naive_.blocks.erase(which);
  }
  void compare() {
    const AllocatorStatistics found = statistics();
    EXPECT_EQ(found.in_use, naive_.in_use);
    EXPECT_EQ(found.allocations, naive_.allocations);
    EXPECT_EQ(found.committed, backing_.committed());
    EXPECT_EQ(found.peak_committed, backing_.most_committed());
    EXPECT_EQ(found.reserved, backing_.properties().addresses);
    EXPECT_GE(found.placed, found.in_use);
    EXPECT_LE(found.placed + found.cached + found.returnable, found.committed);
    EXPECT_GE(found.peak_in_use, found.placed);
    EXPECT_LE(found.cache_hits, found.allocations);
    const double rest =
        static_cast<double>((found.committed - found.placed - found.cached - found.returnable).count);
    const double whole = static_cast<double>(std::max<std::uint64_t>(found.committed.count, 1));
    EXPECT_NEAR(found.fragmentation, rest / whole, 1e-9);
    SizeClassStatistics sum{};
    for (const auto& one : found.classes) {
      sum.in_use += one.in_use;
      sum.allocations += one.allocations;
      sum.cache_hits += one.cache_hits;
      EXPECT_LE(one.cache_hits, one.allocations);
    }
    EXPECT_EQ(sum.in_use, naive_.blocks.size());
    EXPECT_EQ(sum.allocations, naive_.allocations);
    EXPECT_EQ(sum.cache_hits, found.cache_hits);
    EXPECT_EQ(found.growths, backing_.calls(FakeBacking::Call::kObtain));
  }
  Naive naive_;
};

TEST_F(CountedFigures, AddUpAtEveryMomentOfRandomUse) {
  std::mt19937_64 random(20'261'121);
  for (int i = 0; i < 4000 && !HasFailure(); ++i) {
    if (naive_.blocks.empty() || random() % 100 < 52) {
      const auto scale = 4 + random() % 20;
      take({random() % (1ULL << scale) + 1});
    } else {
      give(std::next(naive_.blocks.begin(), static_cast<std::ptrdiff_t>(random() % naive_.blocks.size())));
    }
    if (i % 50 == 0) compare();
  }
  compare();
  while (!naive_.blocks.empty()) give(naive_.blocks.begin());
  compare();
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_EQ(statistics().committed, Bytes{});
  EXPECT_EQ(statistics().fragmentation, 0);
}

TEST_F(CountedFigures, CountWhatManyThreadsDid) {
  constexpr std::uint64_t kThreads = 6, kRounds = 3000;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (std::uint64_t i = 0; i < kRounds; ++i) {
        const Bytes bytes{1 + (i + t) % 8 * 5000};
        const StreamHandle on = t % 2 == 0 ? nullptr : stream(t);
        free(allocate(bytes, on), bytes, on);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(statistics().allocations, kThreads * kRounds);
  EXPECT_EQ(statistics().in_use, Bytes{});
  EXPECT_GT(statistics().cache_hits, 0U);
}

TEST_F(Figures, PeaksAreTheHighestSoFar) {
  const auto all = allocate_many(10, mebibytes(20));
  free_all(all, mebibytes(20));
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  const auto found = statistics();
  EXPECT_EQ(found.peak_in_use, mebibytes(200));
  EXPECT_GE(found.peak_committed, mebibytes(200));
  EXPECT_EQ(found.in_use, Bytes{});
  EXPECT_GT(found.given_back, 0U);
}

TEST_F(Figures, ClassesThatWereNeverUsedAreNotListed) {
  EXPECT_TRUE(statistics().classes.empty());
  const Address at = allocate({300});
  const auto classes = statistics().classes;
  ASSERT_FALSE(classes.empty());
  EXPECT_EQ(std::ranges::count_if(classes, [](const auto& one) { return one.allocations > 0; }), 1);
  EXPECT_GE(classes[0].size, Bytes{300});
  free(at, {300});
}

TEST_F(Figures, UseIsPublishedForPeople) {
  const Address at = allocate(mebibytes(100));
  pass(milliseconds(1200));
  EXPECT_GE(backing_.published(), mebibytes(100));
  free(at, mebibytes(100));
  pass(milliseconds(1200));
  EXPECT_LT(backing_.published(), mebibytes(100));
}

TEST_F(Figures, SnapshotNamesEveryBlockByAddressWithSizeStreamAndTag) {
  const auto weights = engine_->tag("weights");
  ASSERT_TRUE(succeeded(weights));
  const Address a = allocate({300}, kOne, {.tag = *weights});
  const Address b = allocate({300}, kTwo);
  const Address c = allocate(mebibytes(30), kThree, {.tag = *weights});
  const Address d = allocate({123'457}, nullptr);
  const auto all = snapshot();
  ASSERT_EQ(all.size(), 4U);
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, &BlockInfo::address));
  const auto block = [&](Address at) { return *std::ranges::find(all, at, &BlockInfo::address); };
  EXPECT_EQ(block(a).bytes, Bytes{300});
  EXPECT_EQ(block(a).stream, kOne);
  EXPECT_EQ(block(a).tag, "weights");
  EXPECT_EQ(block(b).stream, kTwo);
  EXPECT_EQ(block(b).tag, "");
  EXPECT_EQ(block(c).bytes, mebibytes(30));
  EXPECT_EQ(block(c).tag, "weights");
  EXPECT_EQ(block(d).bytes, Bytes{123'457});
  EXPECT_EQ(block(d).stream, nullptr);
  for (const BlockInfo& one : all) {
    EXPECT_GE(one.placed, one.bytes);
    EXPECT_LT(one.age, std::chrono::minutes(1));
  }
}

TEST_F(Figures, SnapshotNamesBlocksThatComeFromAThreadsCacheAndNotThoseInOne) {
  const Address first = allocate({300});
  free(first, {300});
  EXPECT_TRUE(snapshot().empty());
  EXPECT_EQ(allocate({299}), first);
  ASSERT_EQ(snapshot().size(), 1U);
  EXPECT_EQ(snapshot()[0].bytes, Bytes{299});
}

TEST_F(Figures, TagOfAReusedBlockIsItsNewOne) {
  const auto one = engine_->tag("one"), two = engine_->tag("two");
  ASSERT_TRUE(one && two);
  for (const Bytes bytes : {Bytes{300}, Bytes{100'000}, mebibytes(5)}) {
    free(allocate(bytes, kOne, {.tag = *one}), bytes);
    const Address at = allocate(bytes, kOne, {.tag = *two});
    EXPECT_EQ(snapshot().at(0).tag, "two");
    free(at, bytes);
    const Address plain = allocate(bytes);
    EXPECT_EQ(snapshot().at(0).tag, "");
    free(plain, bytes);
  }
}

TEST_F(Figures, SameNameHasTheSameTagAndThereAre255) {
  const auto first = engine_->tag("name 0");
  ASSERT_TRUE(succeeded(first));
  EXPECT_NE(first->number, 0);
  for (int i = 1; i < 255; ++i) EXPECT_TRUE(succeeded(engine_->tag("name " + std::to_string(i)))) << i;
  EXPECT_TRUE(failed_with(engine_->tag("one too many"), Code::kResourceExhausted));
  const auto again = engine_->tag("name 0");
  ASSERT_TRUE(succeeded(again));
  EXPECT_EQ(again->number, first->number);
}

TEST_F(Figures, BadTagsAreRefused) {
  EXPECT_TRUE(failed_with(engine_->tag(std::string(64, 'x')), Code::kInvalidArgument));
  EXPECT_TRUE(succeeded(engine_->tag(std::string(63, 'x'))));
  EXPECT_TRUE(failed_with(engine_->tag(""), Code::kInvalidArgument));
  EXPECT_TRUE(failed_with(engine_->allocate({100}, kOne, {.tag = {200}}), Code::kInvalidArgument))
      << "nobody was given that tag";
}

}  // namespace
}  // namespace gpumem::allocator::test
