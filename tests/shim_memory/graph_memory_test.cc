// Memory that graphs allocate: charged when the driver takes it, until the driver gives it back.
#include "tests/shim_memory/scene.h"

namespace gpumem::shim::test {
namespace {

using GraphMemoryTest = ShimMemory;

void wait_for_work() { EXPECT_CU(real<decltype(&::cuCtxSynchronize)>("cuCtxSynchronize")()); }

CUstream stream_of_its_own() {
  CUstream stream = nullptr;
  EXPECT_CU(real<decltype(&::cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

/// A graph that allocates `bytes` and frees them, as it is captured.
CUgraph captured(CUstream stream, std::uint64_t bytes) {
  EXPECT_CU(calls::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CUdeviceptr at = 0;
  EXPECT_CU(calls::cuMemAllocAsync(&at, bytes, stream));
  EXPECT_CU(calls::cuMemFreeAsync(at, stream));
  CUgraph graph = nullptr;
  EXPECT_CU(calls::cuStreamEndCapture(stream, &graph));
  return graph;
}

/// As above, but made of nodes.
CUgraph of_nodes(std::uint64_t bytes) {
  CUgraph graph = nullptr;
  EXPECT_CU(real<decltype(&::cuGraphCreate)>("cuGraphCreate")(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  parameters.bytesize = bytes;
  CUgraphNode made = nullptr, freed = nullptr;
  EXPECT_CU(real<decltype(&::cuGraphAddMemAllocNode)>("cuGraphAddMemAllocNode")(&made, graph, nullptr, 0,
                                                                                &parameters));
  EXPECT_CU(real<decltype(&::cuGraphAddMemFreeNode)>("cuGraphAddMemFreeNode")(&freed, graph, &made, 1,
                                                                              parameters.dptr));
  return graph;
}

CUgraphExec executable(CUgraph graph) {
  CUgraphExec exec = nullptr;
  EXPECT_CU(calls::cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

SCENE(LaunchesGraphs) {
  start();
  const CUstream stream = stream_of_its_own();
  const CUgraph graph = captured(stream, 5 * kMiB);
  EXPECT_EQ(free_memory(), 16 * kMiB) << "nothing of the slice";
  const CUgraphExec exec = executable(graph);
  EXPECT_EQ(free_memory(), 16 * kMiB) << "the driver takes it when it is launched";
  ASSERT_CU(calls::cuGraphLaunch(exec, stream));
  EXPECT_EQ(free_memory(), 10 * kMiB) << "what the driver reserves is charged";
  for (int i = 0; i < 5; ++i) ASSERT_CU(calls::cuGraphLaunch(exec, stream)) << "it has its memory";
  EXPECT_EQ(free_memory(), 10 * kMiB);
  const CUgraphExec large = executable(of_nodes(17 * kMiB));
  EXPECT_EQ(calls::cuGraphLaunch(large, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuGraphLaunch_ptsz(large, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuGraphUpload(large, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuGraphUpload_ptsz(large, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  wait_for_work();
  ASSERT_CU(calls::cuGraphLaunch(exec, stream));
  tell_and_await();
  wait_for_work();
  EXPECT_CU(calls::cuGraphExecDestroy(exec));
  EXPECT_EQ(free_memory(), 10 * kMiB) << "the driver keeps it for other graphs";
  EXPECT_CU(real<decltype(&::cuGraphDestroy)>("cuGraphDestroy")(graph));
  EXPECT_CU(calls::cuDeviceGraphMemTrim(0));
  EXPECT_EQ(free_memory(), 16 * kMiB);
  tell_and_await();
}

TEST_F(GraphMemoryTest, MemoryOfGraphsIsChargedFromTheFirstLaunchUntilItIsTrimmed) {
  expect_told_of_outside("LaunchesGraphs", 6 * kMiB, {{"GPUMEM_LIMIT", "16MiB"}, {"GPUMEM_WAIT", "10h"}});
}

SCENE(LaunchesGraphsInTurn) {
  start();
  const CUstream stream = stream_of_its_own();
  const CUgraphExec one = executable(of_nodes(10 * kMiB));
  const CUgraphExec two = executable(of_nodes(12 * kMiB));
  for (int i = 0; i < 3; ++i) {
    ASSERT_CU(calls::cuGraphLaunch(one, stream));
    wait_for_work();
    ASSERT_CU(calls::cuGraphLaunch(two, stream)) << "what the other one needs only when it runs makes room";
    wait_for_work();
  }
  EXPECT_EQ(free_memory(), 4 * kMiB);
  CUdeviceptr block = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&block, 16 * kMiB)) << "idle memory is in nobody's way";
  EXPECT_EQ(calls::cuGraphLaunch(one, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(calls::cuMemFree_v2(block));
  EXPECT_CU(calls::cuGraphLaunch(one, stream));
}

TEST_F(GraphMemoryTest, IdleMemoryOfGraphsMakesRoom) {
  expect("LaunchesGraphsInTurn", {{"GPUMEM_LIMIT", "16MiB"}});
}

SCENE(IsRefusedDuringACapture) {
  start();
  const CUstream stream = stream_of_its_own(), captive = stream_of_its_own();
  const CUgraphExec exec = executable(of_nodes(10 * kMiB));
  ASSERT_CU(calls::cuGraphLaunch(exec, stream));
  wait_for_work();
  ASSERT_CU(calls::cuStreamBeginCapture_v2(captive, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUdeviceptr block = 0;
  EXPECT_EQ(calls::cuMemAlloc_v2(&block, 17 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(calls::cuMemAlloc_v2(&block, 16 * kMiB)) << "idle memory makes room";
  CUgraph graph = nullptr;
  EXPECT_CU(calls::cuStreamEndCapture(captive, &graph)) << "the capture is not spoilt";
}

TEST_F(GraphMemoryTest, RefusalDoesNotSpoilACapture) {
  expect("IsRefusedDuringACapture", {{"GPUMEM_LIMIT", "16MiB"}});
}

SCENE(UploadsGraphs) {
  start();
  const CUstream stream = stream_of_its_own();
  const CUgraphExec exec = executable(of_nodes(6 * kMiB));
  ASSERT_CU(calls::cuGraphUpload(exec, stream));
  EXPECT_EQ(free_memory(), 10 * kMiB);
  ASSERT_CU(calls::cuGraphLaunch(exec, stream));
  EXPECT_EQ(free_memory(), 10 * kMiB);
}

TEST_F(GraphMemoryTest, UploadTakesTheMemory) { expect("UploadsGraphs", {{"GPUMEM_LIMIT", "16MiB"}}); }

#if CUDA_VERSION >= 12000
SCENE(UploadsAsItInstantiates) {
  start();
  const CUstream stream = stream_of_its_own();
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  parameters.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  parameters.hUploadStream = stream;
  CUgraphExec uploaded = nullptr;
  EXPECT_EQ(calls::cuGraphInstantiateWithParams(&uploaded, of_nodes(17 * kMiB), &parameters),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuGraphInstantiateWithParams_ptsz(&uploaded, of_nodes(17 * kMiB), &parameters),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(free_memory(), 16 * kMiB);
  ASSERT_CU(calls::cuGraphInstantiateWithParams(&uploaded, of_nodes(10 * kMiB), &parameters));
  EXPECT_EQ(free_memory(), 6 * kMiB);
  EXPECT_CU(calls::cuGraphLaunch(uploaded, stream)) << "its memory is there, and not asked for again";
  EXPECT_EQ(free_memory(), 6 * kMiB);
}

TEST_F(GraphMemoryTest, InstantiationWithUploadTakesTheMemory) {
  expect("UploadsAsItInstantiates", {{"GPUMEM_LIMIT", "16MiB"}});
}
#endif

SCENE(InstantiatesAsOfOld) {
  start();
  const CUstream stream = stream_of_its_own();
  CUgraphExec first = nullptr, second = nullptr;
  ASSERT_CU(calls::cuGraphInstantiate(&first, of_nodes(9 * kMiB), nullptr, nullptr, 0));
  ASSERT_CU(calls::cuGraphInstantiate_v2(&second, of_nodes(9 * kMiB), nullptr, nullptr, 0));
  EXPECT_EQ(calls::cuGraphLaunch(first, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuGraphLaunch(second, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(free_memory(), 8 * kMiB);
}

TEST_F(GraphMemoryTest, OldFormsOfInstantiationAreKnown) {
  expect("InstantiatesAsOfOld", {{"GPUMEM_LIMIT", "8MiB"}});
}

SCENE(LaunchesAChild) {
  start();
  const CUstream stream = stream_of_its_own();
  CUgraph parent = nullptr;
  ASSERT_CU(real<decltype(&::cuGraphCreate)>("cuGraphCreate")(&parent, 0));
  CUgraphNode node = nullptr;
  const CUresult added = real<decltype(&::cuGraphAddChildGraphNode)>("cuGraphAddChildGraphNode")(
      &node, parent, nullptr, 0, of_nodes(9 * kMiB));
  if (added != CUDA_SUCCESS) return;  // no driver before CUDA 12.9 takes memory in child graphs
  EXPECT_EQ(calls::cuGraphLaunch(executable(parent), stream), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(GraphMemoryTest, ChildGraphsCount) { expect("LaunchesAChild", {{"GPUMEM_LIMIT", "8MiB"}}); }

SCENE_TEST(GraphMemoryTest, WhatTheDriverRefusesIsNotCharged) {
  start();
  const CUgraphExec exec = executable(of_nodes(4 * kMiB));
  const auto no_stream = reinterpret_cast<CUstream>(std::uintptr_t{0xdead0});
  EXPECT_NE(calls::cuGraphLaunch(exec, no_stream), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), kPool);
  CUgraphExec none = nullptr;
  EXPECT_NE(calls::cuGraphInstantiateWithFlags(&none, of_nodes(4 * kMiB), ~0ULL), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpumem::shim::test
