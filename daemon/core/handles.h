#pragma once
#include <array>
#include <boost/container/flat_set.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <map>
#include <vector>

#include "daemon/core/outbox.h"
#include "daemon/core/types.h"
#include "gpumem/result.h"

namespace gpumem::core {

/// A range of one session's memory, for which a handle stands.
struct Handle {
  SessionId holder;
  DeviceIndex device = 0;
  std::vector<LeaseId> leases;  ///< in the range's order
  Bytes offset;                 ///< of the range, in the leases one after the other
  Bytes bytes;
  TimePoint expires;
  std::uint64_t uses = 1;  ///< so often can it still be redeemed
};

/// The handles that were given out. A handle ends when it is used up or expires, and with any of its leases.
class Handles {
 public:
  /// `outbox`  is told of each, for the next broker; outlives it.
  explicit Handles(Outbox& outbox) : outbox_(outbox) {}

  static constexpr std::size_t kMostOfSession = 1024;
  /// So many extents can be told of at once.
  static constexpr std::size_t kMostLeases = 128;

  /// Errors  kResourceExhausted: the holder has as many as it may.
  Result<void> add(const HandleBytes& bytes, Handle handle, TimePoint now);
  /// Nothing: there is none (any more).
  const Handle* find(const HandleBytes& bytes, TimePoint now) const;
  /// Counts one more redemption of the handle.
  void use(const HandleBytes& bytes);
  /// Ends one. False: the holder has none of these bytes.
  bool revoke(SessionId holder, const HandleBytes& bytes);
  /// All of them, expired ones too.
  void add_to(Checkpoint& checkpoint) const;
  /// Ends those that stand for `lease`.
  void drop(LeaseId lease);
  void drop_all_of(SessionId holder);

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
  void drop_expired(SessionId holder, TimePoint now);
  void erase(Number number);

  Outbox& outbox_;
  Number last_ = 0;
  std::map<Number, Entry> handles_;
  boost::unordered_flat_map<HandleBytes, Number, Hash> by_bytes_;
  boost::unordered_flat_map<SessionId, Numbers, std::hash<SessionId>> by_holder_;
  boost::unordered_flat_map<LeaseId, Numbers, std::hash<LeaseId>> by_lease_;
};

}  // namespace gpumem::core
