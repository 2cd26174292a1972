#pragma once
#include <optional>
#include <vector>

#include "daemon/core/lending/leases.h"
#include "daemon/core/sessions/state.h"

namespace gpumem::core {

/// The size of elastic pools. An elastic pool holds the memory that is lent or reserved, the memory that
/// unmet guarantees need, a small stock, and the memory that the next waiting request lacks. Bytes that are
/// free beyond that for kIdle leave the pool.
///
/// Memory is created before it is granted, so free memory of the ledger is always there. Besides, the ledger
/// is told how much can be created (Ledger::creatable()).
class Elastic {
 public:
  static constexpr Bytes kStock{256ULL << 20};
  static constexpr Duration kIdle = std::chrono::seconds(10);

  /// Both outlive it.
  Elastic(State& state, Leases& leases);

  /// Follows DevicePolicy::is_elastic(), which may have changed.
  void follow_policy(TimePoint now);
  /// Tells the stores what to create and what to give back. To be called after grants.
  void update(TimePoint now);
  /// Tells the ledger what the stores have come to.
  void note_figures();
  std::optional<TimePoint> next_deadline() const;

  /// Whether the request lacks memory that the pools can grow by, as far as it is known.
  bool can_create_for(const Request& request) const;
  /// As can_create_for(), and the stores are about to create it.
  bool is_creating_for(const Request& request) const;
  /// The time that a request may need for memory that it lacks to be created.
  Duration patience(const Request& request) const;

 private:
  struct Device {
    std::optional<TimePoint> surplus_since;
    Bytes surplus;  ///< the least since then
  };

  bool is_elastic(DeviceIndex device) const { return state_.policy.devices[device].is_elastic(); }
  Bytes stock(DeviceIndex device) const;
  void update(DeviceIndex device, TimePoint now);
  void note_figures(DeviceIndex device);
  void give_back(DeviceIndex device, Bytes surplus, TimePoint now);
  /// Calls `each(device, lack)` for each elastic device whose free memory does not suffice for the request.
  /// Returns false if `each` did, or if something else holds the request back.
  template <class Each>
  bool all_lacks(const Request& request, Each&& each) const;

  State& state_;
  Leases& leases_;
  std::vector<Device> devices_;
};

}  // namespace gpumem::core
