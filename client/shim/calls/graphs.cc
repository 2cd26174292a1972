// Graphs that allocate. The driver takes their memory when they are launched or uploaded, and is charged
// then.
#include "client/shim/calls.h"
#include "client/shim/memory/blocks/context.h"
#include "client/shim/memory/process.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuGraphInstantiate)> real_instantiate_v1("cuGraphInstantiate");
constinit RealCall<decltype(::cuGraphInstantiate_v2)> real_instantiate_v2("cuGraphInstantiate_v2");
constinit RealCall<decltype(::cuGraphInstantiateWithFlags)> real_with_flags("cuGraphInstantiateWithFlags");
constinit RealCall<CUresult(CUgraphExec, CUstream)> real_launch("cuGraphLaunch");
constinit RealCall<CUresult(CUgraphExec, CUstream)> real_upload("cuGraphUpload");
constinit RealCall<decltype(::cuGraphExecDestroy)> real_destroy_exec("cuGraphExecDestroy");
constinit RealCall<decltype(::cuDeviceGraphMemTrim)> real_trim_device("cuDeviceGraphMemTrim");

CUstream own_default(CUstream stream) { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }

template <class Forward>
CUresult instantiate(const char* call, CUgraphExec* out, CUgraph graph, bool uploads,
                     const Forward& forward) {
  return guarded([&] {
    Process& process = Process::current();
    if (!process.is_brokered() || out == nullptr) return forward();
    CUresult failed = CUDA_SUCCESS;
    auto needs = GraphMemory::needs_of(graph, [&](CUdevice device) {
      const auto found = process.memory_of(device);
      if (found.result != CUDA_SUCCESS) failed = found.result;
      return found.memory;
    });
    if (failed != CUDA_SUCCESS) return failed;
    return process.graph_memory().instantiate(call, std::move(needs), uploads, out, forward);
  });
}

/// A captured launch takes no memory now. The driver decides where a capture is allowed.
template <class Forward>
CUresult launch(const char* call, CUgraphExec exec, CUstream stream, const Forward& forward) {
  return guarded([&] {
    GraphMemory& graphs = Process::current().graph_memory();
    if (!graphs.is_any()) return forward();
    bool capturing = false;
    const bool is_captured = is_capturing(stream, &capturing) == CUDA_SUCCESS && capturing;
    return is_captured ? forward() : graphs.launch(call, exec, forward);
  });
}

CUresult launch_graph(CUgraphExec exec, CUstream stream) {
  return launch("cuGraphLaunch", exec, stream, [&] { return real_launch(exec, stream); });
}
CUresult upload_graph(CUgraphExec exec, CUstream stream) {
  return launch("cuGraphUpload", exec, stream, [&] { return real_upload(exec, stream); });
}

}  // namespace

CUresult calls::cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                            unsigned long long flags) {
  return instantiate("cuGraphInstantiate", phGraphExec, hGraph, false,
                     [&] { return real_with_flags(phGraphExec, hGraph, flags); });
}
CUresult calls::cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                                      char* logBuffer, size_t bufferSize) {
  return instantiate("cuGraphInstantiate", phGraphExec, hGraph, false, [&] {
    return real_instantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
  });
}
CUresult calls::cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                                   char* logBuffer, size_t bufferSize) {
  return instantiate("cuGraphInstantiate", phGraphExec, hGraph, false, [&] {
    return real_instantiate_v1(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
  });
}

#if CUDA_VERSION >= 12000
namespace {

using WithParams = CUresult(CUgraphExec*, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*);
constinit RealCall<WithParams> real_with_params("cuGraphInstantiateWithParams");
constinit RealCall<WithParams> real_with_params_ptsz("cuGraphInstantiateWithParams_ptsz");

CUresult instantiate_with(RealCall<WithParams>& real_call, CUgraphExec* out, CUgraph graph,
                          CUDA_GRAPH_INSTANTIATE_PARAMS* given) {
  const bool uploads = given != nullptr && (given->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
  return instantiate("cuGraphInstantiate", out, graph, uploads, [&] { return real_call(out, graph, given); });
}

}  // namespace

CUresult calls::cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  return instantiate_with(real_with_params, phGraphExec, hGraph, instantiateParams);
}
CUresult calls::cuGraphInstantiateWithParams_ptsz(CUgraphExec* phGraphExec, CUgraph hGraph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  return instantiate_with(real_with_params_ptsz, phGraphExec, hGraph, instantiateParams);
}
#endif

CUresult calls::cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
  return launch_graph(hGraphExec, hStream);
}
CUresult calls::cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  return launch_graph(hGraphExec, own_default(hStream));
}
CUresult calls::cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
  return upload_graph(hGraphExec, hStream);
}
CUresult calls::cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  return upload_graph(hGraphExec, own_default(hStream));
}

CUresult calls::cuGraphExecDestroy(CUgraphExec hGraphExec) {
  return guarded([&] {
    return Process::current().graph_memory().destroy(hGraphExec,
                                                     [hGraphExec] { return real_destroy_exec(hGraphExec); });
  });
}

CUresult calls::cuDeviceGraphMemTrim(CUdevice device) {
  return guarded([&] {
    const CUresult trimmed = real_trim_device(device);
    DeviceMemory* const memory = Process::current().open_memory_of(device);
    if (trimmed == CUDA_SUCCESS && memory != nullptr) Process::current().graph_memory().trimmed(*memory);
    return trimmed;
  });
}

}  // namespace gpumem::shim
