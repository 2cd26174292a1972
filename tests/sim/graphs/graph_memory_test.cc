// Memory that graphs allocate: by nodes, and by captured stream-ordered calls.
#include <cuda.h>

#include "tests/sim/graphs/graph_support.h"
#include "tests/sim/memory/pool_support.h"

namespace gpumem::sim::test {
namespace {

class GraphMemory : public SimTest {};

std::uint64_t figure(CUgraphMem_attribute attribute) {
  cuuint64_t value = ~cuuint64_t{0};
  EXPECT_CU(cuDeviceGetGraphMemAttribute(0, attribute, &value));
  return value;
}
std::uint64_t used_by_graphs() { return figure(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT); }
std::uint64_t reserved_by_graphs() { return figure(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT); }

std::uint64_t free_memory() {
  size_t free = 0, total = 0;
  EXPECT_CU(cuMemGetInfo(&free, &total));
  return free;
}

struct Allocation {
  CUgraphNode node = nullptr;
  CUdeviceptr address = 0;
};

Allocation add_allocation(CUgraph graph, std::uint64_t size = kPage) {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps = pool_properties();
  params.bytesize = size;
  Allocation made;
  EXPECT_CU(cuGraphAddMemAllocNode(&made.node, graph, nullptr, 0, &params));
  made.address = params.dptr;
  EXPECT_NE(made.address, 0U);
  return made;
}

CUresult add_free(CUgraph graph, CUdeviceptr address, const Dependencies& after = {}) {
  CUgraphNode node = nullptr;
  return cuGraphAddMemFreeNode(&node, graph, after.data(), after.size(), address);
}

TEST_IN_CONTEXT(GraphMemory, CapturedAllocationIsFilledCopiedAndFreedByEachLaunch) {
  unsigned* const word = pinned_words(1);
  const std::uint64_t before = free_memory();
  const CUstream stream = begin_capture();
  CUdeviceptr memory = 0;
  EXPECT_CU(cuMemAllocAsync(&memory, kPage, stream));
  EXPECT_CU(cuMemsetD32Async(memory, 11, kPage / 4, stream));
  EXPECT_CU(cuMemcpyDtoHAsync(word, memory + kPage - 4, 4, stream));
  EXPECT_CU(cuMemFreeAsync(memory, stream));
  const CUgraph graph = end_capture(stream);
  const auto nodes = nodes_of(graph);
  ASSERT_EQ(nodes.size(), 4U);
  EXPECT_EQ(type_of(nodes[0]), CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  EXPECT_EQ(type_of(nodes[3]), CU_GRAPH_NODE_TYPE_MEM_FREE);
  EXPECT_EQ(free_memory(), before) << "only an address so far";
  const CUgraphExec exec = instantiate(graph);
  for (int i = 0; i < 2; ++i) {
    *word = 0;
    launch_and_wait(exec, stream);
    EXPECT_EQ(*word, 11U);
    EXPECT_EQ(free_memory(), before - kPage) << "it stays for the next launch";
  }
  CUdeviceptr told = 0;
  EXPECT_CU(cuGraphMemFreeNodeGetParams(nodes[3], &told));
  EXPECT_EQ(told, memory);
}

TEST_IN_CONTEXT(GraphMemory, FiguresTellWhatGraphsUseAndWhatIsKept) {
  const CUgraph graph = create_graph();
  const Allocation made = add_allocation(graph, kPage + 1);
  EXPECT_CU(add_free(graph, made.address, {made.node}));
  EXPECT_EQ(used_by_graphs(), 0U);
  const CUgraphExec exec = instantiate(graph);
  const CUstream stream = stream_apart();
  EXPECT_CU(cuGraphUpload(exec, stream));
  EXPECT_EQ(used_by_graphs(), 2 * kPage);
  launch_and_wait(exec, stream);
  EXPECT_EQ(reserved_by_graphs(), 2 * kPage);
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphDestroy(graph));
  EXPECT_EQ(used_by_graphs(), 0U);
  EXPECT_EQ(reserved_by_graphs(), 2 * kPage) << "kept for other graphs";

  const std::uint64_t before = free_memory();
  const CUgraph next = create_graph();
  add_allocation(next, 2 * kPage);
  EXPECT_CU(cuGraphUpload(instantiate(next), stream));
  EXPECT_EQ(free_memory(), before) << "of the same size: taken from what is kept";
  EXPECT_EQ(figure(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 2 * kPage);
  EXPECT_CU(cuDeviceGraphMemTrim(0));
  EXPECT_EQ(reserved_by_graphs(), 0U);
  EXPECT_EQ(free_memory(), before + 2 * kPage);
  for (const auto high : {CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH}) {
    cuuint64_t value = 1;
    EXPECT_EQ(cuDeviceSetGraphMemAttribute(0, high, &value), CUDA_ERROR_INVALID_VALUE);
    value = 0;
    EXPECT_CU(cuDeviceSetGraphMemAttribute(0, high, &value));
    EXPECT_EQ(figure(high), 0U);
  }
}

TEST_IN_CONTEXT(GraphMemory, AllocationLeftByALaunchIsFreedByTheProgram) {
  unsigned* const word = pinned_words(1);
  const CUgraph graph = create_graph();
  const Allocation made = add_allocation(graph);
  add_fill(graph, made.address, 5, {made.node});
  const CUgraphExec exec = instantiate(graph);
  const CUstream stream = stream_apart();
  EXPECT_EQ(cuMemFreeAsync(made.address, stream), CUDA_ERROR_INVALID_VALUE) << "not allocated yet";
  launch_and_wait(exec, stream);
  EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE) << "not freed yet";
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphDestroy(graph));
  EXPECT_CU(cuDeviceGraphMemTrim(0));
  EXPECT_EQ(used_by_graphs(), kPage) << "it outlives its graphs";
  EXPECT_CU(cuMemcpyDtoHAsync(word, made.address, 4, stream));
  EXPECT_CU(cuStreamSynchronize(stream));
  EXPECT_EQ(*word, 5U);
  EXPECT_CU(cuMemFreeAsync(made.address, stream));
  EXPECT_EQ(cuMemFreeAsync(made.address, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuStreamSynchronize(stream));
  EXPECT_EQ(used_by_graphs(), 0U);
}

TEST_IN_CONTEXT(GraphMemory, LaunchMayFreeWhatTheOneBeforeHasLeft) {
  const CUgraph graph = create_graph();
  const Allocation made = add_allocation(graph);
  const CUgraphExec exec = instantiate(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  const CUstream stream = stream_apart();
  for (int i = 0; i < 3; ++i) launch_and_wait(exec, stream);
  EXPECT_EQ(used_by_graphs(), kPage);
  EXPECT_CU(cuMemFree(made.address));
  EXPECT_CU(cuDeviceGraphMemTrim(0));
  EXPECT_EQ(used_by_graphs(), 0U);
  launch_and_wait(exec, stream);
  EXPECT_EQ(used_by_graphs(), kPage) << "at the same address again";
}

TEST_IN_CONTEXT(GraphMemory, AnotherGraphMayFreeIt) {
  const CUgraph makes = create_graph(), frees = create_graph();
  const Allocation made = add_allocation(makes);
  EXPECT_CU(add_free(frees, made.address));
  EXPECT_EQ(add_free(frees, made.address), CUDA_ERROR_INVALID_VALUE) << "once in a graph";
  EXPECT_EQ(add_free(makes, made.address), CUDA_ERROR_INVALID_VALUE) << "not in its own, too";
  EXPECT_EQ(add_free(frees, made.address + 512), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add_free(frees, device_words(1)), CUDA_ERROR_INVALID_VALUE) << "no graph's";
  const CUgraphExec first = instantiate(makes), second = instantiate(frees);
  const CUstream stream = stream_apart();
  EXPECT_EQ(cuGraphLaunch(second, stream), CUDA_ERROR_INVALID_VALUE) << "nothing to free";
  for (int i = 0; i < 2; ++i) {
    EXPECT_CU(cuGraphLaunch(first, stream));
    EXPECT_CU(cuGraphLaunch(second, stream));
  }
  EXPECT_CU(cuStreamSynchronize(stream));
}

TEST_IN_CONTEXT(GraphMemory, AllocationIsFreedByOneGraphOnly) {
  const CUgraph graph = create_graph(), other = create_graph();
  const Allocation made = add_allocation(graph);
  EXPECT_CU(add_free(graph, made.address, {made.node}));
  EXPECT_EQ(add_free(other, made.address), CUDA_ERROR_INVALID_VALUE);
  const CUstream stream = stream_apart();
  launch_and_wait(instantiate(graph), stream);
  EXPECT_EQ(cuMemFreeAsync(made.address, stream), CUDA_ERROR_INVALID_VALUE);
}

TEST_IN_CONTEXT(GraphMemory, GraphWithMemoryHasNoCopiesAndLosesNothing) {
  const CUgraph graph = create_graph(), outer = create_graph();
  const Allocation made = add_allocation(graph);
  const CUgraphNode fill = add_fill(graph, made.address, 1, {made.node});
  CUgraph clone = nullptr;
  CUgraphNode child = nullptr;
  EXPECT_EQ(cuGraphClone(&clone, graph), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphAddChildGraphNode(&child, outer, nullptr, 0, graph), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphDestroyNode(fill), CUDA_ERROR_INVALID_VALUE);
  CUgraphExec exec = instantiate(graph), second = nullptr;
  EXPECT_EQ(cuGraphInstantiateWithFlags(&second, graph, 0), CUDA_ERROR_INVALID_VALUE) << "one at a time";
  const CUstream stream = begin_capture();
  EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(failed_end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_CU(cuGraphExecDestroy(exec));
  instantiate(graph);
}

TEST_IN_CONTEXT(GraphMemory, MemoryThatIsUsedIsNotTrimmed) {
  Barrier barrier;
  unsigned* const word = pinned_words(1);
  const CUstream stream = begin_capture();
  CUdeviceptr memory = 0;
  EXPECT_CU(cuMemAllocAsync(&memory, 4, stream));
  EXPECT_CU(cuMemsetD32Async(memory, 3, 1, stream));
  EXPECT_CU(cuMemcpyDtoHAsync(word, memory, 4, stream));
  EXPECT_CU(cuMemFreeAsync(memory, stream));
  const CUgraph graph = end_capture(stream);
  const CUgraphExec exec = instantiate(graph);
  barrier.put_in(stream);
  EXPECT_CU(cuGraphLaunch(exec, stream));
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphDestroy(graph));
  EXPECT_CU(cuDeviceGraphMemTrim(0));
  EXPECT_EQ(used_by_graphs(), kPage);
  barrier.open();
  EXPECT_CU(cuStreamSynchronize(stream));
  EXPECT_EQ(*word, 3U);
  EXPECT_CU(cuDeviceGraphMemTrim(0));
  EXPECT_EQ(reserved_by_graphs(), 0U);
}

TEST_IN_CONTEXT(GraphMemory, FullDeviceRefusesTheLaunchAndNothingElse) {
  const CUgraph graph = create_graph();
  const Allocation made = add_allocation(graph, 32 * kMiB);
  const CUgraphExec exec = instantiate(graph);
  const CUstream stream = stream_apart();
  CUdeviceptr other = 0;
  ASSERT_CU(cuMemAlloc(&other, 48 * kMiB));
  EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemFree(made.address), CUDA_ERROR_INVALID_VALUE) << "not allocated";
  EXPECT_CU(cuMemFree(other));
  launch_and_wait(exec, stream);
  CUDA_MEM_ALLOC_NODE_PARAMS too_much{}, shareable{}, told{};
  too_much.poolProps = pool_properties();
  too_much.bytesize = 65 * kMiB;
  CUgraphNode node = nullptr;
  EXPECT_EQ(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &too_much), CUDA_ERROR_OUT_OF_MEMORY);
  shareable.poolProps = pool_properties(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  shareable.bytesize = 4;
  EXPECT_EQ(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &shareable), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuGraphMemAllocNodeGetParams(made.node, &told));
  EXPECT_EQ(told.bytesize, 32 * kMiB);
  EXPECT_EQ(told.dptr, made.address);
}

}  // namespace
}  // namespace gpumem::sim::test
