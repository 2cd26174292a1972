#pragma once
#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/kubernetes/claims/claim.h"
#include "daemon/kubernetes/plugin/plugin_server.h"
#include "kubelet/dra_health.pb.h"
#include "kubelet/dra_v1.pb.h"
#include "kubelet/registration.pb.h"

namespace gpumem::kubernetes::test {

/// The kubelet of Kubernetes 1.36 as far as drivers see it: its calls go out as bytes under the names that it
/// uses, so a service that has other names or numbers is not found by it.
class Kubelet {
 public:
  /// Registers what it finds in `registry_folder`, as the real one does: GetInfo, then
  /// NotifyRegistrationStatus. Empty: there is no socket, or no answer.
  static std::unique_ptr<Kubelet> register_driver(const std::filesystem::path& registry_folder,
                                                  const std::string& refusal = {});

  const pluginregistration::PluginInfo& info() const { return info_; }

  dra::v1::NodePrepareResourcesResponse prepare(const std::vector<ClaimReference>& claims);
  dra::v1::NodeUnprepareResourcesResponse unprepare(const std::vector<ClaimReference>& claims);

  /// Asks for `claim`, and gives the call up when `is_under_way` says that it is. Returns when the driver
  /// knows.
  void give_up(const ClaimReference& claim, const std::function<bool()>& is_under_way);

  /// Listens to how the devices are until `wants_more` says no, or the driver ends it: then how. Waits as
  /// long as a test does.
  grpc::Status watch_health(
      const std::function<bool(const v1alpha1::NodeWatchResourcesResponse&)>& wants_more);

  /// Any call on the driver's endpoint: `method` with its package, the message as bytes.
  grpc::Status call(const std::string& method, const std::string& request, std::string& response);

 private:
  pluginregistration::PluginInfo info_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace gpumem::kubernetes::test
