#pragma once
#include <optional>
#include <vector>

#include "daemon/core/sessions/outside.h"
#include "daemon/core/sessions/reconcile.h"
#include "daemon/core/sessions/state.h"

namespace gpumem::core {

/// Memory that was taken past the broker. Holds the driver's figures of a device against the ledger, charges
/// the difference, and ends processes for it where the policy says so.
class Unmanaged {
 public:
  /// Both outlive it.
  Unmanaged(State& state, Outside& outside);

  /// The driver is about to be asked what observe() will be told. What comes back in between may still be in
  /// its figures. `jobs_ended`  Store::ended().
  void begin_observation(DeviceIndex device, Bytes jobs_ended);
  /// `jobs_started`  Store::started().
  void observe(const Observation& observation, Bytes jobs_started, TimePoint now);
  /// Kills what was told to end, and has not.
  void tick(TimePoint now);
  std::optional<TimePoint> next_deadline() const;
  const Reconciliation& view(DeviceIndex device) const { return devices_.at(device).view; }

 private:
  class Look;
  PastBroker* watch_of(const Ending& ending);
  void kill(const Ending& ending, Bytes bytes, TimePoint now);

  State& state_;
  Outside& outside_;
  std::vector<Reconciled> devices_;
  std::vector<Ending> endings_;
};

}  // namespace gpumem::core
