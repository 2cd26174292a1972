// Stream capture: what is submitted to a stream becomes a graph instead.
#include <cuda.h>

#include <utility>

#include "calls.h"
#include "sim/calls/graphs/find_graph.h"

namespace gpumem::sim {
namespace {

bool is_mode(CUstreamCaptureMode mode) {
  return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

/// The answers about a capture that a program can ask for; nullptr: not asked for.
struct Info {
  cuuint64_t* id = nullptr;
  CUgraph* graph = nullptr;
  const CUgraphNode** dependencies = nullptr;
  const void** edges = nullptr;  ///< arrays of CUgraphEdgeData, which old headers lack
  size_t* count = nullptr;
};

/// Without a capture the outputs stay unchanged, as with the real calls.
void tell_capture(Capture& capture, const Stream& stream, const Info& info) {
  static_assert(kEdgeSize == sizeof(std::uint64_t));
  const auto& tips = capture.tips[number_of(stream)];
  auto& told = capture.told[number_of(stream)];
  told.clear();
  for (const NodeNumber tip : tips) told.push_back(handle<CUgraphNode>(tip));
  auto& edges = capture.told_edges[number_of(stream)];
  edges.assign(told.size(), 0);
  if (info.id != nullptr) *info.id = capture.id;
  if (info.graph != nullptr) *info.graph = handle<CUgraph>(capture.graph->number);
  if (info.dependencies != nullptr) *info.dependencies = told.data();
  if (info.edges != nullptr) *info.edges = edges.data();
  if (info.count != nullptr) *info.count = told.size();
}

CUresult answer(CUstream stream, CUstreamCaptureStatus* status, const Info& info) {
  Call driver;
  if (!driver) return driver.error();
  if (status == nullptr || (info.edges != nullptr && info.dependencies == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  StreamRef found;
  if (const CUresult result = driver->stream(stream, &found); result != CUDA_SUCCESS) return result;
  if (!driver->captures.implied_by(*found).empty()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  const CaptureRef capture = driver->captures.find(*found);
  *status = capture == nullptr    ? CU_STREAM_CAPTURE_STATUS_NONE
            : capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                  : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) tell_capture(*capture, *found, info);
  return CUDA_SUCCESS;
}

CUresult update(CUstream stream, CUgraphNode* nodes, size_t count, unsigned flags) {
  Call driver;
  if (!driver) return driver.error();
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  StreamRef found;
  if (const CUresult result = driver->queue(stream, &found); result != CUDA_SUCCESS) return result;
  const CaptureRef capture = driver->captures.find(*found);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  std::vector<NodeNumber> wanted;
  if (!find_nodes(*capture->graph, nodes, count, &wanted)) return CUDA_ERROR_INVALID_VALUE;
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) capture->tips[number_of(*found)].clear();
  return driver->captures.wait(*found, {capture, std::move(wanted)});
}

}  // namespace

CUresult api::cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  Call driver;
  if (!driver) return driver.error();
  if (!is_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
  StreamRef found;
  const CUresult result = driver->stream(stream, &found);
  return result == CUDA_SUCCESS ? driver->captures.begin(*found, mode) : result;
}
CUresult api::cuStreamBeginCapture(CUstream stream) {
  return api::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult api::cuStreamEndCapture(CUstream stream, CUgraph* out) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  StreamRef found;
  const CUresult result = driver->stream(stream, &found);
  return result == CUDA_SUCCESS ? driver->captures.end(*found, out) : result;
}

CUresult api::cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return answer(stream, status, {});
}

CUresult api::cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || !is_mode(*mode)) return CUDA_ERROR_INVALID_VALUE;
  std::swap(Captures::thread_mode(), *mode);
  return CUDA_SUCCESS;
}

CUresult api::cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return answer(stream, status, {.id = id});
}
CUresult api::cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                        CUgraph* graph, const CUgraphNode** dependencies, size_t* count) {
  return answer(stream, status, {.id = id, .graph = graph, .dependencies = dependencies, .count = count});
}

CUresult api::cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* nodes, size_t count,
                                                unsigned int flags) {
  return update(stream, nodes, count, flags);
}

#if CUDA_VERSION >= 12030
CUresult api::cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                        CUgraph* graph, const CUgraphNode** dependencies,
                                        const CUgraphEdgeData** edges, size_t* count) {
  const void* data = nullptr;
  const CUresult result = answer(stream, status,
                                 {.id = id,
                                  .graph = graph,
                                  .dependencies = dependencies,
                                  .edges = edges == nullptr ? nullptr : &data,
                                  .count = count});
  if (data != nullptr) *edges = static_cast<const CUgraphEdgeData*>(data);
  return result;
}

CUresult api::cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* nodes,
                                                   const CUgraphEdgeData* edges, size_t count,
                                                   unsigned int flags) {
  const CUresult plain = check_edges(edges, count);
  return plain == CUDA_SUCCESS ? update(stream, nodes, count, flags) : plain;
}

CUresult api::cuStreamBeginCaptureToGraph(CUstream stream, CUgraph named, const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* edges, size_t count,
                                          CUstreamCaptureMode mode) {
  return with_graph(named, [&](Call& driver, Graph& graph) {
    std::vector<NodeNumber> tips;
    if (!is_mode(mode) || graph.is_capturing || !find_nodes(graph, dependencies, count, &tips))
      return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult plain = check_edges(edges, count); plain != CUDA_SUCCESS) return plain;
    StreamRef found;
    const CUresult result = driver->stream(stream, &found);
    return result == CUDA_SUCCESS ? driver->captures.begin(*found, mode, &graph, std::move(tips)) : result;
  });
}
#endif

}  // namespace gpumem::sim
