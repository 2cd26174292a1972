#pragma once
#include <grpcpp/server.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "daemon/kubernetes/health_service.h"
#include "daemon/kubernetes/kubelet_services.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// The driver's two sockets and what it serves there. The one with the services listens before the one for
/// registration: the kubelet calls as soon as it sees that. Both are removed at the end, the registration
/// first.
class PluginServer {
 public:
  struct Options {
    std::string driver;
    std::filesystem::path folder;           ///< of the plugin
    std::filesystem::path registry_folder;  ///< that the kubelet watches
    std::string instance;     ///< in the names of the sockets, so that a rolling update has two; empty: none
    std::string device_kind;  ///< as of DraService
    HealthService::Options health;
  };

  /// Errors  kInvalidArgument: a path is too long for a socket. kUnavailable: cannot listen; both name the
  /// path.
  static Result<std::unique_ptr<PluginServer>> start(const Options& options, NodeClaims& claims,
                                                     BrokerClient& broker,
                                                     std::function<void(bool)> on_answer);

  /// Lets calls that are under way end, for 10 s at most.
  ~PluginServer();

 private:
  PluginServer(const Options& options, NodeClaims& claims, BrokerClient& broker,
               std::function<void(bool)> on_answer);

  std::filesystem::path service_socket_;
  std::filesystem::path registration_socket_;
  DraService<DraV1> v1_;
  DraService<DraV1Beta1> v1beta1_;
  HealthService health_;
  RegistrationService registration_;
  std::unique_ptr<grpc::Server> service_server_;
  std::unique_ptr<grpc::Server> registration_server_;
};

}  // namespace gpumem::kubernetes
