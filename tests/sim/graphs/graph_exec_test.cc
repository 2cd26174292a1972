// Executable graphs: launched, updated.
#include <cuda.h>

#include "tests/sim/graphs/graph_support.h"

namespace gpumem::sim::test {
namespace {

class ExecutableGraphs : public SimTest {};

TEST_IN_CONTEXT(ExecutableGraphs, ExecutableGraphIsACopyWithParametersOfItsOwn) {
  unsigned* const words = pinned_words(2);
  const CUdeviceptr memory = device_words(1);
  const CUgraph graph = create_graph();
  const CUgraphNode fill = add_fill(graph, memory, 5);
  const CUgraphNode copy = add_copy(graph, &words[0], memory, {fill});
  CUgraphNode host = nullptr;
  const CUDA_HOST_NODE_PARAMS none{[](void*) {}, nullptr};
  EXPECT_CU(cuGraphAddHostNode(&host, graph, &copy, 1, &none));
  const CUgraphExec exec = instantiate(graph);
  const CUstream stream = stream_apart();
  const CUDA_MEMSET_NODE_PARAMS six = fill_of(memory, 6), seven = fill_of(memory, 7);
  EXPECT_CU(cuGraphMemsetNodeSetParams(fill, &six));
  launch_and_wait(exec, stream);
  EXPECT_EQ(words[0], 5U) << "what happens to the graph changes nothing";
  EXPECT_CU(cuGraphExecMemsetNodeSetParams(exec, fill, &seven, current_context()));
  const CUDA_MEMCPY3D elsewhere = copy_of(&words[1], memory, 4);
  EXPECT_CU(cuGraphExecMemcpyNodeSetParams(exec, copy, &elsewhere, current_context()));
  const CUDA_HOST_NODE_PARAMS add{[](void* word) { *static_cast<unsigned*>(word) += 1; }, &words[1]};
  EXPECT_CU(cuGraphExecHostNodeSetParams(exec, host, &add));
  launch_and_wait(exec, stream);
  EXPECT_EQ(words[0], 5U);
  EXPECT_EQ(words[1], 8U);

  unsigned is_enabled = 9;
  EXPECT_CU(cuGraphNodeSetEnabled(exec, copy, 0));
  EXPECT_CU(cuGraphNodeGetEnabled(exec, copy, &is_enabled));
  EXPECT_EQ(is_enabled, 0U);
  launch_and_wait(exec, stream);
  EXPECT_EQ(words[1], 9U) << "no copy, one more";
  EXPECT_EQ(cuGraphNodeSetEnabled(exec, host, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuGraphDestroy(graph));
  launch_and_wait(exec, stream);
  EXPECT_EQ(words[1], 10U);
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
}

TEST_IN_CONTEXT(ExecutableGraphs, UpdateTakesParametersFromAGraphOfTheSameShape) {
  unsigned* const word = pinned_words(1);
  const CUdeviceptr memory = device_words(1);
  const auto build = [&](unsigned value) {
    const CUgraph graph = create_graph();
    add_copy(graph, word, memory, {add_fill(graph, memory, value)});
    return graph;
  };
  const auto update = [](CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult* told) {
#if CUDA_VERSION >= 12000
    CUgraphExecUpdateResultInfo info{};
    const CUresult result = cuGraphExecUpdate(exec, graph, &info);
    *told = info.result;
    return result;
#else
    CUgraphNode node = nullptr;
    return cuGraphExecUpdate(exec, graph, &node, told);
#endif
  };
  const CUgraphExec exec = instantiate(build(1));
  const CUstream stream = stream_apart();
  CUgraphExecUpdateResult told{};
  EXPECT_CU(update(exec, build(2), &told));
  EXPECT_EQ(told, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  launch_and_wait(exec, stream);
  EXPECT_EQ(*word, 2U);
  const CUgraph loose = create_graph();
  add_fill(loose, memory, 3);
  add_copy(loose, word, memory);
  EXPECT_EQ(update(exec, loose, &told), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(told, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  const CUgraph other = create_graph();
  add_fill(other, memory, 4, {add_fill(other, memory, 3)});
  EXPECT_EQ(update(exec, other, &told), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(told, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  launch_and_wait(exec, stream);
  EXPECT_EQ(*word, 2U) << "a failed update changes nothing";
}

TEST_IN_CONTEXT(ExecutableGraphs, LaunchesOfOneComeOneAfterTheOtherInAnyStreams) {
  Barrier barrier;
  const CUgraph graph = create_graph();
  CUgraphNode node = nullptr;
  const CUDA_HOST_NODE_PARAMS none{[](void*) {}, nullptr};
  EXPECT_CU(cuGraphAddHostNode(&node, graph, nullptr, 0, &none));
  const CUgraphExec exec = instantiate(graph);
  const CUstream first = stream_apart(), second = stream_apart();
  barrier.put_in(first);
  EXPECT_CU(cuGraphLaunch(exec, first));
  EXPECT_CU(cuGraphLaunch(exec, second));
  EXPECT_EQ(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  EXPECT_CU(cuGraphUpload(exec, second));
  barrier.open();
  EXPECT_CU(cuStreamSynchronize(second));
  EXPECT_CU(cuStreamQuery(first));
}

TEST_IN_CONTEXT(ExecutableGraphs, EventNodesAreRecordedAndWaitedForAtTheLaunch) {
  const CUevent before = untimed_event(), after = untimed_event(), other = untimed_event();
  const CUgraph graph = create_graph();
  CUgraphNode wait = nullptr, record = nullptr;
  EXPECT_CU(cuGraphAddEventWaitNode(&wait, graph, nullptr, 0, other));
  EXPECT_CU(cuGraphAddEventRecordNode(&record, graph, &wait, 1, other));
  EXPECT_CU(cuGraphEventWaitNodeSetEvent(wait, before));
  EXPECT_CU(cuGraphEventRecordNodeSetEvent(record, after));
  CUevent told = nullptr;
  EXPECT_CU(cuGraphEventWaitNodeGetEvent(wait, &told));
  EXPECT_EQ(told, before);
  EXPECT_CU(cuGraphEventRecordNodeGetEvent(record, &told));
  EXPECT_EQ(told, after);
  const CUgraphExec exec = instantiate(graph);
  const CUstream stream = stream_apart(), holding = stream_apart();
  Barrier barrier;
  barrier.put_in(holding);
  EXPECT_CU(cuEventRecord(before, holding));
  EXPECT_CU(cuGraphLaunch(exec, stream));
  EXPECT_EQ(cuEventQuery(after), CUDA_ERROR_NOT_READY);
  barrier.open();
  EXPECT_CU(cuEventSynchronize(after));

  EXPECT_CU(cuGraphExecEventWaitNodeSetEvent(exec, wait, other));
  EXPECT_CU(cuGraphExecEventRecordNodeSetEvent(exec, record, other));
  EXPECT_CU(cuEventDestroy(before));
  launch_and_wait(exec, stream);
  EXPECT_CU(cuEventQuery(other));
  EXPECT_CU(cuEventDestroy(other));
  EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_HANDLE);
}

TEST_IN_CONTEXT(ExecutableGraphs, WorkThatFailsAtTheLaunchFailsItsContext) {
  const CUdeviceptr memory = device_words(1);
  const CUgraph graph = create_graph();
  add_fill(graph, memory, 1);
  const CUgraphExec exec = instantiate(graph);
  EXPECT_CU(cuMemFree(memory));
  const CUstream stream = stream_apart();
  EXPECT_CU(cuGraphLaunch(exec, stream));
  EXPECT_NE(cuStreamSynchronize(stream), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpumem::sim::test
