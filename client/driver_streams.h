#pragma once
#include <deque>
#include <unordered_map>
#include <vector>

#include "client/allocator/stream_port.h"
#include "cuda/event.h"

namespace gpumem::client {

/// The streams of one device, through reusable events. Creates no context and disturbs no graph capture.
/// An event belongs to its stream's context. Each context has its own legacy default stream. The one of the
/// context that was current at the stream's first use is meant, else that of the device's primary context; if
/// there is neither, there is no work. The per-thread default stream is that of the calling thread's context.
/// Drivers before CUDA 12.0 have no ids of streams, so a handle means the same stream until it is released.
/// Threads  as StreamPort: one at a time, except wait.
class DriverStreams final : public allocator::StreamPort {
 public:
  DriverStreams(const cuda::Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}
  /// Drops all marks.
  ~DriverStreams() override;

  Result<Id> meet(StreamHandle stream) override;
  Result<Mark> mark(StreamHandle stream) override;
  bool reached(Mark mark) override;
  Result<void> order(StreamHandle stream, Mark mark) override;
  Result<void> wait(Mark mark) override;
  void drop(Mark mark) override;
  void wait_for_context() override;

 private:
  /// An event at a fixed address, which is the mark.
  struct Spot {
    CUcontext context = nullptr;
    cuda::Event event;
  };
  /// The mark of no work, which is always reached.
  static constexpr Mark kNoWork{1};
  static Spot& spot_of(Mark mark);

  /// The context of `stream`'s work. Null if there is none.
  CUresult find_context(CUstream stream, CUcontext& context);
  CUresult find_current(CUcontext& context) const;
  CUresult find_primary(CUcontext& context);
  /// `context` was destroyed, and its events with it.
  void give_up(CUcontext context);
  CUresult record(CUstream stream, CUcontext context, Spot*& spot);
  CUresult record_in(const Spot& spot, CUstream stream) const;
  Spot& new_spot(CUcontext context);
  /// Fails if `stream` is being captured, because an event recorded then would belong to the graph.
  CUresult check_not_captured(CUstream stream) const;

  const cuda::Driver& driver_;
  const int ordinal_;
  CUcontext legacy_ = nullptr;   ///< of the legacy default stream, once known
  CUcontext primary_ = nullptr;  ///< retained, once it was needed
  std::deque<Spot> spots_;
  std::vector<Spot*> blank_;                                ///< without an event
  std::unordered_map<CUcontext, std::vector<Spot*>> free_;  ///< with one that nobody needs
};

}  // namespace gpumem::client
