#pragma once
#include <grpcpp/server.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "daemon/kubernetes/claims/broker_client.h"
#include "daemon/kubernetes/claims/node_claims.h"
#include "gpumem/result.h"
#include "kubelet/dra_health.grpc.pb.h"
#include "kubelet/dra_v1.grpc.pb.h"
#include "kubelet/dra_v1beta1.grpc.pb.h"
#include "kubelet/registration.grpc.pb.h"

namespace gpumem::kubernetes {

/// How the devices of `pool` are at `now`, in seconds of Unix time: what the broker has `lent` is healthy;
/// what is `claimed` and not lent is not. Nobody knows while the broker does not answer.
v1alpha1::NodeWatchResourcesResponse health_of(const std::string& pool, const std::set<std::string>& claimed,
                                               const Result<std::vector<Device>>& lent, std::int64_t now);

/// Tells the kubelet how the devices are, which it shows in the status of their pods, again and again for as
/// long as it listens. Threads  any.
class HealthService final : public v1alpha1::DRAResourceHealth::Service {
 public:
  struct Options {
    std::string pool;
    std::chrono::milliseconds period{5'000};  ///< a device is forgotten after 30 s
  };

  HealthService(Options options, BrokerClient& broker, NodeClaims& claims)
      : options_(std::move(options)), broker_(broker), claims_(claims) {}

  grpc::Status NodeWatchResources(grpc::ServerContext* context,
                                  const v1alpha1::NodeWatchResourcesRequest* request,
                                  grpc::ServerWriter<v1alpha1::NodeWatchResourcesResponse>* writer) override;

  /// Ends what is listened to.
  void stop();

 private:
  /// Whether to go on.
  bool await_next();
  v1alpha1::NodeWatchResourcesResponse look();

  Options options_;
  BrokerClient& broker_;
  NodeClaims& claims_;
  Mutex mutex_;
  Condition stopped_;
  bool stopping_ GPUMEM_GUARDED_BY(mutex_) = false;
};

namespace dra = k8s::io::kubelet::pkg::apis::dra;

/// Answers the kubelet's calls to a driver from NodeClaims, in one version of the protocol: `Api` has its
/// messages and its service. Threads  any.
template <class Api>
class DraService final : public Api::DRAPlugin::Service {
 public:
  /// `device_kind`  CDI kind of the devices themselves, named by UUID; empty: others give them to containers.
  DraService(NodeClaims& claims, std::string device_kind)
      : claims_(claims), device_kind_(std::move(device_kind)) {}

  grpc::Status NodePrepareResources(grpc::ServerContext* context,
                                    const typename Api::NodePrepareResourcesRequest* request,
                                    typename Api::NodePrepareResourcesResponse* response) override;
  grpc::Status NodeUnprepareResources(grpc::ServerContext* context,
                                      const typename Api::NodeUnprepareResourcesRequest* request,
                                      typename Api::NodeUnprepareResourcesResponse* response) override;

 private:
  NodeClaims& claims_;
  std::string device_kind_;
};

// The names of one version, which a namespace cannot hand to a template.
struct DraV1 {
  using DRAPlugin = dra::v1::DRAPlugin;
  using NodePrepareResourcesRequest = dra::v1::NodePrepareResourcesRequest;
  using NodePrepareResourcesResponse = dra::v1::NodePrepareResourcesResponse;
  using NodeUnprepareResourcesRequest = dra::v1::NodeUnprepareResourcesRequest;
  using NodeUnprepareResourcesResponse = dra::v1::NodeUnprepareResourcesResponse;
};
struct DraV1Beta1 {
  using DRAPlugin = dra::v1beta1::DRAPlugin;
  using NodePrepareResourcesRequest = dra::v1beta1::NodePrepareResourcesRequest;
  using NodePrepareResourcesResponse = dra::v1beta1::NodePrepareResourcesResponse;
  using NodeUnprepareResourcesRequest = dra::v1beta1::NodeUnprepareResourcesRequest;
  using NodeUnprepareResourcesResponse = dra::v1beta1::NodeUnprepareResourcesResponse;
};
extern template class DraService<DraV1>;
extern template class DraService<DraV1Beta1>;

/// How the kubelet comes to know the driver.
class RegistrationService final : public pluginregistration::Registration::Service {
 public:
  /// `endpoint`   path of the socket with the services.
  /// `on_answer`  called from any thread when the kubelet has said whether it takes the driver up. Then it
  ///              may have deleted what the driver had published.
  RegistrationService(std::string driver, std::string endpoint, std::function<void(bool)> on_answer)
      : driver_(std::move(driver)), endpoint_(std::move(endpoint)), on_answer_(std::move(on_answer)) {}

  grpc::Status GetInfo(grpc::ServerContext* context, const pluginregistration::InfoRequest* request,
                       pluginregistration::PluginInfo* response) override;
  grpc::Status NotifyRegistrationStatus(grpc::ServerContext* context,
                                        const pluginregistration::RegistrationStatus* request,
                                        pluginregistration::RegistrationStatusResponse* response) override;

 private:
  std::string driver_;
  std::string endpoint_;
  std::function<void(bool)> on_answer_;
};

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

  /// Errors  kInvalidArgument: a path is too long for a socket. kUnavailable: cannot listen. Both name it.
  static Result<std::unique_ptr<PluginServer>> start(const Options& options, NodeClaims& claims,
                                                     BrokerClient& broker,
                                                     std::function<void(bool)> on_answer);

  /// Lets calls that are under way end, for 10 s at most.
  ~PluginServer();

  /// Whether both sockets are there.
  bool can_be_found() const;
  /// Listens on both sockets anew. Not to be called in several threads at once. Errors  as of start().
  Result<void> listen_anew();

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
