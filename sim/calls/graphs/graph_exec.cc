// Executable graphs: instantiated, launched, updated.
#include <cuda.h>

#include <utility>

#include "calls.h"
#include "sim/calls/graphs/find_graph.h"

namespace gpumem::sim {
namespace {

constexpr std::uint64_t kUpload = 2;  // CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, which the oldest header lacks
constexpr std::uint64_t kDeviceLaunch = 4, kInstantiateFlags = 0xf;

/// Errors  CUDA_ERROR_NOT_SUPPORTED: a launch by the device; CUDA_ERROR_INVALID_VALUE: unknown flags, a
/// cycle.
CUresult instantiate(Call& driver, const Graph& graph, std::uint64_t flags, CUgraphExec* out) {
  if (out == nullptr || (flags & ~kInstantiateFlags) != 0 || graph.is_capturing)
    return CUDA_ERROR_INVALID_VALUE;
  if ((flags & kDeviceLaunch) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const GraphExec* const exec = driver->execs.create(graph, flags);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = handle<CUgraphExec>(exec->number);
  return CUDA_SUCCESS;
}

CUresult upload(Call& driver, GraphExec& exec, const StreamRef& stream) {
  const CUresult result = back_memory(driver, exec);
  if (result == CUDA_SUCCESS) driver->streams.submit_short(stream, [] {}, {exec.last});
  return result;
}

CUresult instantiate(CUgraphExec* out, CUgraph named, std::uint64_t flags) {
  return with_graph(named, [&](Call& driver, const Graph& graph) {
    return (flags & kUpload) != 0 ? CUDA_ERROR_INVALID_VALUE : instantiate(driver, graph, flags, out);
  });
}

}  // namespace

CUresult api::cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  return instantiate(out, graph, flags);
}
/// The old forms tell an error's node and a text: there is none of either here.
CUresult api::cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error, char* text,
                                    size_t size) {
  if (error != nullptr) *error = nullptr;
  if (text != nullptr && size > 0) *text = '\0';
  return instantiate(out, graph, 0);
}
CUresult api::cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* error, char* text,
                                 size_t size) {
  return api::cuGraphInstantiate_v2(out, graph, error, text, size);
}

#if CUDA_VERSION >= 12000
CUresult api::cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph named,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS* given) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = with_graph(named, [&](Call& driver, const Graph& graph) {
    StreamRef stream;
    const bool uploads = (given->flags & kUpload) != 0;
    const CUresult known = uploads ? driver->queue(given->hUploadStream, &stream) : CUDA_SUCCESS;
    const CUresult made = known == CUDA_SUCCESS ? instantiate(driver, graph, given->flags, out) : known;
    if (made != CUDA_SUCCESS || !uploads) return made;
    GraphExec& exec = *driver->execs.find(*out);
    const CUresult uploaded = upload(driver, exec, stream);
    if (uploaded != CUDA_SUCCESS) driver->execs.destroy(exec);
    return uploaded;
  });
  given->hErrNode_out = nullptr;
  given->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult api::cuGraphExecGetFlags(CUgraphExec named, cuuint64_t* flags) {
  return with_exec(named, [&](Call&, const GraphExec& exec) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = exec.flags;
    return CUDA_SUCCESS;
  });
}
#endif

/// A launch that is captured becomes a child graph.
CUresult api::cuGraphLaunch(CUgraphExec named, CUstream stream) {
  return with_exec(named, [&](Call& driver, GraphExec& exec) {
    StreamRef queue;
    if (const CUresult result = driver->queue(stream, &queue); result != CUDA_SUCCESS) return result;
    if (driver->captures.find(*queue) == nullptr) return launch(driver, exec, queue);
    if (has_memory(*exec.graph)) return driver->captures.check_no_capture(*queue);
    driver->captures.add(*queue, ChildAction{Graphs::copy(*exec.graph)});
    return CUDA_SUCCESS;
  });
}

CUresult api::cuGraphUpload(CUgraphExec named, CUstream stream) {
  return with_exec(named, [&](Call& driver, GraphExec& exec) {
    StreamRef queue;
    const CUresult result = driver->queue_uncaptured(stream, &queue);
    return result == CUDA_SUCCESS ? upload(driver, exec, queue) : result;
  });
}

CUresult api::cuGraphExecDestroy(CUgraphExec named) {
  return with_exec(named, [](Call& driver, GraphExec& exec) {
    // The graph's user objects live until its latest launch is done.
    driver->streams.submit(UserObjects::destruction(), [objects = exec.graph->objects] {}, {exec.last});
    driver->execs.destroy(exec);
    driver->graph_memory.collect();
    return CUDA_SUCCESS;
  });
}

CUresult api::cuGraphExecUpdate(CUgraphExec named, CUgraph with, CUgraphNode* node,
                                CUgraphExecUpdateResult* out) {
  return with_exec(named, [&](Call& driver, GraphExec& exec) {
    Graph* const graph = driver->graphs.find(with);
    if (graph == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const UpdateConflict conflict = update(exec, *graph);
    if (node != nullptr) *node = handle<CUgraphNode>(conflict.node);
    *out = conflict.result;
    return conflict.result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                           : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  });
}
#if CUDA_VERSION >= 12000
CUresult api::cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *info = {};
  info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
  return api::cuGraphExecUpdate(exec, graph, &info->errorNode, &info->result);
}
#endif

}  // namespace gpumem::sim
