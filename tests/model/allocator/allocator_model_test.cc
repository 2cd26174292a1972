#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <thread>

#include "tests/model/allocator/program.h"
#include "tests/support/allocator/broken_rule.h"

// Random programs against the shadow of all memory. What they break ends this program, with words and the
// seed. GPUMEM_MODEL_SEED and GPUMEM_MODEL_STEPS (of each test) repeat a run.

namespace gpumem::test {
namespace {

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

std::uint64_t seed() { return setting("GPUMEM_MODEL_SEED", 20'261'121); }

void tell(const World& world, std::uint64_t steps) {
  const auto& seen = world.seen;
  std::printf(
      "%s: %llu steps, seed %llu: %llu blocks, %llu the fast way (%llu on streams of the "
      "program's own), %llu refusals, %llu extended, %llu not for "
      "want of "
      "room, %llu trims, %llu misuses, %llu freed by other threads, at most %zu marks\n",
      world.shape().name.c_str(), static_cast<unsigned long long>(steps),
      static_cast<unsigned long long>(seed()), static_cast<unsigned long long>(seen.blocks),
      static_cast<unsigned long long>(seen.fast), static_cast<unsigned long long>(seen.fast_on_own),
      static_cast<unsigned long long>(seen.refusals), static_cast<unsigned long long>(seen.extended),
      static_cast<unsigned long long>(seen.no_room), static_cast<unsigned long long>(seen.trims),
      static_cast<unsigned long long>(seen.bad), static_cast<unsigned long long>(seen.foreign_frees),
      const_cast<World&>(world).streams().most_marks());
}

/// Threads come and go: each makes so many steps, and leaves its blocks to those after it.
void run_thread(World& world, std::uint64_t seed, unsigned thread, std::uint64_t steps) {
  constexpr std::uint64_t kLife = 10'000;
  for (std::uint64_t done = 0; done < steps; done += kLife) {
    const auto live = [&] {
      Program program(world, seed + done, thread);
      for (std::uint64_t i = 0; i < std::min(kLife, steps - done); ++i) program.step();
    };
    if (world.shape().threads == 1) {
      live();
    } else {
      std::thread(live).join();
    }
  }
}

void run(const Shape& shape, std::uint64_t steps) {
  set_story("GPUMEM_MODEL_SEED=" + std::to_string(seed()) + " GPUMEM_MODEL_STEPS=" + std::to_string(steps) +
            " " + shape.name);
  World world(shape);
  if (shape.threads == 1) {
    Program program(world, seed(), 0);
    for (std::uint64_t i = 0; i < steps; ++i) program.step();
  } else {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < shape.threads; ++i) {
      threads.emplace_back([&world, &shape, i, steps] {
        run_thread(world, seed() * 1000 + i * 100'000'000, i, steps / shape.threads);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  world.finish();
  tell(world, steps);
  set_story("");
  if (steps < 20'000) return;  // too few to have seen everything
  EXPECT_GT(world.seen.fast, 0U);
  EXPECT_GT(world.seen.fast_on_own, 0U);
  EXPECT_GT(world.seen.extended, 0U);
  EXPECT_GT(world.seen.trims, 0U);
  EXPECT_GT(world.seen.bad, 0U);
}

std::vector<Shape> shapes(unsigned threads) {
  return {
      {.name = "FourExtents", .limit = mebibytes(8), .largest = mebibytes(8), .live = 60, .threads = threads},
      {.name = "Painted",
       .limit = mebibytes(256),
       .largest = mebibytes(64),
       .painted = true,
       .threads = threads},
      {.name = "Large", .limit = gibibytes(80), .largest = gibibytes(24), .live = 2000, .threads = threads},
      {.name = "Contended",
       .limit = mebibytes(512),
       .largest = mebibytes(256),
       .live = 200,
       .contended = true,
       .threads = threads},
      {.name = "OwnStreams",
       .limit = mebibytes(64),
       .largest = mebibytes(4),
       .live = 100,
       .own_streams = true,
       .threads = threads},
      {.name = "AnnouncedStreams",
       .limit = mebibytes(64),
       .largest = mebibytes(4),
       .live = 100,
       .own_streams = true,
       .announced = true,
       .threads = threads},
  };
}

TEST(Shadow, EndsTheProgramWhereMemoryIsUsedAgainTooSoonOrUnmappedUnderWork) {
  FakeBacking backing({.limit = mebibytes(8)});
  FakeStreams streams;
  Shadow shadow(backing, streams);
  const auto extents =
      backing.obtain({.bytes = mebibytes(4), .min_bytes = mebibytes(4), .largest = {}}).value();
  ASSERT_TRUE(backing.map(backing.properties().base, extents).has_value());
  const auto one = reinterpret_cast<StreamHandle>(16), two = reinterpret_cast<StreamHandle>(32);
  const allocator::Address at = backing.properties().base + mebibytes(1).count;
  shadow.take(1, at, mebibytes(2), one);
  EXPECT_DEATH(shadow.take(2, at - 256, {257}, one), "overlaps block 1");
  EXPECT_DEATH(shadow.take(2, at + mebibytes(2).count, mebibytes(2), one), "nothing is mapped");
  EXPECT_DEATH(static_cast<void>(backing.unmap(backing.properties().base, mebibytes(4))), "under block 1");
  shadow.free(1, at, mebibytes(2), streams.give(one));
  EXPECT_DEATH(shadow.take(2, at + 512, {256}, two), "too soon");
  EXPECT_DEATH(static_cast<void>(backing.unmap(backing.properties().base, mebibytes(4))), "nobody knows");
  shadow.take(3, at, mebibytes(1), one);
  shadow.free(3, at, mebibytes(1), streams.now(one));
  EXPECT_TRUE(streams.meet(one).has_value());
  const auto mark = streams.mark(one).value();
  EXPECT_TRUE(streams.wait(mark).has_value());
  shadow.take(4, at, mebibytes(2), two);
}

std::vector<Shape> all_shapes() {
  std::vector<Shape> all = shapes(1);
  std::ranges::copy(shapes(8), std::back_inserter(all));
  return all;
}
std::string name_of(const testing::TestParamInfo<Shape>& info) {
  return std::string(info.param.name) + (info.param.threads == 1 ? "InOneThread" : "InEightThreads");
}

using AllocatorModel = testing::TestWithParam<Shape>;

TEST_P(AllocatorModel, HandsNothingOutBeforeItsTurn) {
  run(GetParam(), setting("GPUMEM_MODEL_STEPS", 75'000));
}

INSTANTIATE_TEST_SUITE_P(OfEveryShape, AllocatorModel, testing::ValuesIn(all_shapes()), name_of);

// Ten million operations, unless told otherwise.
using LongAllocatorModel = testing::TestWithParam<Shape>;

TEST_P(LongAllocatorModel, HandsNothingOutBeforeItsTurn) {
  const std::uint64_t all = setting("GPUMEM_LONG_MODEL_STEPS", 10'000'000);
  run(GetParam(), setting("GPUMEM_MODEL_STEPS", all / all_shapes().size()));
}

INSTANTIATE_TEST_SUITE_P(OfEveryShape, LongAllocatorModel, testing::ValuesIn(all_shapes()), name_of);

TEST(AllocatorThreads, WriteOnlyWhatTheyHave) {
  run({.name = "Unshadowed",
       .limit = mebibytes(256),
       .largest = mebibytes(32),
       .painted = true,
       .shadowed = false,
       .threads = 8},
      setting("GPUMEM_MODEL_STEPS", 200'000));
}

}  // namespace
}  // namespace gpumem::test
