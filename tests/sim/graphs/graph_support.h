#pragma once
// What tests of captures and graphs say in one word.
#include <cuda.h>

#include <algorithm>
#include <vector>

#include "tests/sim/work_support.h"

namespace gpumem::sim::test {

inline CUstream begin_capture(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
  const CUstream stream = stream_apart();
  EXPECT_CU(cuStreamBeginCapture(stream, mode));
  return stream;
}

inline CUgraph end_capture(CUstream stream) {
  CUgraph graph = nullptr;
  EXPECT_CU(cuStreamEndCapture(stream, &graph));
  return graph;
}

/// The result of the end of a capture that leaves no graph.
inline CUresult failed_end(CUstream stream) {
  auto graph = reinterpret_cast<CUgraph>(1);
  const CUresult result = cuStreamEndCapture(stream, &graph);
  EXPECT_EQ(graph, nullptr);
  return result;
}

inline CUstreamCaptureStatus status_of(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_CU(cuStreamIsCapturing(stream, &status));
  return status;
}

inline CUgraph create_graph() {
  CUgraph graph = nullptr;
  EXPECT_CU(cuGraphCreate(&graph, 0));
  return graph;
}

inline CUgraphExec instantiate(CUgraph graph, unsigned long long flags = 0) {
  CUgraphExec exec = nullptr;
  EXPECT_CU(cuGraphInstantiateWithFlags(&exec, graph, flags));
  return exec;
}

inline void launch_and_wait(CUgraphExec exec, CUstream stream) {
  EXPECT_CU(cuGraphLaunch(exec, stream));
  EXPECT_CU(cuStreamSynchronize(stream));
}

inline std::vector<CUgraphNode> nodes_of(CUgraph graph) {
  size_t count = 0;
  EXPECT_CU(cuGraphGetNodes(graph, nullptr, &count));
  std::vector<CUgraphNode> nodes(count);
  EXPECT_CU(cuGraphGetNodes(graph, nodes.data(), &count));
  return nodes;
}

inline CUgraphNodeType type_of(CUgraphNode node) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_KERNEL;
  EXPECT_CU(cuGraphNodeGetType(node, &type));
  return type;
}

inline CUevent untimed_event() {
  CUevent made = nullptr;
  EXPECT_CU(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
  return made;
}

/// The words of pinned memory, zero at first.
inline unsigned* pinned_words(std::size_t count) {
  void* words = nullptr;
  EXPECT_CU(cuMemAllocHost(&words, count * sizeof(unsigned)));
  std::fill_n(static_cast<unsigned*>(words), count, 0U);
  return static_cast<unsigned*>(words);
}

inline CUdeviceptr device_words(std::size_t count) {
  CUdeviceptr memory = 0;
  EXPECT_CU(cuMemAlloc(&memory, count * sizeof(unsigned)));
  return memory;
}

inline CUcontext current_context() {
  CUcontext context = nullptr;
  EXPECT_CU(cuCtxGetCurrent(&context));
  return context;
}

inline CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr to, unsigned value, size_t words = 1) {
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = to;
  fill.value = value;
  fill.elementSize = 4;
  fill.width = words;
  fill.height = 1;
  return fill;
}

inline CUDA_MEMCPY3D copy_of(void* to, CUdeviceptr from, size_t size) {
  CUDA_MEMCPY3D copy{};
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to;
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.WidthInBytes = size;
  copy.Height = copy.Depth = 1;
  return copy;
}

using Dependencies = std::vector<CUgraphNode>;

inline CUgraphNode add_fill(CUgraph graph, CUdeviceptr to, unsigned value, const Dependencies& after = {}) {
  const CUDA_MEMSET_NODE_PARAMS fill = fill_of(to, value);
  CUgraphNode node = nullptr;
  EXPECT_CU(cuGraphAddMemsetNode(&node, graph, after.data(), after.size(), &fill, current_context()));
  return node;
}

inline CUgraphNode add_copy(CUgraph graph, void* to, CUdeviceptr from, const Dependencies& after = {}) {
  const CUDA_MEMCPY3D copy = copy_of(to, from, 4);
  CUgraphNode node = nullptr;
  EXPECT_CU(cuGraphAddMemcpyNode(&node, graph, after.data(), after.size(), &copy, current_context()));
  return node;
}

}  // namespace gpumem::sim::test
