#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "daemon/core/types.h"

namespace gpumem::core {

/// The order in which requests came, and how many of those that wait for a device came before another. A
/// request has a slot of its own as long as it waits, and a place in the order, which only renumber()
/// changes. A place can be kept for a request that comes later. Takes memory by the requests that wait, not
/// by those that have gone.
class Arrivals {
 public:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  explicit Arrivals(std::size_t devices) : counters_(devices) {}

  /// The next add() needs renumber() first.
  bool full() const { return slots_.size() == capacity_; }
  /// Closes the gaps: calls `moved(slot, place)` for all that wait, in their order, and they are to be
  /// counted anew.
  template <class Moved>
  void renumber(Moved&& moved);

  std::uint32_t add(RequestId request, std::uint32_t slot) {
    requests_.push_back(request);
    slots_.push_back(slot);
    ++size_;
    return static_cast<std::uint32_t>(slots_.size() - 1);
  }
  /// A place behind all others for a request that comes later; add() has room.
  void keep(RequestId request) {
    add(request, kKept);
    skip();
  }
  /// Nobody comes to the place that is kept for the request any more; nothing, if none is.
  void release(RequestId request);
  /// The request comes to the place that is kept for it. None: none is.
  std::optional<std::uint32_t> fill(RequestId request, std::uint32_t slot);
  void remove(std::uint32_t place) {
    slots_[place] = kNone;
    --size_;
    skip();
  }
  /// Whoever has the place waits for the device, or does so no longer.
  void count(std::uint32_t place, DeviceIndex device) { counters_[device].set(place); }
  void uncount(std::uint32_t place, DeviceIndex device) { counters_[device].clear(place); }

  std::size_t waiting(DeviceIndex device) const { return counters_[device].size; }
  /// Whether `request` itself waits or not.
  std::size_t waiting_before(RequestId request, DeviceIndex device) const;
  template <class See>
  void for_each(See&& see) const {
    for (const std::uint32_t slot : slots_) {
      if (slot < kKept) see(slot);
    }
  }

  /// The first that waits of those behind the mark, or kNone. Places that are kept are passed over; the mark
  /// returns to one that is filled.
  std::uint32_t marked() const { return mark_ < slots_.size() ? slots_[mark_] : kNone; }
  /// Moves the mark behind that one.
  void pass() {
    ++mark_;
    skip();
  }
  /// Puts it before all.
  void unmark() {
    mark_ = 0;
    skip();
  }

 private:
  static constexpr std::uint32_t kKept = kNone - 1;

  // A bit for each place, and sums of words of them in a Fenwick tree.
  struct Counter {
    std::vector<std::uint64_t> words;
    std::vector<std::uint32_t> sums;
    std::size_t size = 0;
    void reset(std::size_t capacity);
    void set(std::uint32_t place);
    void clear(std::uint32_t place);
    std::size_t before(std::uint32_t place) const;
  };

  template <class Value>
  static void fit(std::vector<Value>& values, std::size_t capacity) {
    values.shrink_to_fit();
    values.reserve(capacity);
  }
  void skip() {
    while (mark_ < slots_.size() && slots_[mark_] >= kKept) ++mark_;
  }

  std::vector<RequestId> requests_;   ///< by place
  std::vector<std::uint32_t> slots_;  ///< by place; kKept before the request comes, kNone once it has gone
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
  std::size_t mark_ = 0;
  std::vector<Counter> counters_;  ///< by device
};

template <class Moved>
void Arrivals::renumber(Moved&& moved) {
  for (capacity_ = 64; capacity_ < 2 * size_;) capacity_ *= 2;
  for (Counter& counter : counters_) counter.reset(capacity_);
  std::size_t end = 0;
  std::size_t mark = 0;
  for (std::size_t place = 0; place < slots_.size(); ++place) {
    if (place == mark_) mark = end;
    if (slots_[place] == kNone) continue;
    slots_[end] = slots_[place];
    requests_[end] = requests_[place];
    if (slots_[end] != kKept) moved(slots_[end], static_cast<std::uint32_t>(end));
    ++end;
  }
  mark_ = mark_ >= slots_.size() ? end : mark;
  slots_.resize(end);
  requests_.resize(end);
  fit(slots_, capacity_);
  fit(requests_, capacity_);
}

}  // namespace gpumem::core
