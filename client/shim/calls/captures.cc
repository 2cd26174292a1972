// Captures of graphs, which the shim must know of: it waits for no work while there are any. And the end of
// streams, whose freed memory is marked then.
#include "client/shim/calls.h"
#include "client/shim/memory/blocks/context.h"
#include "client/shim/memory/process.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuStreamBeginCapture)> real_begin("cuStreamBeginCapture");
constinit RealCall<decltype(::cuStreamBeginCapture_v2)> real_begin_in_mode("cuStreamBeginCapture_v2");
constinit RealCall<decltype(::cuStreamEndCapture)> real_end("cuStreamEndCapture");
constinit RealCall<decltype(::cuStreamGetCtx)> real_context_of("cuStreamGetCtx");
constinit RealCall<decltype(::cuStreamDestroy_v2)> real_destroy_stream("cuStreamDestroy_v2");

CUstream of_thread(CUstream stream) { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }

/// A default stream is one of the current context.
CUcontext context_of(CUstream stream) {
  CUcontext context = nullptr;
  if (!is_made(stream) || real_context_of(stream, &context) != CUDA_SUCCESS)
    return CurrentContext::get().context;
  return context;
}

/// The thread's own default stream ends with it, and the capture that it has left open.
struct EndOfThread {
  ~EndOfThread() { Process::current().captures().ended(CU_STREAM_PER_THREAD); }
};

template <class Begin>
CUresult begin(CUstream stream, const Begin& real_call) {
  return guarded([&] {
    Process& process = Process::current();
    Captures& captures = process.captures();
    // During the capture nothing could mark what was freed on the stream before, and so it would serve
    // nobody.
    if (is_made(stream)) process.release_stream(stream);
    if (stream == CU_STREAM_PER_THREAD) thread_local const EndOfThread end;
    const bool is_new = captures.begins(stream, context_of(stream));
    const CUresult begun = real_call();
    if (begun != CUDA_SUCCESS && is_new) captures.ended(stream);
    return begun;
  });
}

// A capture that was spoilt ends with an error.
CUresult end(CUstream stream, CUgraph* graph) {
  return guarded([&] {
    const CUresult ended = real_end(stream, graph);
    bool capturing = false;
    if (is_capturing(stream, &capturing) != CUDA_SUCCESS || !capturing)
      Process::current().captures().ended(stream);
    return ended;
  });
}

}  // namespace

CUresult calls::cuStreamBeginCapture(CUstream hStream) {
  return begin(hStream, [&] { return real_begin(hStream); });
}
CUresult calls::cuStreamBeginCapture_ptsz(CUstream hStream) {
  return begin(of_thread(hStream), [&] { return real_begin(of_thread(hStream)); });
}
CUresult calls::cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return begin(hStream, [&] { return real_begin_in_mode(hStream, mode); });
}
CUresult calls::cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
  return begin(of_thread(hStream), [&] { return real_begin_in_mode(of_thread(hStream), mode); });
}

#if CUDA_VERSION >= 12030
namespace {

constinit RealCall<decltype(::cuStreamBeginCaptureToGraph)> real_begin_to_graph(
    "cuStreamBeginCaptureToGraph");

}  // namespace

CUresult calls::cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
                                            const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                            CUstreamCaptureMode mode) {
  return begin(hStream, [&] {
    return real_begin_to_graph(hStream, hGraph, dependencies, dependencyData, numDependencies, mode);
  });
}
CUresult calls::cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
                                                 const CUgraphNode* dependencies,
                                                 const CUgraphEdgeData* dependencyData,
                                                 size_t numDependencies, CUstreamCaptureMode mode) {
  return calls::cuStreamBeginCaptureToGraph(of_thread(hStream), hGraph, dependencies, dependencyData,
                                            numDependencies, mode);
}
#endif

CUresult calls::cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) { return end(hStream, phGraph); }
CUresult calls::cuStreamEndCapture_ptsz(CUstream hStream, CUgraph* phGraph) {
  return end(of_thread(hStream), phGraph);
}

CUresult calls::cuStreamDestroy_v2(CUstream hStream) {
  return guarded([&] {
    Process& process = Process::current();
    process.captures().ended(hStream);
    CurrentPool::forget();
    if (is_made(hStream)) process.release_stream(hStream);
    return real_destroy_stream(hStream);
  });
}
CUresult calls::cuStreamDestroy(CUstream hStream) { return calls::cuStreamDestroy_v2(hStream); }

}  // namespace gpumem::shim
