#pragma once
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/core/sessions/state.h"
#include "daemon/core/words/usage.h"

namespace gpumem::core {

/// Counts how much memory each tenant uses, and for how long: what a tenant has, with those below it, and
/// what it waits for itself. Accounts go by name, and stay when their tenant is gone, the latest of them.
///
/// An account is written down when its amounts change, at most once a second, with the amounts. The next
/// broker counts them from then on until it finds its own: it misses a second of a change at most.
class UsageMeters {
 public:
  static constexpr Duration kRecordInterval = std::chrono::seconds(1);
  static constexpr std::size_t kMostGone = 4096;  ///< accounts of tenants that are gone

  explicit UsageMeters(State& state) : state_(state) {}

  /// Takes over what the last event has changed. To be called at the end of each event; takes time by the
  /// number of changed accounts.
  void sync(TimePoint now);

  /// After another broker, once its leases are restored. `devices`  by the checkpoint's places; none: not
  /// lent any more.
  void restore(const Checkpoint::Accounts& from, const std::vector<std::optional<DeviceIndex>>& devices,
               TimePoint now);
  /// Likewise what sessions and jobs have spent, once their charges outside the pool are restored, too.
  void restore(const Checkpoint::AllSpent& from, TimePoint now);
  void add_to(Checkpoint& checkpoint) const;

  /// In the order of the names, from the one behind `after` on, of `most` names at most (not zero). The first
  /// name is empty: it has the devices as a whole.
  UsagePage usage(const std::optional<std::string>& after, std::size_t most, TimePoint now) const;

 private:
  struct Meter {
    UseLevels levels{};
    Usage sums{};
    TimePoint since{};  ///< `sums` are up to here
    TimePoint began{};
    std::optional<Checkpoint::Account> recorded;
    bool is_unwritten = false;  ///< `levels` differ from those of `recorded`
  };
  struct Account {
    TenantId tenant;                           ///< none: gone, or all of the device
    std::uint64_t gone = 0;                    ///< the place among those that are gone; 0: it is not
    std::vector<std::optional<Meter>> meters;  ///< by device
  };
  using Accounts = std::map<std::string, Account>;

  struct Waiting {
    TenantId owner;  ///< that it counts for
    Bytes bytes;
  };

  void renew(Session& session, TimePoint now);
  void renew(CommandJob& job, TimePoint now);
  Bytes charged(const CommandJob& job) const;
  void record(const Checkpoint::Spent& one);
  void take_waiting(TenantId leaf, DeviceIndex device, TimePoint now);
  void count(const Waiting& waiting, DeviceIndex device, bool more);
  void renew_up(TenantId leaf, DeviceIndex device, TimePoint now);
  void renew(TenantId tenant, DeviceIndex device, TimePoint now);
  void close(TenantId tenant, DeviceIndex device, TimePoint now);
  void set_levels(Accounts::value_type& account, DeviceIndex device, const UseLevels& levels, TimePoint now);
  void record(Accounts::value_type& account, DeviceIndex device);
  void record_what_is_due(TimePoint now);
  Accounts::value_type& account_of(TenantId tenant);
  void leave(Accounts::value_type& account);
  UseLevels levels_of(TenantId tenant, DeviceIndex device) const;
  static void advance(Meter& meter, TimePoint now);

  State& state_;
  Accounts accounts_;
  std::unordered_map<TenantId, Accounts::value_type*> of_tenant_;
  std::map<std::uint64_t, std::string> gone_;  ///< in the order in which they left
  std::uint64_t last_gone_ = 0;
  std::map<std::pair<TenantId, DeviceIndex>, Waiting> waiting_;   ///< of the requests of a leaf
  std::map<std::pair<TenantId, DeviceIndex>, Bytes> waiting_of_;  ///< by tenant; no tenant: in all
  /// What the first event from a time on is to write down.
  std::multimap<TimePoint, std::pair<std::string, DeviceIndex>> unwritten_;
  Ledger::Changes touched_;  ///< a buffer for sync()
};

}  // namespace gpumem::core
