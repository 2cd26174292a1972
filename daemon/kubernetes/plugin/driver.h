#pragma once
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>

#include "daemon/kubernetes/claims/broker_client.h"
#include "daemon/kubernetes/claims/device_specs.h"
#include "daemon/kubernetes/claims/node_claims.h"
#include "daemon/kubernetes/http/api_server.h"
#include "daemon/kubernetes/plugin/plugin_server.h"
#include "daemon/kubernetes/plugin/reconcile_loop.h"
#include "daemon/kubernetes/plugin/slice_publisher.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// The driver, all parts wired. It serves the kubelet from its start until its end, even without the API
/// server and the broker; calls that need them then fail with words that say so. It offers devices while the
/// kubelet has registered it. Otherwise pods would start without their claims.
class Driver {
 public:
  struct Options {
    std::string name = "gpumem.dev";
    std::string node;
    std::string instance;
    std::filesystem::path kubelet_folder = "/var/lib/kubelet";
    std::string device_kind = "nvidia.com/gpu";
    DeviceSpecs::Options specs;
    ApiServer::Options server;
    std::chrono::milliseconds publish_period{30'000};
    std::chrono::milliseconds refresh_period{5'000};
  };

  /// Takes up what earlier processes have left, listens, and publishes.
  /// Errors  of the plugin's folder, the checkpoint and the sockets.
  static Result<std::unique_ptr<Driver>> start(const Options& options);

  /// Ends the sockets first, then the rest. What is prepared stays.
  ~Driver();

 private:
  enum class Registration { kNotAnswered, kDone, kRefused };

  explicit Driver(const Options& options);
  Result<void> publish();
  Result<void> keep_sockets();
  void take_answer(bool is_registered);

  BrokerClient broker_;
  ApiServer server_;
  DeviceSpecs specs_;
  NodeClaims claims_;
  SlicePublisher publisher_;
  std::atomic<Registration> registration_ = Registration::kNotAnswered;
  std::unique_ptr<ReconcileLoop> loop_, broker_loop_;
  std::unique_ptr<PluginServer> plugin_;  // ends before the loops that it wakes
  std::unique_ptr<ReconcileLoop> sockets_loop_;
};

}  // namespace gpumem::kubernetes
