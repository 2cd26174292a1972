#pragma once
#include <compare>
#include <utility>

#include "cuda/driver.h"

// Marks in the work of streams. Answers are the driver's own: what one means for the work depends on the
// asker.

namespace gpumem::cuda {

/// Owns an event that takes no time.
class Event {
 public:
  Event() = default;
  /// Makes `event` one of the current context.
  static CUresult create(const Driver& driver, Event& event);

  Event(Event&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)), event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event();

  CUevent get() const { return event_; }
  /// Forgets the event, which has gone with its context.
  void abandon() { driver_ = nullptr; }

 private:
  const Driver* driver_ = nullptr;
  CUevent event_ = nullptr;
};

/// A context, and the number that tells it from a later one with the same handle: zero before CUDA 12.0.
struct ContextName {
  CUcontext handle = nullptr;
  unsigned long long id = 0;
  auto operator<=>(const ContextName&) const = default;
};

/// Makes `context` current on this thread for its lifetime; its life is the caller's concern.
class EnteredContext {
 public:
  EnteredContext(const Driver& driver, CUcontext context);
  /// Fails with CUDA_ERROR_CONTEXT_IS_DESTROYED if the handle is a later context's.
  EnteredContext(const Driver& driver, const ContextName& context);
  ~EnteredContext();
  EnteredContext(const EnteredContext&) = delete;
  EnteredContext& operator=(const EnteredContext&) = delete;

  /// Whether it is there and current, and why not.
  CUresult result() const { return result_; }
  /// The current context's id, if it is there.
  CUresult ask_id(unsigned long long& id) const;

 private:
  const Driver& driver_;
  CUresult result_ = CUDA_SUCCESS;
  bool pushed_ = false;
};

/// Whether the current context is there. The driver lets programs enter one that was destroyed, and names it
/// and its device.
CUresult check_current(const Driver& driver);

/// The context is no more.
bool is_context_gone(CUresult result);
/// The context, or the stream or event itself, is no more. Its work has ended with it.
bool is_gone(CUresult result);
/// The device has failed in the context's work: nothing of it runs any more.
bool is_broken(CUresult result);
/// A graph is being captured, so it cannot be told now.
bool is_of_capture(CUresult result);

}  // namespace gpumem::cuda
