#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "base/system/subordinate_ids.h"
#include "daemon/configuration.h"
#include "daemon/devices.h"
#include "daemon/host/config/accounts.h"
#include "daemon/host/config/live_quotas.h"
#include "daemon/host/driver/device_loads.h"
#include "daemon/host/driver/reconciler.h"
#include "daemon/host/loop/loop.h"
#include "daemon/host/sockets/api_listener.h"
#include "daemon/host/sockets/peer.h"
#include "daemon/host/state/runtime_folder.h"
#include "daemon/host/state/service_manager.h"
#include "daemon/lane/session_calls.h"
#include "daemon/metrics/metrics.h"
#include "daemon/rpc/server.h"

namespace gpumem {

/// The broker as a whole, wired.
class Daemon {
 public:
  /// Takes the runtime and the state folder, opens the driver, fills the pools, and serves. Where no driver
  /// is, a broker of a service manager waits for one, and says so to its clients: null if it was stopped
  /// meanwhile.   Blocks.
  /// `manager`  who watches, and keeps descriptors; outlives the daemon. `passed`  what it, or the broker
  /// before, has passed.
  static Result<std::unique_ptr<Daemon>> start(const Options& options, const host::ServiceManager& manager,
                                               host::PassedDescriptors passed);
  /// Stops taking work, lets calls under way end, then ends the lanes. Clients keep their memory.
  void stop();
  /// Likewise, for a broker that takes over in this process. Returns what it needs.
  host::NamedDescriptors hand_over();
  /// Tells whoever waits for the upgrade that there is none.
  void refuse_upgrade(const Error& why) { folder_.tell("not upgraded: " + why.message); }
  ~Daemon();

  /// Reads the configuration again, and puts it in force under the quotas that were set at run time; on any
  /// error the old one stays in force. Answers those who have asked for it. Errors  as check_config().
  Result<core::Unapplied> reload();
  /// Looks again for accounts that the configuration names and this machine lacks, and for users of
  /// containers. Puts what has come in force.   Blocks.
  void look_again();

 private:
  Daemon(Options options, host::RuntimeFolder folder)
      : options_(std::move(options)), folder_(std::move(folder)) {}
  std::filesystem::path simulated_machine() const;
  Result<std::filesystem::path> driver_folder() const;
  Result<void> serve(host::Config config, const host::ServiceManager& manager,
                     host::PassedDescriptors passed);
  Result<void> put_in_force(host::Config config, host::Accounts accounts);
  void follow_accounts(const host::Config& config, host::Accounts accounts);
  Result<void> await_driver(const Error& why, const std::string& traces, const host::ServiceManager& manager);
  host::NamedDescriptors end_service();
  Result<core::Unapplied> read_again();
  using ReloadAnswer = std::function<void(const Result<core::Unapplied>&)>;
  void ask_for_reload(ReloadAnswer answer);
  void refuse_reloads();
  Result<void> serve_calls();
  void start_watchdog(const host::ServiceManager& manager);
  // What the broker before has left.
  struct Inheritance {
    std::optional<host::Journal::Content> journal;
    std::map<LeaseId, host::KeptDescriptor> kept;
  };
  Result<void> start_loop(const host::Config& config, const std::filesystem::path& driver,
                          core::Policy policy, Inheritance before, const host::DescriptorStore* store);

  Options options_;
  host::RuntimeFolder folder_;
  Machine machine_;
  bool lacks_driver_ = false;
  host::Config config_;    ///< that it started with
  host::Config in_force_;  ///< that it has read last
  host::Accounts accounts_;
  host::KnownAccounts known_accounts_;
  host::Administrators administrators_;
  SubordinateIds subordinates_{options_.subuid_file};
  host::ApiConnections connections_{host::DescriptorBudget::of_process()};
  // Each posts to those before it.
  std::unique_ptr<lane::SessionCalls> lane_calls_;  ///< outlives the loop, whose thread calls it
  std::unique_ptr<host::Loop> loop_;
  std::unique_ptr<host::Reconciler> reconciler_;
  std::unique_ptr<host::DeviceLoads> loads_;
  std::unique_ptr<host::LiveQuotas> quotas_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<metrics::Metrics> metrics_;
  std::unique_ptr<host::ApiListener> api_;  ///< hands connections to the server
  std::unique_ptr<host::Watchdog> watchdog_;

  Mutex reloads_mutex_;
  /// Of `gpumem reload`; none: the service has ended.
  std::optional<std::vector<ReloadAnswer>> reloads_ GPUMEM_GUARDED_BY(reloads_mutex_){std::in_place};
};

}  // namespace gpumem
