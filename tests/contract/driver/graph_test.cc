// Streams that are captured into graphs, and what graphs allocate.
#include <vector>

#include "tests/contract/driver/memory/pools.h"

namespace gpumem::contract {
namespace {

using Graphs = DriverTest;

void begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
  must(calls().cuStreamBeginCapture(stream, mode));
}

/// An executable graph of what a stream has captured.
class Captured {
 public:
  explicit Captured(CUstream stream) {
    must(calls().cuStreamEndCapture(stream, &graph_));
    must(calls().cuGraphInstantiateWithFlags(&exec_, graph_, 0));
  }
  ~Captured() {
    calls().cuGraphExecDestroy(exec_);
    calls().cuGraphDestroy(graph_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  void launch(CUstream stream) const {
    must(calls().cuGraphLaunch(exec_, stream));
    must(calls().cuStreamSynchronize(stream));
  }
  std::vector<CUgraphNodeType> types() const {
    std::size_t count = 0;
    must(calls().cuGraphGetNodes(graph_, nullptr, &count));
    std::vector<CUgraphNode> nodes(count);
    must(calls().cuGraphGetNodes(graph_, nodes.data(), &count));
    std::vector<CUgraphNodeType> types(count);
    for (std::size_t i = 0; i < count; ++i) must(calls().cuGraphNodeGetType(nodes[i], &types[i]));
    return types;
  }

 private:
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

/// Ends a capture that leaves no graph.
CUresult failed_end(CUstream stream) {
  CUgraph graph = nullptr;
  const CUresult result = calls().cuStreamEndCapture(stream, &graph);
  EXPECT_EQ(graph, nullptr);
  return result;
}

TEST_IN_CONTEXT(Graphs, DoTheCapturedWorkWhenTheyAreLaunched) {
  const DeviceMemory memory(kBytes);
  PinnedNumbers from(kCount), to(kCount);
  const Stream stream;
  begin(stream);
  must(calls().cuMemcpyHtoDAsync(memory, from.data(), kBytes, stream));
  must(calls().cuMemsetD32Async(memory, 9, 1, stream));
  must(calls().cuMemcpyDtoHAsync(to.data(), memory, kBytes, stream));
  const Captured captured(stream);
  EXPECT_EQ(captured.types().size(), 3U);
  for (unsigned round = 1; round <= 3; ++round) {
    from[0] = from[kCount - 1] = round;
    captured.launch(stream);
    EXPECT_EQ(to[0], 9U);
    EXPECT_EQ(to[kCount - 1], round);
  }
}

TEST_IN_CONTEXT(Graphs, TakeInAStreamThatIsForkedAndJoinedByEvents) {
  const DeviceMemory memory(kBytes);
  PinnedNumbers seen(1);
  const Stream stream, side;
  const Event fork(CU_EVENT_DISABLE_TIMING), join(CU_EVENT_DISABLE_TIMING);
  begin(stream);
  must(calls().cuEventRecord(fork, stream));
  must(calls().cuStreamWaitEvent(side, fork, 0));
  must(calls().cuMemsetD32Async(memory, 4, 1, side));
  must(calls().cuEventRecord(join, side));
  must(calls().cuStreamWaitEvent(stream, join, 0));
  must(calls().cuMemcpyDtoHAsync(seen.data(), memory, sizeof(unsigned), stream));
  const Captured captured(stream);
  captured.launch(stream);
  EXPECT_EQ(seen[0], 4U);
  EXPECT_REFUSED(calls().cuEventQuery(join)) << "it marks a place in a graph";
}

TEST_IN_CONTEXT(Graphs, AreNotMadeOfAForkThatIsNotJoined) {
  const DeviceMemory memory(kBytes);
  const Stream stream, side;
  const Event fork(CU_EVENT_DISABLE_TIMING);
  begin(stream);
  must(calls().cuEventRecord(fork, stream));
  must(calls().cuStreamWaitEvent(side, fork, 0));
  must(calls().cuMemsetD32Async(memory, 4, 1, side));
  EXPECT_EQ(failed_end(stream), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_OK(calls().cuStreamSynchronize(side)) << "captured no longer";
}

TEST_IN_CONTEXT(Graphs, AreNotMadeOfTwoCapturesOrOfWorkOutside) {
  const Stream first, second, outside;
  const Event captured(CU_EVENT_DISABLE_TIMING), other(CU_EVENT_DISABLE_TIMING);
  must(calls().cuEventRecord(other, outside));
  begin(first);
  begin(second);
  must(calls().cuEventRecord(captured, first));
  EXPECT_EQ(calls().cuStreamWaitEvent(second, captured, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  EXPECT_EQ(failed_end(first), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(failed_end(second), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin(first);
  EXPECT_EQ(calls().cuStreamWaitEvent(first, other, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(failed_end(first), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_IN_CONTEXT(Graphs, ForbidAllocationsWhileTheyAreCapturedButInRelaxedMode) {
  const Stream stream;
  CUdeviceptr memory = 0;
  begin(stream);
  EXPECT_REFUSED(calls().cuMemAlloc(&memory, kBytes));
  CUstreamCaptureStatus status{};
  must(calls().cuStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(failed_end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_OK(calls().cuMemAlloc(&memory, kBytes));
  const Captured captured(stream);
  EXPECT_OK(calls().cuMemFree(memory));

  begin(stream);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  must(calls().cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_OK(calls().cuMemAlloc(&memory, kBytes));
  must(calls().cuThreadExchangeStreamCaptureMode(&mode));
  const Captured again(stream);
  EXPECT_OK(calls().cuMemFree(memory));
}

TEST_IN_CONTEXT(Graphs, ForbidToWaitForAStreamThatIsCaptured) {
  const Stream stream;
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(calls().cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(failed_end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_OK(calls().cuStreamSynchronize(stream));
}

std::uint64_t reserved_by_graphs() {
  cuuint64_t value = 0;
  must(
      calls().cuDeviceGetGraphMemAttribute(device().ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value));
  return value;
}

TEST_IN_CONTEXT(Graphs, KeepTheMemoryThatTheyAllocateUntilItIsTrimmed) {
  const Stream stream;
  PinnedNumbers seen(1);
  EXPECT_EQ(reserved_by_graphs(), 0U);
  {
    begin(stream);
    CUdeviceptr memory = 0;
    must(calls().cuMemAllocAsync(&memory, kBytes, stream));
    must(calls().cuMemsetD32Async(memory, 6, kCount, stream));
    must(calls().cuMemcpyDtoHAsync(seen.data(), memory, sizeof(unsigned), stream));
    must(calls().cuMemFreeAsync(memory, stream));
    const Captured captured(stream);
    for (int i = 0; i < 3; ++i) captured.launch(stream);
    EXPECT_EQ(seen[0], 6U);
    EXPECT_GE(reserved_by_graphs(), kBytes);
  }
  EXPECT_GE(reserved_by_graphs(), kBytes) << "destroying the graphs gives nothing back";
  EXPECT_OK(calls().cuDeviceGraphMemTrim(device().ordinal));
  EXPECT_EQ(reserved_by_graphs(), 0U);
}

}  // namespace
}  // namespace gpumem::contract
