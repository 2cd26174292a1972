#pragma once
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/core/arrivals.h"
#include "daemon/core/indexed_heap.h"
#include "daemon/core/request.h"

namespace gpumem::core {

/// The requests that wait: by id, by session, by deadline, and in the order they came. Everything takes
/// logarithmic time at most.
///
/// What there is of a request lies in one record, and records lie one after the other: with many requests
/// most of the time goes to memory that is not in a cache.
class WaitingRequests {
 public:
  explicit WaitingRequests(std::size_t devices) : arrivals_(devices) {}

  /// `request`  with a larger id than all before, and asked no earlier; or one whose place is kept.
  const Request& add(Request request);
  /// Keeps a place behind all others for a request that waited at the broker before.
  void keep_place(RequestId id);
  /// Nobody comes to that place any more.
  void release_place(RequestId id) { arrivals_.release(id); }
  /// The request waits.
  Request take(RequestId id);
  void set_recorded(RequestId id) { records_[slots_.at(id)].request.is_recorded = true; }

  const Request* find(RequestId id) const;
  const Request& at(RequestId id) const { return records_[slots_.at(id)].request; }
  std::size_t size() const { return slots_.size(); }
  std::size_t size(DeviceIndex device) const { return arrivals_.waiting(device); }
  /// Requests for the device that came before, whether this one waits or not.
  std::size_t before(RequestId id, DeviceIndex device) const { return arrivals_.waiting_before(id, device); }
  template <class See>
  void for_each(See&& see) const {
    arrivals_.for_each([&](Slot slot) { see(records_[slot].request); });
  }

  /// The one whose deadline comes first.
  const Request* most_urgent() const {
    return deadlines_.empty() ? nullptr : &records_[deadlines_.top().item].request;
  }
  /// The first of those that are not marked as overdue.
  const Request* next_to_age() const {
    const Slot slot = arrivals_.marked();
    return slot == kNone ? nullptr : &records_[slot].request;
  }
  void mark_overdue() { arrivals_.pass(); }
  void unmark_all() { arrivals_.unmark(); }

  void set_tenant(SessionId session, TenantId tenant);
  std::vector<RequestId> of(SessionId session) const;
  std::size_t count_of(SessionId session) const;
  /// Whether a request of the session for the device is `id`, or came before that.
  bool waits_up_to(RequestId id, SessionId session, DeviceIndex device) const;
  Bytes wanted_for(SliceId slice) const;

 private:
  using Slot = std::uint32_t;
  static constexpr Slot kNone = Arrivals::kNone;

  struct Record {
    Request request;
    std::uint32_t place = 0;  ///< of its arrival
    Slot previous = kNone;    ///< of the same session
    Slot next = kNone;
  };
  struct OfSession {
    Slot first = kNone;
    std::uint32_t count = 0;
  };
  struct Deadline {
    TimePoint at;
    Slot item = kNone;
    bool operator<(const Deadline& other) const { return at < other.at; }
  };

  Slot new_slot();
  void renumber();
  void count(const Record& record);
  void link(Slot slot);
  void unlink(const Record& record);

  std::vector<Record> records_;
  std::vector<Slot> vacant_;
  boost::unordered_flat_map<RequestId, Slot, std::hash<RequestId>> slots_;
  boost::unordered_flat_map<SessionId, OfSession, std::hash<SessionId>> by_session_;
  boost::unordered_flat_map<SliceId, Bytes, std::hash<SliceId>> by_slice_;
  Arrivals arrivals_;
  IndexedHeap<Deadline> deadlines_;
  HeapPositions deadline_positions_;
};

}  // namespace gpumem::core
