#pragma once
#include <grpcpp/server.h>

#include <chrono>
#include <filesystem>
#include <memory>

#include "daemon/rpc/broker_service.h"
#include "daemon/rpc/monitor_service.h"

namespace gpumem::rpc {

/// The gRPC side: both services, standard health and reflection, on a Unix socket.
class Server {
 public:
  /// Errors  kUnavailable: cannot listen there.
  static Result<std::unique_ptr<Server>> start(core::Gate& gate, const std::filesystem::path& socket,
                                               BrokerInfo info);

  /// Tells health watchers, takes no more calls, and ends those under way after `patience`. The gate still
  /// has to be open.   Blocks.
  void stop(std::chrono::milliseconds patience);

 private:
  Server(core::Gate& gate, BrokerInfo info) : broker_(gate), monitor_(gate, std::move(info)) {}

  BrokerService broker_;
  MonitorService monitor_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace gpumem::rpc
