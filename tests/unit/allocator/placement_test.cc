// Where blocks lie: extents are moved to where a block needs them, and blocks grow in place.
#include <algorithm>
#include <cstring>
#include <random>
#include <set>

#include "tests/unit/allocator/engine_fixture.h"

namespace gpumem::allocator::test {
namespace {

struct Placing : EngineTest {
  explicit Placing(Bytes limit = mebibytes(64), bool host_memory = false)
      : EngineTest({.limit = limit, .host_memory = host_memory}) {}
  /// From now on memory comes in the smallest extents.
  void grant_least() {
    backing_.on_grant([](Bytes least, Bytes) { return least; });
  }
  /// Fills the limit with blocks of one extent each, and frees every second of them.
  std::vector<Address> fill_with_holes() {
    grant_least();
    std::vector<Address> kept;
    const auto all = allocate_many(32, mebibytes(2));
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i % 2 == 0) {
        kept.push_back(all[i]);
      } else {
        free(all[i], mebibytes(2));
      }
    }
    return kept;
  }
};

TEST_F(Placing, BlocksLieAtMultiplesOf256) {
  for (const std::uint64_t bytes : {1u, 255u, 256u, 257u, 5000u, 70'000u, 1'000'001u, 3u << 20}) {
    EXPECT_EQ(allocate({bytes}) % 256, 0U) << bytes;
  }
}

TEST_F(Placing, LargeBlockIsMadeOfScatteredExtentsWithoutGrowing) {
  const auto kept = fill_with_holes();
  const Bytes before = backing_.committed();
  allocate(mebibytes(32));
  EXPECT_EQ(backing_.committed(), before);
  EXPECT_GT(statistics().moved_extents, 0U);
  for (const Address at : kept) free(at, mebibytes(2));
}

TEST_F(Placing, ExtentsAreMovedOnceTheWorkOnThemIsOver) {
  fill_with_holes();
  const auto used = streams_.give(kOne);  // on what is still there, for all the allocator knows
  const auto unused = streams_.give(kTwo);
  allocate(mebibytes(32));
  EXPECT_TRUE(streams_.is_known_reached({used.stream, used.number - 1}) ||
              streams_.calls(FakeStreams::Call::kWait) > 0);
  EXPECT_FALSE(streams_.is_known_reached(unused)) << "another stream's work holds nobody up";
}

TEST_F(Placing, ExtentsThatTheStreamStillUsesAreMovedForItWithoutGrowingOrWaiting) {
  grant_least();
  const auto all = allocate_many(32, mebibytes(2));
  const auto used = streams_.give(kOne);
  for (std::size_t i = 1; i < all.size(); i += 2) free(all[i], mebibytes(2));
  const Bytes before = backing_.committed();
  const Address at = allocate(mebibytes(32));
  EXPECT_EQ(backing_.committed(), before);
  EXPECT_EQ(streams_.calls(FakeStreams::Call::kWait), 0U);
  EXPECT_FALSE(streams_.is_known_reached(used));
  EXPECT_GT(backing_.mapped(), before) << "the work may still use the former mappings";
  streams_.finish_all();
  free(at, mebibytes(32));
  pass(milliseconds(500));
  EXPECT_EQ(backing_.mapped(), before) << "the work is over";
  for (std::size_t i = 0; i < all.size(); i += 2) free(all[i], mebibytes(2));
}

TEST_F(Placing, ExtentsThatOthersStillUseAreMovedForAStreamBehindTheirWork) {
  grant_least();
  const auto all = allocate_many(32, mebibytes(2));
  const auto used = streams_.give(kOne);
  for (std::size_t i = 1; i < all.size(); i += 2) free(all[i], mebibytes(2));
  const Address at = allocate(mebibytes(32), kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
  EXPECT_EQ(backing_.committed(), mebibytes(64));
  EXPECT_EQ(streams_.calls(FakeStreams::Call::kWait), 0U);
  free(at, mebibytes(32), kTwo);
  EXPECT_TRUE(succeeded(engine_->trim(kAll))) << "which waits for the work on the former mappings";
  EXPECT_EQ(backing_.committed(), mebibytes(32));
  EXPECT_EQ(backing_.mapped(), mebibytes(32));
}

TEST_F(Placing, ExtentsAreNotGivenBackWhileTheirFormerMappingsStay) {
  grant_least();
  const auto all = allocate_many(32, mebibytes(2));
  streams_.give(kOne);
  for (std::size_t i = 1; i < all.size(); i += 2) free(all[i], mebibytes(2));
  free(allocate(mebibytes(32)), mebibytes(32));
  streams_.finish_all();
  backing_.fail(FakeBacking::Call::kUnmap, 1, {Code::kInternal, "cuMemUnmap: broken"}, 15);
  pass(milliseconds(100));
  EXPECT_TRUE(backing_.heal()) << "each former mapping was to be unmapped";
  EXPECT_TRUE(succeeded(engine_->trim_unused(kAll)));
  EXPECT_EQ(backing_.committed(), mebibytes(62)) << "one extent was free where the block needed it";
  free_all({all[0]}, mebibytes(2));
  streams_.finish_all();
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_EQ(backing_.committed(), mebibytes(30));
}

struct LargeExtents : EngineTest {
  LargeExtents() : EngineTest({.limit = mebibytes(128), .granularity = mebibytes(32)}) {}
};

TEST_F(LargeExtents, RestOfWhatWasMovedIsBehindTheWorkOnIt) {
  const Address earlier = allocate(mebibytes(3));
  streams_.give(kOne);
  free(earlier, mebibytes(3));  // sets a mark that the device reaches before that of `used`
  const auto all = allocate_many(4, mebibytes(32));
  const auto used = streams_.give(kOne);
  for (const std::size_t i : {0, 2}) free(all[i], mebibytes(32));
  allocate(mebibytes(40));
  EXPECT_EQ(statistics().moved_extents, 2U);
  allocate(mebibytes(20), kTwo);
  EXPECT_TRUE(streams_.is_behind(kTwo, used));
}

TEST_F(Placing, ManyExtentsAreMappedInFewCalls) {
  fill_with_holes();
  const auto before = backing_.calls(FakeBacking::Call::kMap);
  allocate(mebibytes(32));
  EXPECT_LE(backing_.calls(FakeBacking::Call::kMap) - before, 2U);
}

TEST_F(Placing, LargeBlockIsHadInOneRequest) {
  allocate(mebibytes(62));
  EXPECT_EQ(backing_.calls(FakeBacking::Call::kObtain), 1U);
  EXPECT_EQ(backing_.calls(FakeBacking::Call::kMap), 1U);
}

TEST_F(Placing, BlockExtendsWithinItsRoomWhateverElseIsAllocated) {
  const Address at = allocate(mebibytes(2), kOne, {.room = mebibytes(40)});
  allocate_many(6, mebibytes(2));
  allocate_many(50, {1000});
  Bytes bytes = mebibytes(2);
  for (const Bytes to : {mebibytes(3), mebibytes(9), mebibytes(11), mebibytes(40)}) {
    ASSERT_TRUE(succeeded(engine_->extend(at, bytes, to, kOne)));
    bytes = to;
    allocate({5000});
  }
  const auto all = snapshot();
  const auto found = std::ranges::find(all, at, &BlockInfo::address);
  ASSERT_NE(found, all.end());
  EXPECT_EQ(found->bytes, mebibytes(40));
  free(at, mebibytes(40));
}

TEST_F(Placing, RoomIsAddressesNotMemory) {
  allocate(mebibytes(2), kOne, {.room = mebibytes(60)});
  EXPECT_LE(backing_.committed(), mebibytes(8));
}

TEST_F(Placing, RoomOfAFreedBlockServesOthers) {
  // 1 GiB of addresses: rooms that are not given back soon use them up.
  for (int i = 0; i < 200; ++i) {
    const Address at = allocate(mebibytes(4), kOne, {.room = mebibytes(200)});
    ASSERT_NE(at, 0U) << i;
    free(at, mebibytes(4));
  }
}

TEST_F(Placing, BlockWithoutRoomIsExtendedOrSaysWhatIsInTheWay) {
  const auto all = allocate_many(8, mebibytes(4));
  const std::set<Address> taken(all.begin(), all.end());
  bool adjacent = false;
  for (const Address at : all) {
    if (!taken.contains(at + mebibytes(4).count)) continue;
    adjacent = true;
    EXPECT_TRUE(failed_with(engine_->extend(at, mebibytes(4), mebibytes(5), kOne), Code::kAborted));
  }
  EXPECT_TRUE(adjacent) << "there was nothing to run into";
  for (const Address at : all) free(at, mebibytes(4));
}

TEST_F(Placing, ExtendPastTheLimitIsRefusedAndChangesNothing) {
  const Address at = allocate(mebibytes(8), kOne, {.room = mebibytes(256)});
  const auto refused = engine_->extend(at, mebibytes(8), mebibytes(128), kOne);
  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(refused.error().code == Code::kInvalidArgument ||
              refused.error().code == Code::kResourceExhausted);
  EXPECT_TRUE(succeeded(engine_->extend(at, mebibytes(8), mebibytes(16), kOne)));
  free(at, mebibytes(16));
}

TEST_F(Placing, ShorterBlockGivesItsEndUp) {
  const Address at = allocate(mebibytes(64));
  EXPECT_TRUE(succeeded(engine_->extend(at, mebibytes(64), mebibytes(2), kOne)));
  EXPECT_EQ(statistics().in_use, mebibytes(2));
  allocate(mebibytes(32));
  EXPECT_TRUE(failed_with(engine_->deallocate(at, mebibytes(64), kOne), Code::kInvalidArgument));
  free(at, mebibytes(2));
}

TEST_F(Placing, ExtendOfWrongSizeForeignOrFreedBlocksIsRefused) {
  const Address at = allocate(mebibytes(4));
  EXPECT_TRUE(failed_with(engine_->extend(at, mebibytes(3), mebibytes(5), kOne), Code::kInvalidArgument));
  EXPECT_TRUE(
      failed_with(engine_->extend(at + 256, mebibytes(4), mebibytes(5), kOne), Code::kInvalidArgument));
  EXPECT_TRUE(failed_with(engine_->extend(at, mebibytes(4), {}, kOne), Code::kInvalidArgument));
  EXPECT_TRUE(failed_with(engine_->extend(4096, mebibytes(4), mebibytes(5), kOne), Code::kInvalidArgument));
  free(at, mebibytes(4));
  EXPECT_TRUE(failed_with(engine_->extend(at, mebibytes(4), mebibytes(5), kOne), Code::kInvalidArgument));
}

struct HostPlacing : Placing {
  HostPlacing() : Placing(mebibytes(64), true) {}
};

TEST_F(HostPlacing, ContentStaysWhileTheBlockIsExtendedAndExtentsMoveRoundIt) {
  const auto kept = fill_with_holes();
  for (const Address at : kept) std::memset(reinterpret_cast<void*>(at), 0x5a, 2 << 20);
  const Address at = allocate(mebibytes(4), kOne, {.room = mebibytes(32)});
  std::memset(reinterpret_cast<void*>(at), 0x77, 4 << 20);
  ASSERT_TRUE(succeeded(engine_->extend(at, mebibytes(4), mebibytes(32), kOne)));
  const auto all = [](Address from, std::uint64_t bytes, unsigned char value) {
    const auto* memory = reinterpret_cast<const unsigned char*>(from);
    return std::all_of(memory, memory + bytes, [value](unsigned char one) { return one == value; });
  };
  EXPECT_TRUE(all(at, 4 << 20, 0x77));
  std::memset(reinterpret_cast<void*>(at), 0x78, 32 << 20);
  for (const Address one : kept) EXPECT_TRUE(all(one, 2 << 20, 0x5a));
}

struct SmallArena : EngineTest {
  // Hardly more addresses than memory: they must be used again, extents moved round what is in the way.
  SmallArena() : EngineTest({.limit = mebibytes(64), .addresses = mebibytes(256)}) {}
};

TEST_F(SmallArena, AddressesAreUsedAgain) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const Bytes bytes = mebibytes(2 + random() % 60);
    free(allocate(bytes), bytes);
    if (i % 5 == 0) {
      ASSERT_TRUE(succeeded(engine_->trim(kAll)));
    }
  }
}

struct Sizes : testing::TestWithParam<std::uint64_t> {};

/// Slices of 8 MiB and of 80 GiB are both well served: one block takes hardly more memory than it has bytes.
TEST_P(Sizes, FirstBlockTakesWhatItNeedsNotTheLimit) {
  FakeBacking backing({.limit = {GetParam()}});
  FakeStreams streams;
  Engine engine(borrow(backing), borrow(streams), {.background_task = false});
  ASSERT_TRUE(engine.allocate({1000}, kOne).has_value());
  EXPECT_LE(backing.committed(), std::max(mebibytes(2), Bytes{GetParam() / 64}));
  ASSERT_TRUE(engine.allocate({GetParam() / 2}, kOne).has_value());
  EXPECT_LE(backing.committed().count, GetParam() / 2 + std::max<std::uint64_t>(4 << 20, GetParam() / 64));
  ASSERT_TRUE(engine.allocate({GetParam() / 4}, kOne).has_value())
      << "no reserve of its own stands in the way";
}

INSTANTIATE_TEST_SUITE_P(Limits, Sizes,
                         testing::Values(8 << 20, 64 << 20, 1ULL << 30, 80ULL << 30, 300ULL << 30));

}  // namespace
}  // namespace gpumem::allocator::test
