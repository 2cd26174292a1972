#pragma once
#include <deque>
#include <unordered_map>
#include <vector>

#include "client/allocator/stream_port.h"
#include "cuda/event.h"

namespace gpumem::client {

/// The streams of one device, through events that serve again and again. Makes no context, and disturbs no
/// capture of a graph.
/// An event belongs to its stream's context. The legacy default stream is one in each context: meant is that
/// of the context which was current when the stream was met, or else of the device's primary context; where
/// neither is, no work can be. The per-thread default stream is that of the calling thread's context.
/// Threads  as StreamPort: one at a time, save wait.
class DriverStreams final : public allocator::StreamPort {
 public:
  DriverStreams(const cuda::Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}
  /// No mark is needed any more.
  ~DriverStreams() override;

  Result<void> meet(StreamHandle stream) override;
  Result<Mark> mark(StreamHandle stream) override;
  bool reached(Mark mark) override;
  Result<void> order(StreamHandle stream, Mark mark) override;
  Result<void> wait(Mark mark) override;
  void drop(Mark mark) override;
  void forget(StreamHandle stream) override;

 private:
  /// An event, in its place for good: a mark is its address.
  struct Spot {
    CUcontext context = nullptr;
    cuda::Event event;
  };
  /// Of work that is none: behind nothing.
  static constexpr Mark kNoWork{1};
  static Spot& spot_of(Mark mark);

  /// The context of `stream`'s work; null: there is none.
  CUresult find_context(CUstream stream, CUcontext& context);
  CUresult find_current(CUcontext& context) const;
  CUresult find_primary(CUcontext& context);
  /// `context` is no more, nor are its events.
  void give_up(CUcontext context);
  CUresult record(CUstream stream, CUcontext context, Spot*& spot);
  Spot& new_spot(CUcontext context);
  /// Success unless `stream` is being captured: an event recorded then would be the graph's.
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
