// Stream capture: what becomes of submitted work, and what is forbidden meanwhile.
#include <cuda.h>

#include <thread>

#include "tests/sim/graphs/graph_support.h"

namespace gpumem::sim::test {
namespace {

class Captures : public SimTest {};

TEST_IN_CONTEXT(Captures, StatusAndInfoTellOfTheCapture) {
  const CUdeviceptr memory = device_words(1);
  const CUstream stream = begin_capture(), other = stream_apart();
  EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(status_of(other), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_CU(cuMemsetD32Async(memory, 1, 1, stream));
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* tips = nullptr;
  size_t count = 0;
#if CUDA_VERSION >= 13000
  EXPECT_CU(cuStreamGetCaptureInfo(stream, &status, &id, &graph, &tips, nullptr, &count));
#else
  EXPECT_CU(cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &tips, &count));
#endif
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_NE(id, 0U);
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(type_of(tips[0]), CU_GRAPH_NODE_TYPE_MEMSET);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE) << "it belongs to the capture";
  EXPECT_EQ(end_capture(stream), graph);
  EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_IN_CONTEXT(Captures, AnotherStreamJoinsByAnEventAndComesBackByOne) {
  const CUdeviceptr memory = device_words(3);
  const CUstream stream = begin_capture(), side = stream_apart();
  const CUevent fork = untimed_event(), join = untimed_event();
  EXPECT_CU(cuMemsetD32Async(memory, 1, 1, stream));
  EXPECT_CU(cuEventRecord(fork, stream));
  EXPECT_CU(cuStreamWaitEvent(side, fork, 0));
  EXPECT_EQ(status_of(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_CU(cuMemsetD32Async(memory + 4, 2, 1, side));
  EXPECT_CU(cuMemsetD32Async(memory + 8, 3, 1, stream));
  EXPECT_CU(cuEventRecord(join, side));
  EXPECT_CU(cuStreamWaitEvent(stream, join, 0));
  EXPECT_CU(cuLaunchHostFunc(
      stream, [](void*) {}, nullptr));
  const CUgraph graph = end_capture(stream);
  EXPECT_EQ(status_of(side), CU_STREAM_CAPTURE_STATUS_NONE);
  const auto nodes = nodes_of(graph);
  ASSERT_EQ(nodes.size(), 4U);
  size_t edges = 0;
#if CUDA_VERSION >= 13000
  EXPECT_CU(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
#else
  EXPECT_CU(cuGraphGetEdges(graph, nullptr, nullptr, &edges));
#endif
  EXPECT_EQ(edges, 4U) << "a diamond";
}

TEST_IN_CONTEXT(Captures, CaptureEndsInItsOwnStreamAndThread) {
  CUcontext context = nullptr;
  ASSERT_CU(cuCtxGetCurrent(&context));
  const CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  CUgraph graph = nullptr;
  std::thread([&] {
    ASSERT_CU(cuCtxSetCurrent(context));
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  EXPECT_NE(end_capture(stream), nullptr);
  const CUstream relaxed = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  std::thread([&] {
    ASSERT_CU(cuCtxSetCurrent(context));
    EXPECT_NE(end_capture(relaxed), nullptr);
  }).join();

  const CUstream origin = begin_capture(), side = stream_apart();
  const CUevent fork = untimed_event();
  EXPECT_CU(cuEventRecord(fork, origin));
  EXPECT_CU(cuStreamWaitEvent(side, fork, 0));
  EXPECT_EQ(cuStreamEndCapture(side, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(failed_end(origin), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuStreamEndCapture(origin, &graph), CUDA_ERROR_ILLEGAL_STATE);
}

TEST_IN_CONTEXT(Captures, CapturedEventCannotBeQueried) {
  const CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  const CUevent point = untimed_event();
  EXPECT_CU(cuEventRecord(point, stream));
  EXPECT_EQ(cuEventQuery(point), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(failed_end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuEventSynchronize(point), CUDA_ERROR_INVALID_VALUE) << "still the latest record";
  EXPECT_EQ(cuStreamWaitEvent(stream, point, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_CU(cuEventRecord(point, stream));
  EXPECT_CU(cuEventSynchronize(point));
}

TEST_IN_CONTEXT(Captures, StreamAndContextCannotBeWaitedFor) {
  const auto expect_to_invalidate = [](const auto& call) {
    const CUstream stream = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_EQ(call(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(cuLaunchHostFunc(
                  stream, [](void*) {}, nullptr),
              CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(failed_end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  };
  expect_to_invalidate([](CUstream stream) { return cuStreamSynchronize(stream); });
  expect_to_invalidate([](CUstream stream) { return cuStreamQuery(stream); });
  expect_to_invalidate([](CUstream) { return cuCtxSynchronize(); });
  expect_to_invalidate([](CUstream stream) {
    return cuStreamAddCallback(
        stream, [](CUstream, CUresult, void*) {}, nullptr, 0);
  });
}

/// Whether memory can be allocated by a call that no capture sees.
CUresult unsafe_call() {
  CUdeviceptr memory = 0;
  return cuMemAlloc(&memory, 4);
}

CUresult unsafe_call_of_another_thread(CUstreamCaptureMode mode) {
  CUcontext context = nullptr;
  EXPECT_CU(cuCtxGetCurrent(&context));
  CUresult result = CUDA_SUCCESS;
  std::thread([&] {
    EXPECT_CU(cuCtxSetCurrent(context));
    EXPECT_CU(cuThreadExchangeStreamCaptureMode(&mode));
    result = unsafe_call();
  }).join();
  return result;
}

TEST_IN_CONTEXT(Captures, ModesSayWhoMayMakeUnsafeCalls) {
  constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL, kLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                 kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  constexpr auto kForbidden = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const auto end = [](CUstream stream, bool is_valid) {
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(stream, &graph),
              is_valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  };
  CUstream stream = begin_capture(kGlobal);
  EXPECT_CU(unsafe_call_of_another_thread(kLocal));
  EXPECT_CU(unsafe_call_of_another_thread(kRelaxed));
  EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(unsafe_call_of_another_thread(kGlobal), kForbidden);
  end(stream, false);

  stream = begin_capture(kLocal);
  EXPECT_CU(unsafe_call_of_another_thread(kGlobal));
  EXPECT_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(unsafe_call(), kForbidden);
  end(stream, false);

  stream = begin_capture(kRelaxed);
  EXPECT_CU(unsafe_call());
  EXPECT_CU(unsafe_call_of_another_thread(kGlobal));
  end(stream, true);

  stream = begin_capture(kGlobal);
  CUstreamCaptureMode mode = kRelaxed;
  EXPECT_CU(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_CU(unsafe_call());
  EXPECT_CU(cuThreadExchangeStreamCaptureMode(&mode));
  end(stream, true);
}

TEST_IN_CONTEXT(Captures, LegacyStreamCannotBeUsedBesideABlockingOne) {
  const CUdeviceptr memory = device_words(1);
  EXPECT_EQ(cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const CUstream apart = begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_CU(cuMemsetD32Async(memory, 1, 1, CU_STREAM_LEGACY)) << "it is apart from that one";
  EXPECT_NE(end_capture(apart), nullptr);

  CUstream blocking = nullptr;
  ASSERT_CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  ASSERT_CU(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUstreamCaptureStatus status{};
  EXPECT_EQ(cuStreamIsCapturing(CU_STREAM_LEGACY, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(status_of(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(cuMemsetD32Async(memory, 1, 1, CU_STREAM_LEGACY), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(failed_end(blocking), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_IN_CONTEXT(Captures, ExternalEventsBecomeNodes) {
  const CUstream other = stream_apart();
  const CUevent before = untimed_event(), after = untimed_event();
  const CUstream stream = begin_capture();
  EXPECT_CU(cuStreamWaitEvent(stream, before, CU_EVENT_WAIT_EXTERNAL));
  EXPECT_CU(cuEventRecordWithFlags(after, stream, CU_EVENT_RECORD_EXTERNAL));
  const CUgraph graph = end_capture(stream);
  EXPECT_EQ(cuEventRecordWithFlags(after, stream, CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
  const auto nodes = nodes_of(graph);
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(type_of(nodes[0]), CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  EXPECT_EQ(type_of(nodes[1]), CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  Barrier barrier;
  barrier.put_in(other);
  EXPECT_CU(cuEventRecord(before, other));
  EXPECT_CU(cuGraphLaunch(instantiate(graph), stream));
  EXPECT_EQ(cuEventQuery(after), CUDA_ERROR_NOT_READY);
  barrier.open();
  EXPECT_CU(cuEventSynchronize(after));
}

TEST_IN_CONTEXT(Captures, StreamThatIsDestroyedTakesItsCaptureAlong) {
  const CUstream stream = begin_capture();
  EXPECT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_CU(cuStreamDestroy(stream));
  EXPECT_CU(unsafe_call()) << "there is no capture any more";
}

#if CUDA_VERSION >= 13000
TEST_IN_CONTEXT(Captures, NodesAreAddedToAGraphAndByHandInBetween) {
  const CUdeviceptr memory = device_words(1);
  const CUgraph graph = create_graph();
  CUgraphNode first = nullptr, between = nullptr;
  EXPECT_CU(cuGraphAddEmptyNode(&first, graph, nullptr, 0));
  const CUstream stream = stream_apart();
  EXPECT_CU(cuStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUgraphExec exec = nullptr;
  EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE) << "not before the end";
  EXPECT_CU(cuGraphAddEmptyNode(&between, graph, &first, 1));
  EXPECT_CU(
      cuStreamUpdateCaptureDependencies(stream, &between, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  EXPECT_CU(cuMemsetD32Async(memory, 1, 1, stream));
  EXPECT_EQ(end_capture(stream), graph);
  const auto nodes = nodes_of(graph);
  ASSERT_EQ(nodes.size(), 3U);
  CUgraphNode before = nullptr;
  size_t count = 1;
  EXPECT_CU(cuGraphNodeGetDependencies(nodes[2], &before, nullptr, &count));
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(before, between);
  EXPECT_EQ(cuStreamUpdateCaptureDependencies(stream, &between, nullptr, 1, 0), CUDA_ERROR_ILLEGAL_STATE);
}
#endif

}  // namespace
}  // namespace gpumem::sim::test
