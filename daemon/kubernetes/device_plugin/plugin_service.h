#pragma once
#include <string>

#include "daemon/kubernetes/claims/device_specs.h"
#include "daemon/kubernetes/device_plugin/unit_claims.h"
#include "daemon/kubernetes/device_plugin/units.h"
#include "kubelet/device_plugin.grpc.pb.h"

namespace gpumem::kubernetes {

/// The program that applies the edits to a container.
enum class HandOver {
  kRuntime,  ///< the container runtime, by device specifications (CDI)
  kKubelet,  ///< the kubelet, as it is answered: for runtimes without CDI
};

/// The kubelet's interface to a device plugin. Threads  any.
class PluginService final : public ::v1beta1::DevicePlugin::Service {
 public:
  struct Options {
    HandOver hand_over = HandOver::kRuntime;
    std::string device_kind =
        "nvidia.com/gpu";  ///< CDI kind of the devices, named by UUID; empty: others give them
  };

  PluginService(Options options, OfferedUnits& offered, UnitClaims& claims, const DeviceSpecs& specs)
      : options_(std::move(options)), offered_(offered), claims_(claims), specs_(specs) {}

  /// What the plugin asks the kubelet to call.
  static ::v1beta1::DevicePluginOptions wanted_calls();

  /// Writes what containers take by CDI, if they do. Errors  of the file.
  Result<void> write_specification() const;

  grpc::Status GetDevicePluginOptions(grpc::ServerContext* context, const ::v1beta1::Empty* request,
                                      ::v1beta1::DevicePluginOptions* response) override;
  grpc::Status ListAndWatch(grpc::ServerContext* context, const ::v1beta1::Empty* request,
                            grpc::ServerWriter<::v1beta1::ListAndWatchResponse>* writer) override;
  grpc::Status GetPreferredAllocation(grpc::ServerContext* context,
                                      const ::v1beta1::PreferredAllocationRequest* request,
                                      ::v1beta1::PreferredAllocationResponse* response) override;
  /// Refuses units of several devices, if one device has as many: a program would find less memory on each
  /// than its pod has asked for.
  grpc::Status Allocate(grpc::ServerContext* context, const ::v1beta1::AllocateRequest* request,
                        ::v1beta1::AllocateResponse* response) override;
  /// The container starts only if its pod's claim is prepared.
  grpc::Status PreStartContainer(grpc::ServerContext* context,
                                 const ::v1beta1::PreStartContainerRequest* request,
                                 ::v1beta1::PreStartContainerResponse* response) override;

 private:
  Result<std::vector<std::string>> devices_of(const UnitSet& units);
  void describe(const std::vector<std::string>& devices, ::v1beta1::ContainerAllocateResponse& answer) const;

  Options options_;
  OfferedUnits& offered_;
  UnitClaims& claims_;
  const DeviceSpecs& specs_;
};

}  // namespace gpumem::kubernetes
