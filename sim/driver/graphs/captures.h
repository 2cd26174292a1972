#pragma once
#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "sim/driver/graphs/graphs.h"
#include "sim/driver/streams.h"

namespace gpumem::sim {

/// One capture sequence: what is submitted to its streams becomes nodes of a graph.
struct Capture {
  std::uint64_t id = 0;
  Graph* graph = nullptr;
  bool owns_graph = true;    ///< false: it adds to a graph of the program's
  std::uint64_t origin = 0;  ///< the stream where it began, and has to end
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  bool is_invalid = false;
  bool has_ended = false;
  /// By stream of the capture: what its next node depends on.
  std::map<std::uint64_t, std::vector<NodeNumber>> tips;
  /// By stream: the tips as the program was last told them.
  std::map<std::uint64_t, std::vector<CUgraphNode>> told;
  std::map<std::uint64_t, std::vector<std::uint64_t>> told_edges;  ///< the data of their edges: zeros
};
using CaptureRef = std::shared_ptr<Capture>;

/// A point in a capture, as an event keeps it.
struct CapturedPoint {
  CaptureRef capture;
  std::vector<NodeNumber> tips;
};

/// The captures of one process, and the rules of what is allowed meanwhile. A call that breaks a rule
/// invalidates the captures that it concerns: nothing can be added then, and their end fails.
/// Threads: the caller holds the driver's lock; "the thread" is the calling one.
class Captures {
 public:
  explicit Captures(Graphs& graphs) : graphs_(graphs) {}

  /// `into`  a graph of the program's, whose `tips` the first node depends on; nullptr: a new graph.
  /// Errors  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: the legacy default stream; CUDA_ERROR_ILLEGAL_STATE: the
  /// stream is in a capture.
  CUresult begin(const Stream& stream, CUstreamCaptureMode mode, Graph* into = nullptr,
                 std::vector<NodeNumber> tips = {});
  /// Ends the stream's capture and answers its graph. Where it fails there is none, but for a wrong thread or
  /// stream the capture goes on.
  /// Errors  CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, _WRONG_THREAD, _INVALIDATED,
  /// _UNJOINED.
  CUresult end(const Stream& stream, CUgraph* out);

  /// The capture that the stream is in, valid or not; nullptr: none.
  CaptureRef find(const Stream& stream) const;
  /// The captures that use of the stream would come after, as it is the legacy default one.
  std::vector<CaptureRef> implied_by(const Stream& stream) const;

  /// Success if work may be submitted to the stream. Errors  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, after which
  /// the captures that it concerns are invalid; CUDA_ERROR_STREAM_CAPTURE_INVALIDATED.
  CUresult check_use(const Stream& stream);
  /// Success if work that cannot be captured may be submitted to the stream. Errors  also
  /// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, which invalidates.
  CUresult check_no_capture(const Stream& stream);
  /// Success if work that cannot be captured may concern all streams of the context.
  CUresult check_no_capture_in(std::uint64_t context);
  /// Success if the thread may make calls that a capture cannot see.
  /// Errors  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: the captures that forbid it are invalid.
  CUresult check_unsafe();
  /// Invalidates the captures that `point` is in, and answers CUDA_ERROR_CAPTURED_EVENT; where they have
  /// ended, CUDA_ERROR_INVALID_VALUE.
  static CUresult refuse(const CapturedPoint& point);

  /// Adds a node after what the stream has captured. The stream is in a valid capture.
  GraphNode& add(const Stream& stream, Action action);
  /// Where the stream is in its capture.
  CapturedPoint point(const Stream& stream) const;
  /// Orders the stream's later captured work after `point`. The stream may join the point's capture that way.
  /// Errors  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, _INVALIDATED, _MERGE (both captures are invalid),
  /// _ISOLATION (the point's capture has ended).
  CUresult wait(const Stream& stream, const CapturedPoint& point);
  /// Invalidates the stream's capture if there is one, and answers CUDA_ERROR_STREAM_CAPTURE_ISOLATION.
  CUresult isolate(const Stream& stream);

  /// The stream goes away. A capture that began there ends without a graph; in another one, what the stream
  /// has captured still has to be joined.
  void forget(const Stream& stream);
  /// Forgets all streams of a context.
  void forget_all_of(std::uint64_t context);

  /// The thread's own mode.
  static CUstreamCaptureMode& thread_mode();

 private:
  struct Entry {
    CaptureRef capture;
    StreamOptions options;  ///< of the stream
  };
  void finish(Capture& capture);
  void forget(std::uint64_t stream);
  static bool forbids(const Capture& capture);

  Graphs& graphs_;
  std::map<std::uint64_t, Entry> by_stream_;
  std::uint64_t last_id_ = 0;
};

}  // namespace gpumem::sim
