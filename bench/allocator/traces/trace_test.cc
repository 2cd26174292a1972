#include "bench/allocator/traces/trace.h"

#include <gtest/gtest.h>

#include <fstream>

#include "bench/allocator/replay.h"
#include "bench/temporary_folder.h"

namespace gpumem::bench {
namespace {

using Kind = AllocatorCall::Kind;

struct TraceTest : testing::Test {
  TemporaryFolder folder;

  Result<AllocationTrace> read(const std::string& text) const {
    const auto file = folder.path() / "some.trace";
    std::ofstream(file) << text;
    return read_trace(file);
  }
  std::string complaint(const std::string& text) const {
    const auto trace = read(text);
    return trace ? "none" : trace.error().message.substr(trace.error().message.find(':') + 1);
  }
};

TEST_F(TraceTest, LinesBecomeCallsAndBlocksAreNumberedInTheirOrder) {
  const auto trace = read("# words\n\na 700 512 3 12345\na 9 100 0\nf 700 4 99\na 700 1 0\n");
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->name, "some");
  EXPECT_EQ(trace->blocks, 3U);
  const std::vector<AllocatorCall> expected{{Kind::kAllocate, 3, 0, 512},
                                            {Kind::kAllocate, 0, 1, 100},
                                            {Kind::kFree, 4, 0, 512},
                                            {Kind::kAllocate, 0, 2, 1}};
  EXPECT_EQ(trace->calls, expected);
}

TEST_F(TraceTest, WhatIsWrittenIsReadAgain) {
  const auto trace = read("a 0 512 3\na 1 100 0\nf 0 4\n");
  ASSERT_TRUE(trace);
  const auto file = folder.path() / "copy.trace";
  ASSERT_TRUE(write_trace(*trace, file));
  const auto copy = read_trace(file);
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->calls, trace->calls);
}

TEST_F(TraceTest, FaultyLinesAreNamed) {
  EXPECT_EQ(complaint("a 0 512 0\nf 1 0\n"), "2: frees a block that is not in use");
  EXPECT_EQ(complaint("a 0 512 0\na 0 8 0\n"), "2: allocates a block that is in use");
  EXPECT_EQ(complaint("a 0 0 0\n"), "1: allocates nothing");
  EXPECT_EQ(complaint("a 0 512\n"), "1: is neither 'a ID BYTES STREAM' nor 'f ID STREAM'");
  EXPECT_EQ(complaint("x 0 512 0\n"), "1: is neither 'a ID BYTES STREAM' nor 'f ID STREAM'");
  EXPECT_EQ(read_trace(folder.path() / "absent").error().code, Code::kNotFound);
}

TEST_F(TraceTest, FiguresAreOfTheMostThatIsInUse) {
  const auto trace = read("a 0 500 0\na 1 100 1\nf 0 0\na 2 300 0\n");
  ASSERT_TRUE(trace);
  const TraceFigures figures = figures_of(*trace);
  EXPECT_EQ(figures.peak, Bytes{600});
  EXPECT_EQ(figures.left, Bytes{400});
  EXPECT_EQ(figures.largest, Bytes{500});
  EXPECT_EQ(figures.streams, 2U);
}

TEST_F(TraceTest, InterleavedPartsKeepTheirOrderAndTheirStreams) {
  const auto one = read("a 0 1 0\nf 0 0\n");
  const auto other = read("a 0 2 0\na 1 3 0\nf 1 0\nf 0 0\n");
  ASSERT_TRUE(one && other);
  const AllocationTrace whole = interleaved("whole", {*one, *other});
  const std::vector<AllocatorCall> expected{{Kind::kAllocate, 0, 0, 1}, {Kind::kAllocate, 1, 1, 2},
                                            {Kind::kAllocate, 1, 2, 3}, {Kind::kFree, 0, 0, 1},
                                            {Kind::kFree, 1, 2, 3},     {Kind::kFree, 1, 1, 2}};
  EXPECT_EQ(whole.calls, expected);
  EXPECT_EQ(whole.blocks, 3U);
}

// Hands out one address after the other and keeps half as much again as is in use.
struct Wasteful {
  std::uint64_t next = 1;
  std::uint64_t in_use = 0;
  std::uint64_t allocate(Bytes bytes, std::uint32_t) {
    in_use += bytes.count;
    return next++;
  }
  void deallocate(std::uint64_t, Bytes bytes, std::uint32_t) { in_use -= bytes.count; }
  Bytes committed() const { return {in_use + in_use / 2}; }
  void pass() {}
};

TEST_F(TraceTest, AReplayTellsBothPeaksAndFreesWhatIsLeft) {
  const auto trace = read("a 0 500 0\na 1 100 1\nf 0 0\na 2 300 0\n");
  ASSERT_TRUE(trace);
  Wasteful wasteful;
  const Replayed replayed = replay(*trace, wasteful);
  EXPECT_EQ(replayed.peak_in_use, Bytes{600});
  EXPECT_EQ(replayed.peak_committed, Bytes{900});
  EXPECT_DOUBLE_EQ(replayed.committed_over_used(), 1.5);
  EXPECT_EQ(wasteful.in_use, 0U);
}

}  // namespace
}  // namespace gpumem::bench
