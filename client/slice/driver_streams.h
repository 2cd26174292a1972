#pragma once
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "client/allocator/backing.h"
#include "cuda/event.h"

namespace gpumem::client {

/// The streams of one device, through reusable events. Creates no context and disturbs no graph capture.
/// An event belongs to its stream's context. Each call enters that context, so it does not matter which one
/// is current on the calling thread, or whether that one was destroyed. Each context has its own legacy
/// default stream. The one of the context that was current at the stream's first use is meant, else that of
/// the device's primary context, else that of a context in which another stream was met; if there is none,
/// there is no work. The per-thread default stream is that of the calling thread's context. Drivers before
/// CUDA 12.0 have no ids of streams, so a handle means the same stream until it is released. Threads  as
/// StreamPort: one at a time, except wait.
class DriverStreams final : public allocator::StreamPort {
 public:
  /// `announces_ends`  as StreamPort says.
  DriverStreams(const cuda::Driver& driver, int ordinal, bool announces_ends = false)
      : driver_(driver), ordinal_(ordinal), announces_ends_(announces_ends) {}
  /// Drops all marks.
  ~DriverStreams() override;

  bool announces_ends() const override { return announces_ends_; }
  Result<Id> meet(StreamHandle stream) override;
  bool is_default_current() const override;
  /// The legacy default stream is that of the context that is current at its next use.
  void forget_default() { legacy_ = {}; }
  Result<Mark> mark(StreamHandle stream) override;
  Result<Mark> mark_met(StreamHandle stream) override;
  std::optional<Id> id_of(StreamHandle stream) override;
  bool renew(Mark mark, StreamHandle stream) override;
  Progress ask(Mark mark) override;
  Result<void> order(StreamHandle stream, Mark mark) override;
  Result<void> wait(Mark mark) override;
  void drop(Mark mark) override;
  void forget(StreamHandle stream, Id id) override;
  Result<void> wait_for_contexts() override;

 private:
  /// An event at a fixed address, which is the mark.
  struct Spot {
    cuda::ContextName context;
    cuda::Event event;
  };
  /// The mark of no work, which is always reached.
  static constexpr Mark kNoWork{1};
  static Spot& spot_of(Mark mark);

  /// The context that a stream was met in.
  struct Met {
    cuda::ContextName context;
    Id id{};
  };

  /// The context of `stream`'s work. Null if there is none. An error tells nothing about that work.
  CUresult find_context(CUstream stream, cuda::ContextName& context);
  /// `id`  of the stream, if there is a context, unless that is null.
  CUresult find_context_of_default(CUstream stream, cuda::ContextName& context, Id* id = nullptr);
  CUresult find_current(CUcontext& context) const;
  CUresult find_primary(CUcontext& context);
  /// Asks the driver for the context of a created stream, from any known context that can be entered.
  CUresult ask_context(CUstream stream, CUcontext& context);
  template <class Context>
  bool can_enter(const Context& context) const {
    return cuda::EnteredContext(driver_, context).result() == CUDA_SUCCESS;
  }
  /// Names `context`, from within it, and remembers it. `id`  of `stream`, unless that is null.
  CUresult name(CUcontext context, cuda::ContextName& named, CUstream stream = nullptr, Id* id = nullptr);
  /// The answer to `call`, which asks about an event of `spot`. Success: its work is over.
  CUresult ask_event(const Spot& spot, CUresult (*call)(CUevent)) const;
  /// `context` was destroyed, and its events with it.
  void give_up(const cuda::ContextName& context);
  CUresult record(CUstream stream, const cuda::ContextName& context, Spot*& spot);
  CUresult record_in(const Spot& spot, CUstream stream) const;
  Spot& new_spot(const cuda::ContextName& context);
  /// Fails if `stream` is being captured, because an event recorded then would belong to the graph.
  CUresult check_not_captured(CUstream stream) const;

  const cuda::Driver& driver_;
  const int ordinal_;
  const bool announces_ends_;
  cuda::ContextName legacy_;                 ///< of the legacy default stream, once known
  std::vector<cuda::ContextName> contexts_;  ///< with work of streams that were met
  std::unordered_map<CUstream, Met> met_;
  std::deque<Spot> spots_;
  std::vector<Spot*> blank_;                              ///< without an event
  std::map<cuda::ContextName, std::vector<Spot*>> free_;  ///< with one that nobody needs
};

}  // namespace gpumem::client
