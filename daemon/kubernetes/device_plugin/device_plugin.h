#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/system/unique_fd.h"
#include "daemon/kubernetes/claims/broker_client.h"
#include "daemon/kubernetes/claims/device_specs.h"
#include "daemon/kubernetes/device_plugin/kubelet_allocations.h"
#include "daemon/kubernetes/device_plugin/kubelet_link.h"
#include "daemon/kubernetes/device_plugin/plugin_service.h"
#include "daemon/kubernetes/device_plugin/unit_claims.h"
#include "daemon/kubernetes/device_plugin/units.h"
#include "daemon/kubernetes/plugin/reconcile_loop.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// Calls on a thread of its own whenever something has come into a folder, has been replaced there, or has
/// gone. One call may stand for several changes.
class FolderWatch {
 public:
  /// `on_change` must not block for long. Errors  of inotify(7), which name the folder.
  static Result<std::unique_ptr<FolderWatch>> start(const std::filesystem::path& folder,
                                                    std::function<void()> on_change);
  /// Waits for the call that is under way.
  ~FolderWatch();
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

 private:
  FolderWatch(UniqueFd events, UniqueFd stop, std::function<void()> on_change);
  void loop();

  UniqueFd events_;
  UniqueFd stop_;
  std::function<void()> on_change_;
  std::thread thread_;
};

/// The device plugin, all parts wired. It serves each kubelet that comes, from its start until its end, and
/// keeps nothing of its own: what pods have is the kubelet's and the broker's.
class DevicePlugin {
 public:
  struct Options {
    std::string domain = "gpumem.dev";  ///< of the resource's name
    Bytes unit = mebibytes(256);
    std::filesystem::path kubelet_folder = "/var/lib/kubelet";
    PluginService::Options service;
    DeviceSpecs::Options specs;
    std::chrono::milliseconds refresh_period{5'000};
    std::chrono::milliseconds patience{5'000};  ///< for the kubelet's checkpoint
  };

  /// Errors  kInvalidArgument: a unit that is not a multiple of 2 MiB, a path too long for a socket; of the
  ///         kubelet's folder and of the specification for containers.
  static Result<std::unique_ptr<DevicePlugin>> start(const Options& options);

  /// Claims stay, and pods go on.
  ~DevicePlugin();

 private:
  explicit DevicePlugin(const Options& options);
  Result<void> refresh_devices();

  BrokerClient broker_;
  DeviceSpecs specs_;
  OfferedUnits offered_;
  KubeletAllocations kubelet_;
  UnitClaims claims_;
  PluginService service_;
  KubeletLink link_;
  std::unique_ptr<ReconcileLoop> link_loop_, claims_loop_;
  std::unique_ptr<FolderWatch> watch_;
};

}  // namespace gpumem::kubernetes
