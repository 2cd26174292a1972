// Marks in streams while graphs are captured, on the simulated driver: neither disturbs the other.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>

#include "client/slice/driver_streams.h"
#include "cuda/library.h"
#include "cuda/memory.h"
#include "sim/control/faults.h"
#include "tests/support/host_gate.h"
#include "tests/unit/client/fake_broker.h"

namespace gpumem::client::test {
namespace {

/// What programs call to capture a graph.
struct CaptureCalls {
  decltype(&::cuStreamCreate) create_stream = nullptr;
  decltype(&::cuStreamDestroy) destroy_stream = nullptr;
  decltype(&::cuStreamBeginCapture) begin = nullptr;
  decltype(&::cuStreamEndCapture) end = nullptr;
  decltype(&::cuGraphDestroy) destroy_graph = nullptr;
  decltype(&::cuLaunchHostFunc) launch = nullptr;

  CaptureCalls() {
    const auto library = cuda::Library::open(simulated_machine(), "libcuda.so.1");
    EXPECT_TRUE(library->bind(create_stream, "cuStreamCreate"));
    EXPECT_TRUE(library->bind(destroy_stream, "cuStreamDestroy_v2"));
    EXPECT_TRUE(library->bind(begin, "cuStreamBeginCapture_v2"));
    EXPECT_TRUE(library->bind(end, "cuStreamEndCapture"));
    EXPECT_TRUE(library->bind(destroy_graph, "cuGraphDestroy"));
    EXPECT_TRUE(library->bind(launch, "cuLaunchHostFunc"));
  }
};

class MarksBesideCaptures : public testing::Test {
 protected:
  MarksBesideCaptures() : entered_(enter()) {
    EXPECT_EQ(calls_.create_stream(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(calls_.create_stream(&other_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  ~MarksBesideCaptures() override {
    EXPECT_TRUE(sim::clear_faults(sim::load_machine(simulated_machine()).value()));
    calls_.destroy_stream(stream_);
    calls_.destroy_stream(other_);
  }

  cuda::CurrentContext enter() const { return std::move(*cuda::CurrentContext::enter(driver_, 0)); }
  void begin() { ASSERT_EQ(calls_.begin(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS); }
  /// The capture is as valid as if there had been nobody else.
  void expect_graph() {
    CUgraph graph = nullptr;
    EXPECT_EQ(calls_.end(stream_, &graph), CUDA_SUCCESS);
    if (graph != nullptr) calls_.destroy_graph(graph);
  }
  void expect_no_mark(CUstream stream) {
    for (const auto& set : {streams_.mark(stream), streams_.mark_met(stream)}) {
      ASSERT_FALSE(set);
      EXPECT_EQ(set.error().code, Code::kFailedPrecondition);
    }
  }
  bool reached(allocator::StreamPort::Mark mark) {
    return streams_.ask(mark) == DriverStreams::Progress::kReached;
  }
  void use_other_stream() {
    ASSERT_TRUE(streams_.meet(other_));
    const auto mark = streams_.mark(other_);
    ASSERT_TRUE(mark) << to_string(mark.error());
    EXPECT_TRUE(streams_.wait(*mark));
    EXPECT_TRUE(reached(*mark));
    EXPECT_TRUE(streams_.order(other_, *mark));
    streams_.drop(*mark);
  }

  const cuda::Driver& driver_ = **cuda::Driver::open(simulated_machine());
  const CaptureCalls calls_;
  cuda::CurrentContext entered_;
  DriverStreams streams_{driver_, 0};
  CUstream stream_ = nullptr, other_ = nullptr;
};

TEST_F(MarksBesideCaptures, ContextsAreNotWaitedForDuringOneAndThatIsTold) {
  ASSERT_TRUE(streams_.meet(stream_));
  begin();
  EXPECT_EQ(streams_.wait_for_contexts().error().code, Code::kFailedPrecondition);
  CUgraph graph = nullptr;
  EXPECT_EQ(calls_.end(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_TRUE(streams_.wait_for_contexts());
}

TEST_F(MarksBesideCaptures, CapturedStreamHasNoneAndIsOrderedBehindNone) {
  ASSERT_TRUE(streams_.meet(stream_));
  const auto before = streams_.mark(stream_);
  ASSERT_TRUE(before);
  streams_.drop(streams_.mark(stream_).value());
  begin();
  expect_no_mark(stream_);
  EXPECT_FALSE(streams_.renew(*before, stream_));
  gpumem::test::HostGate gate;
  ASSERT_EQ(calls_.launch(other_, &gpumem::test::HostGate::wait, gate.argument()), CUDA_SUCCESS);
  const auto pending = streams_.mark(other_);
  ASSERT_TRUE(pending);
  EXPECT_EQ(streams_.order(stream_, *pending).error().code, Code::kFailedPrecondition);
  gate.open();
  expect_graph();
  EXPECT_TRUE(streams_.renew(*before, stream_)) << "an event that a capture took can be recorded anew";
  EXPECT_TRUE(streams_.wait(streams_.mark_met(stream_).value()));
  EXPECT_TRUE(streams_.wait(*before));
}

TEST_F(MarksBesideCaptures, OtherStreamsHaveThemByAnyThread) {
  begin();
  use_other_stream();
  std::thread([&] {
    const auto also_entered = enter();
    use_other_stream();
  }).join();
  expect_graph();
}

TEST_F(MarksBesideCaptures, CaptureThatBeginsWhileOneIsSetStaysValid) {
  const sim::Machine machine = sim::load_machine(simulated_machine()).value();
  ASSERT_TRUE(sim::add_fault(machine, "cuEventRecord delay 300ms"));
  std::thread marks([&] {
    const auto also_entered = enter();
    const auto set = streams_.mark(stream_);
    if (set) {
      EXPECT_TRUE(streams_.wait(*set)) << "the capture began after the record";
    } else {
      EXPECT_EQ(set.error().code, Code::kFailedPrecondition);
    }
  });
  // The stream was asked about captures, and is not recorded yet.
  while (sim::faults(machine)->at(0).matches == 0) std::this_thread::yield();
  begin();
  marks.join();
  expect_graph();
}

}  // namespace
}  // namespace gpumem::client::test
