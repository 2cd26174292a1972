#pragma once
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "daemon/kubernetes/broker_client.h"
#include "daemon/kubernetes/node_claims.h"
#include "kubelet/dra_health.grpc.pb.h"

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

}  // namespace gpumem::kubernetes
