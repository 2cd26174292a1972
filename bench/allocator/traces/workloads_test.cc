#include "bench/allocator/traces/workloads.h"

#include <gtest/gtest.h>

namespace gpumem::bench {

static void PrintTo(const Workload& workload, std::ostream* out) { *out << workload.name; }

namespace {

struct WorkloadTest : testing::TestWithParam<Workload> {};

// The first error in a trace's blocks, or nothing.
std::string fault_of(const AllocationTrace& trace) {
  enum class State { kUnknown, kInUse, kFreed };
  std::vector<std::pair<State, std::uint64_t>> blocks(trace.blocks);
  std::uint32_t next = 0;
  for (const AllocatorCall& call : trace.calls) {
    if (call.block >= trace.blocks || call.bytes == 0) return "a block out of range, or empty";
    auto& [state, bytes] = blocks[call.block];
    if (call.kind == AllocatorCall::Kind::kAllocate) {
      if (call.block != next++) return "not numbered in the order of allocation";
      state = State::kInUse;
      bytes = call.bytes;
    } else {
      if (state != State::kInUse || bytes != call.bytes) return "freed, but not in use, or of another size";
      state = State::kFreed;
    }
  }
  return next == trace.blocks ? "" : "fewer blocks than are told";
}

TEST_P(WorkloadTest, EveryBlockIsAllocatedOnceAndFreedAtMostOnceAfterwards) {
  const AllocationTrace trace = GetParam().make(1);
  EXPECT_EQ(trace.name, GetParam().name);
  EXPECT_EQ(fault_of(trace), "");
  EXPECT_GT(trace.calls.size(), 10'000U);
}

TEST_P(WorkloadTest, TheSameSeedGivesTheSameTraceAndAnotherOneAnother) {
  EXPECT_EQ(GetParam().make(3).calls, GetParam().make(3).calls);
  EXPECT_NE(GetParam().make(3).calls, GetParam().make(4).calls);
}

TEST_P(WorkloadTest, ThePeakIsAsTold) {
  for (const std::uint64_t seed : {1UL, 2UL, 3UL}) {
    const TraceFigures figures = figures_of(GetParam().make(seed));
    EXPECT_GE(figures.peak, GetParam().peak_least) << to_string(figures.peak);
    EXPECT_LE(figures.peak, GetParam().peak_most) << to_string(figures.peak);
  }
}

INSTANTIATE_TEST_SUITE_P(All, WorkloadTest, testing::ValuesIn(workloads().begin(), workloads().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Burst, LeavesWhatWasThereBefore) {
  const AllocationTrace trace = burst(1);
  EXPECT_LT(figures_of(trace).left, gibibytes(3));
  EXPECT_LT(figures_of(scattered_burst(1)).left, gibibytes(3));
  EXPECT_EQ(fault_of(scattered_burst(1)), "");
}

TEST(Parameters, AreAsManyAsPublished) {
  // GPT-2 large has 774 million, in sixteen bytes each; the workspace and the gradients of the last iteration
  // stay.
  const auto gib = static_cast<double>(figures_of(transformer_training(1)).left.count) / (1ULL << 30);
  EXPECT_NEAR(gib, 774e6 * 16 / (1ULL << 30), 0.2);
}

}  // namespace
}  // namespace gpumem::bench
