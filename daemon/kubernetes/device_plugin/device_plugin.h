#pragma once
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "daemon/kubernetes/broker_client.h"
#include "daemon/kubernetes/device_plugin/folder_watch.h"
#include "daemon/kubernetes/device_plugin/kubelet_allocations.h"
#include "daemon/kubernetes/device_plugin/kubelet_link.h"
#include "daemon/kubernetes/device_plugin/offered_units.h"
#include "daemon/kubernetes/device_plugin/plugin_service.h"
#include "daemon/kubernetes/device_plugin/unit_claims.h"
#include "daemon/kubernetes/device_specs.h"
#include "daemon/kubernetes/reconcile_loop.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

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
