#pragma once
#include <array>
#include <boost/container/flat_set.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "daemon/core/outbox.h"
#include "daemon/core/types.h"
#include "gpumem/result.h"

namespace gpumem::core {

/// What a handle stands for: a range of one session's memory, or a region.
struct Handle {
  SessionId holder;
  DeviceIndex device = 0;
  std::vector<LeaseId> leases;  ///< in the range's order
  Bytes offset;                 ///< of the range, in the leases one after the other
  Bytes bytes;
  TimePoint expires;
  std::uint64_t uses = 1;  ///< so often can it still be redeemed
  RegionId region{};       ///< none: the range
  TenantId tenant{};       ///< of a region's: the holder's, whose bound it counts against
};

/// The handles that were given out. A handle ends when it is used up or expires, and with any of its leases
/// or its region.
class Handles {
 public:
  /// `outbox`  is told of each, for the next broker; outlives it.
  explicit Handles(Outbox& outbox) : outbox_(outbox) {}

  static constexpr std::size_t kMostOfSession = 1024;
  /// Of regions: they all may be of one, and end in one event.
  static constexpr std::size_t kMostOfTenant = 4096;
  /// So many extents can be told of at once.
  static constexpr std::size_t kMostLeases = 128;

  /// Errors  kResourceExhausted: the holder, or its tenant, has as many as it may.
  Result<void> add(const HandleBytes& bytes, Handle handle, TimePoint now);
  /// Nothing: there is none (any more).
  const Handle* find(const HandleBytes& bytes, TimePoint now) const;
  /// It was redeemed once more.
  void use(const HandleBytes& bytes);
  /// Ends one. False: the holder has none of these bytes.
  bool revoke(SessionId holder, const HandleBytes& bytes);
  /// All of them, expired ones too.
  void add_to(Checkpoint& checkpoint) const;
  /// Ends those that stand for `lease`.
  void drop(LeaseId lease);
  void drop(RegionId region);
  void drop_all_of(SessionId holder);
  /// The holder belongs to another tenant now, whatever that has already.
  void move(SessionId holder, TenantId to);

 private:
  struct Hash {
    std::size_t operator()(const HandleBytes& bytes) const;
  };
  struct Entry {
    HandleBytes bytes{};
    Handle handle;
  };
  void record(const HandleBytes& bytes, const Handle& handle, std::uint64_t uses);
  using Number = std::uint64_t;
  using Numbers = boost::container::flat_set<Number>;
  using ByExpiry = std::set<std::pair<TimePoint, Number>>;
  Result<void> check_room(const Handle& handle, TimePoint now);
  void drop_expired(SessionId holder, TimePoint now);
  void drop_expired_of_regions(TenantId tenant, TimePoint now);
  void erase(Number number);

  Outbox& outbox_;
  Number last_ = 0;
  std::map<Number, Entry> handles_;
  boost::unordered_flat_map<HandleBytes, Number, Hash> by_bytes_;
  boost::unordered_flat_map<SessionId, Numbers, std::hash<SessionId>> by_holder_;
  boost::unordered_flat_map<LeaseId, Numbers, std::hash<LeaseId>> by_lease_;
  boost::unordered_flat_map<RegionId, std::set<Number>, std::hash<RegionId>>
      by_region_;                                                                 ///< of many sessions
  boost::unordered_flat_map<TenantId, ByExpiry, std::hash<TenantId>> by_tenant_;  ///< of regions
};

}  // namespace gpumem::core
