#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "sim/driver/graphs/captures.h"
#include "sim/driver/reused_handles.h"
#include "sim/driver/streams.h"
#include "sim/machine/shared_event.h"

namespace gpumem::sim {

/// A point in a stream's order, put there by record(); never recorded, it is done. An event that other
/// processes may see keeps its state in a page they share.
/// Threads: the caller holds the driver's lock, but for what waiter() returns.
class Event {
 public:
  Event(std::uint64_t owner, unsigned event_flags, std::shared_ptr<SharedEvent> page)
      : context(owner), flags(event_flags), shared(std::move(page)) {}

  void record(Streams& streams, const StreamRef& stream);
  bool is_done() const;
  /// Waits until the latest record() is done; call without the driver's lock.
  Work waiter() const;
  /// Later work of `stream` comes after the latest record().
  void hold_back(Streams& streams, const StreamRef& stream) const;

  /// The latest record() is a point of a capture, and of no stream's work.
  void record(CapturedPoint point) { captured_ = std::move(point); }
  /// That point; nothing if the latest record() was in a stream, or there was none.
  const std::optional<CapturedPoint>& captured() const { return captured_; }
  bool was_recorded() const { return shared != nullptr || captured_ || last_.stream() != 0; }

  /// Whether the event was recorded with its time.
  bool has_time() const { return recorded_at_ != nullptr; }
  /// When the work before it was done; only if is_done().
  std::chrono::nanoseconds time() const { return *recorded_at_; }

  const std::uint64_t context;
  const unsigned flags;
  /// The part that other processes see; nullptr: none.
  const std::shared_ptr<SharedEvent> shared;

 private:
  Ticket last_;
  std::optional<CapturedPoint> captured_;
  std::shared_ptr<std::chrono::nanoseconds> recorded_at_;
};

/// The events of one process, by handle. Threads: the caller holds the driver's lock.
class Events {
 public:
  std::uint64_t create(std::uint64_t context, unsigned flags, std::shared_ptr<SharedEvent> shared);
  void destroy(std::uint64_t handle);
  void destroy_all_of(std::uint64_t context);
  /// nullptr if there is none.
  Event* find(std::uint64_t handle);
  /// The event that a call names; nullptr if there is none. Ends the process if it was destroyed.
  Event* named(std::uint64_t handle);

 private:
  std::map<std::uint64_t, Event> events_;
  ReusedHandles handles_{0xe0'0000'0000};
};

}  // namespace gpumem::sim
