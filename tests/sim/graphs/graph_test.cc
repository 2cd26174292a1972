// Graphs that are built node by node.
#include <cuda.h>

#include "tests/sim/graphs/graph_support.h"

namespace gpumem::sim::test {
namespace {

class Graphs : public SimTest {};

CUresult add_edge(CUgraph graph, CUgraphNode from, CUgraphNode to) {
#if CUDA_VERSION >= 13000
  return cuGraphAddDependencies(graph, &from, &to, nullptr, 1);
#else
  return cuGraphAddDependencies(graph, &from, &to, 1);
#endif
}

CUresult remove_edge(CUgraph graph, CUgraphNode from, CUgraphNode to) {
#if CUDA_VERSION >= 13000
  return cuGraphRemoveDependencies(graph, &from, &to, nullptr, 1);
#else
  return cuGraphRemoveDependencies(graph, &from, &to, 1);
#endif
}

size_t dependents_of(CUgraphNode node) {
  size_t count = 0;
#if CUDA_VERSION >= 13000
  EXPECT_CU(cuGraphNodeGetDependentNodes(node, nullptr, nullptr, &count));
#else
  EXPECT_CU(cuGraphNodeGetDependentNodes(node, nullptr, &count));
#endif
  return count;
}

TEST_IN_CONTEXT(Graphs, NodesAreDoneInTheOrderOfTheirDependencies) {
  unsigned* const word = pinned_words(1);
  const CUdeviceptr memory = device_words(1);
  const CUgraph graph = create_graph();
  // Added last to first.
  const CUgraphNode copy = add_copy(graph, word, memory);
  const CUgraphNode second = add_fill(graph, memory, 2);
  const CUgraphNode first = add_fill(graph, memory, 1);
  EXPECT_CU(add_edge(graph, second, copy));
  EXPECT_CU(add_edge(graph, first, second));
  EXPECT_EQ(add_edge(graph, first, second), CUDA_ERROR_INVALID_VALUE) << "is there already";
  const CUstream stream = stream_apart();
  launch_and_wait(instantiate(graph), stream);
  EXPECT_EQ(*word, 2U);

  CUgraphNode root = nullptr;
  size_t roots = 1;
  EXPECT_CU(cuGraphGetRootNodes(graph, &root, &roots));
  EXPECT_EQ(root, first);
  EXPECT_EQ(dependents_of(first), 1U);
  EXPECT_CU(add_edge(graph, copy, first));
  CUgraphExec exec = nullptr;
  EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE) << "a circle";
  EXPECT_CU(remove_edge(graph, copy, first));
  EXPECT_EQ(remove_edge(graph, copy, first), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuGraphDestroyNode(second));
  EXPECT_EQ(dependents_of(first), 0U);
  EXPECT_EQ(nodes_of(graph).size(), 2U);
}

TEST_IN_CONTEXT(Graphs, ParametersAreToldAndChanged) {
  unsigned* const words = pinned_words(2);
  const CUdeviceptr memory = device_words(1);
  const CUgraph graph = create_graph();
  const CUgraphNode fill = add_fill(graph, memory, 5);
  const CUgraphNode copy = add_copy(graph, &words[0], memory, {fill});
  CUgraphNode host = nullptr;
  const CUDA_HOST_NODE_PARAMS count{[](void* word) { *static_cast<unsigned*>(word) += 1; }, &words[0]};
  EXPECT_CU(cuGraphAddHostNode(&host, graph, &copy, 1, &count));

  CUDA_MEMSET_NODE_PARAMS told_fill{};
  EXPECT_CU(cuGraphMemsetNodeGetParams(fill, &told_fill));
  EXPECT_EQ(told_fill.dst, memory);
  EXPECT_EQ(told_fill.value, 5U);
  EXPECT_EQ(told_fill.width, 1U);
  CUDA_MEMCPY3D told_copy{};
  EXPECT_CU(cuGraphMemcpyNodeGetParams(copy, &told_copy));
  EXPECT_EQ(told_copy.dstHost, &words[0]);
  EXPECT_EQ(told_copy.srcDevice, memory);
  EXPECT_EQ(told_copy.WidthInBytes, 4U);
  EXPECT_EQ(cuGraphMemcpyNodeGetParams(fill, &told_copy), CUDA_ERROR_INVALID_VALUE) << "of another type";

  told_fill.value = 9;
  told_copy.dstHost = &words[1];
  EXPECT_CU(cuGraphMemsetNodeSetParams(fill, &told_fill));
  EXPECT_CU(cuGraphMemcpyNodeSetParams(copy, &told_copy));
  CUDA_HOST_NODE_PARAMS told_host{};
  EXPECT_CU(cuGraphHostNodeGetParams(host, &told_host));
  told_host.userData = &words[1];
  EXPECT_CU(cuGraphHostNodeSetParams(host, &told_host));
  launch_and_wait(instantiate(graph), stream_apart());
  EXPECT_EQ(words[0], 0U);
  EXPECT_EQ(words[1], 10U);
}

TEST_IN_CONTEXT(Graphs, ChildGraphIsACopyThatGoesWithItsNode) {
  unsigned* const word = pinned_words(1);
  const CUdeviceptr memory = device_words(1);
  const CUgraph inner = create_graph();
  const CUgraphNode inner_fill = add_fill(inner, memory, 1);
  const CUgraph outer = create_graph();
  CUgraphNode child = nullptr;
  EXPECT_CU(cuGraphAddChildGraphNode(&child, outer, nullptr, 0, inner));
  add_copy(outer, word, memory, {child});
  EXPECT_CU(cuGraphDestroy(inner));
  EXPECT_EQ(cuGraphDestroyNode(inner_fill), CUDA_ERROR_INVALID_VALUE) << "gone with its graph";

  CUgraph embedded = nullptr;
  EXPECT_CU(cuGraphChildGraphNodeGetGraph(child, &embedded));
  EXPECT_EQ(cuGraphDestroy(embedded), CUDA_ERROR_INVALID_VALUE) << "its node's";
  const auto nodes = nodes_of(embedded);
  ASSERT_EQ(nodes.size(), 1U);
  const CUDA_MEMSET_NODE_PARAMS four = fill_of(memory, 4);
  EXPECT_CU(cuGraphMemsetNodeSetParams(nodes[0], &four));
  const CUstream stream = stream_apart();
  launch_and_wait(instantiate(outer), stream);
  EXPECT_EQ(*word, 4U);

  CUgraph clone = nullptr;
  CUgraphNode cloned = nullptr;
  EXPECT_CU(cuGraphClone(&clone, outer));
  EXPECT_CU(cuGraphNodeFindInClone(&cloned, child, clone));
  EXPECT_EQ(type_of(cloned), CU_GRAPH_NODE_TYPE_GRAPH);
  EXPECT_EQ(cuGraphNodeFindInClone(&cloned, cloned, outer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuGraphDestroy(outer));
  *word = 0;
  launch_and_wait(instantiate(clone), stream);
  EXPECT_EQ(*word, 4U);
  EXPECT_EQ(cuGraphNodeGetType(child, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_IN_CONTEXT(Graphs, WhatIsNoneIsRefused) {
  const auto no_graph = reinterpret_cast<CUgraph>(0x1234);
  const auto no_exec = reinterpret_cast<CUgraphExec>(0x1234);
  CUgraphNode node = nullptr, other = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_EQ(cuGraphAddEmptyNode(&node, no_graph, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, no_graph, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphExecDestroy(no_exec), CUDA_ERROR_INVALID_VALUE);
  const CUgraph graph = create_graph();
  EXPECT_CU(cuGraphAddEmptyNode(&node, create_graph(), nullptr, 0));
  EXPECT_EQ(cuGraphAddEmptyNode(&other, graph, &node, 1), CUDA_ERROR_INVALID_VALUE) << "another graph's";
  const CUDA_MEMSET_NODE_PARAMS wild = fill_of(0x1234, 1);
  EXPECT_EQ(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &wild, nullptr), CUDA_ERROR_INVALID_VALUE);
  const CUDA_HOST_NODE_PARAMS nothing{nullptr, nullptr};
  EXPECT_EQ(cuGraphAddHostNode(&node, graph, nullptr, 0, &nothing), CUDA_ERROR_INVALID_VALUE);
#if CUDA_VERSION >= 12000
  cuuint64_t flags = 9;
  EXPECT_CU(cuGraphExecGetFlags(instantiate(graph), &flags));
  EXPECT_EQ(flags, 0U);
  EXPECT_EQ(cuGraphExecGetFlags(no_exec, &flags), CUDA_ERROR_INVALID_VALUE);
#endif
  EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0x100), CUDA_ERROR_INVALID_VALUE);
}

#if CUDA_VERSION >= 13000
TEST_IN_CONTEXT(Graphs, NodesOfAnyTypeAreAddedByOneCall) {
  const CUdeviceptr memory = device_words(1);
  unsigned* const word = pinned_words(1);
  const CUgraph graph = create_graph();
  CUgraphNode fill = nullptr, copy = nullptr, kernel = nullptr;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  params.memset = {memory, 0, 3, 4, 1, 1, current_context()};
  EXPECT_CU(cuGraphAddNode(&fill, graph, nullptr, nullptr, 0, &params));
  CUgraphNodeParams copies{};
  copies.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  copies.memcpy.copyCtx = current_context();
  copies.memcpy.copyParams = copy_of(word, memory, 4);
  EXPECT_CU(cuGraphAddNode(&copy, graph, &fill, nullptr, 1, &copies));
  CUgraphNodeParams kernels{};
  kernels.type = CU_GRAPH_NODE_TYPE_KERNEL;
  EXPECT_EQ(cuGraphAddNode(&kernel, graph, nullptr, nullptr, 0, &kernels), CUDA_ERROR_NOT_SUPPORTED);
  CUDA_GRAPH_INSTANTIATE_PARAMS wanted{};
  wanted.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  wanted.hUploadStream = stream_apart();
  CUgraphExec exec = nullptr;
  EXPECT_CU(cuGraphInstantiateWithParams(&exec, graph, &wanted));
  EXPECT_EQ(wanted.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
  launch_and_wait(exec, wanted.hUploadStream);
  EXPECT_EQ(*word, 3U);
  params.memset.value = 4;
  EXPECT_CU(cuGraphNodeSetParams(fill, &params));
  params.memset.value = 5;
  EXPECT_CU(cuGraphExecNodeSetParams(exec, fill, &params));
  launch_and_wait(exec, wanted.hUploadStream);
  EXPECT_EQ(*word, 5U);
}
#endif

}  // namespace
}  // namespace gpumem::sim::test
