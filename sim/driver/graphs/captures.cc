#include "sim/driver/graphs/captures.h"

#include <algorithm>
#include <utility>

#include "sim/driver/driver.h"

namespace gpumem::sim {
namespace {

void add_missing(std::vector<NodeNumber>& to, const std::vector<NodeNumber>& from) {
  for (const NodeNumber number : from) {
    if (std::ranges::find(to, number) == to.end()) to.push_back(number);
  }
}

/// Whether the origin's next node would come after everything that the other streams have captured.
bool is_joined(const Capture& capture) {
  const std::set<NodeNumber> reached = with_ancestors(*capture.graph, capture.tips.at(capture.origin));
  return std::ranges::all_of(capture.tips, [&](const auto& stream) {
    return std::ranges::all_of(stream.second, [&](NodeNumber node) { return reached.contains(node); });
  });
}

}  // namespace

CUstreamCaptureMode& Captures::thread_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

CUresult Captures::begin(const Stream& stream, CUstreamCaptureMode mode, Graph* into,
                         std::vector<NodeNumber> tips) {
  if (options_of(stream).kind == StreamKind::kLegacyDefault) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (find(stream) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = ++last_id_;
  capture->graph = into != nullptr ? into : &graphs_.create();
  capture->owns_graph = into == nullptr;
  capture->graph->is_capturing = true;
  capture->origin = number_of(stream);
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->tips[capture->origin] = std::move(tips);
  by_stream_[number_of(stream)] = {std::move(capture), options_of(stream)};
  return CUDA_SUCCESS;
}

CUresult Captures::end(const Stream& stream, CUgraph* out) {
  const CaptureRef capture = find(stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != number_of(stream)) {
    capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  const bool is_foreign = capture->thread != std::this_thread::get_id();
  if (is_foreign && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  const CUresult result = capture->is_invalid    ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                          : !is_joined(*capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                                 : CUDA_SUCCESS;
  *out = result == CUDA_SUCCESS ? handle<CUgraph>(capture->graph->number) : nullptr;
  capture->is_invalid = result != CUDA_SUCCESS;
  finish(*capture);
  return result;
}

void Captures::finish(Capture& capture) {
  Graph& graph = *std::exchange(capture.graph, nullptr);
  graph.is_capturing = false;
  if (capture.is_invalid && capture.owns_graph) graphs_.destroy(graph);
  capture.has_ended = true;
  std::erase_if(by_stream_, [&](const auto& entry) { return entry.second.capture.get() == &capture; });
}

CaptureRef Captures::find(const Stream& stream) const {
  const auto found = by_stream_.find(number_of(stream));
  return found == by_stream_.end() ? nullptr : found->second.capture;
}

std::vector<CaptureRef> Captures::implied_by(const Stream& stream) const {
  std::vector<CaptureRef> implied;
  if (options_of(stream).kind != StreamKind::kLegacyDefault) return implied;
  for (const auto& [number, entry] : by_stream_) {
    const bool is_blocking = entry.options.kind == StreamKind::kBlocking;
    if (is_blocking && entry.options.context == options_of(stream).context) implied.push_back(entry.capture);
  }
  return implied;
}

CUresult Captures::check_use(const Stream& stream) {
  const auto implied = implied_by(stream);
  for (const CaptureRef& capture : implied) capture->is_invalid = true;
  if (!implied.empty()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  const CaptureRef capture = find(stream);
  return capture != nullptr && capture->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult Captures::check_no_capture(const Stream& stream) {
  if (const CUresult result = check_use(stream); result != CUDA_SUCCESS) return result;
  const CaptureRef capture = find(stream);
  if (capture == nullptr) return CUDA_SUCCESS;
  capture->is_invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult Captures::check_no_capture_in(std::uint64_t context) {
  CUresult result = CUDA_SUCCESS;
  for (const auto& [number, entry] : by_stream_) {
    if (entry.options.context != context) continue;
    entry.capture->is_invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

/// Whether the capture forbids the thread unsafe calls; cuda.h says which does under
/// cuThreadExchangeStreamCaptureMode.
bool Captures::forbids(const Capture& capture) {
  if (thread_mode() == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture.thread == std::this_thread::get_id()) return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return thread_mode() == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult Captures::check_unsafe() {
  CUresult result = CUDA_SUCCESS;
  for (const auto& [number, entry] : by_stream_) {
    if (!forbids(*entry.capture)) continue;
    entry.capture->is_invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult Captures::refuse(const CapturedPoint& point) {
  if (point.capture->has_ended) return CUDA_ERROR_INVALID_VALUE;
  point.capture->is_invalid = true;
  return CUDA_ERROR_CAPTURED_EVENT;
}

GraphNode& Captures::add(const Stream& stream, Action action) {
  Capture& capture = *find(stream);
  std::vector<NodeNumber>& tips = capture.tips[number_of(stream)];
  GraphNode& node = graphs_.add(*capture.graph, std::move(action), tips);
  tips = {node.number};
  return node;
}

CapturedPoint Captures::point(const Stream& stream) const {
  CaptureRef capture = find(stream);
  std::vector<NodeNumber> tips = capture->tips[number_of(stream)];
  return {std::move(capture), std::move(tips)};
}

CUresult Captures::wait(const Stream& stream, const CapturedPoint& point) {
  if (const CUresult result = check_use(stream); result != CUDA_SUCCESS) return result;
  if (point.capture->has_ended) return isolate(stream);
  if (options_of(stream).kind == StreamKind::kLegacyDefault) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  const CaptureRef own = find(stream);
  if (own != nullptr && own != point.capture) {
    own->is_invalid = point.capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (point.capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  by_stream_[number_of(stream)] = {point.capture, options_of(stream)};
  add_missing(point.capture->tips[number_of(stream)], point.tips);
  return CUDA_SUCCESS;
}

CUresult Captures::isolate(const Stream& stream) {
  if (const CaptureRef capture = find(stream)) capture->is_invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

void Captures::forget(const Stream& stream) { forget(number_of(stream)); }

void Captures::forget(std::uint64_t stream) {
  const auto found = by_stream_.find(stream);
  if (found == by_stream_.end()) return;
  const CaptureRef capture = found->second.capture;
  by_stream_.erase(found);
  if (capture->origin != stream) return;
  capture->is_invalid = true;
  finish(*capture);
}

void Captures::forget_all_of(std::uint64_t context) {
  std::vector<std::uint64_t> streams;
  for (const auto& [number, entry] : by_stream_) {
    if (entry.options.context == context) streams.push_back(number);
  }
  for (const std::uint64_t stream : streams) forget(stream);
}

}  // namespace gpumem::sim
