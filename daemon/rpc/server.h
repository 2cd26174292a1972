#pragma once
#include <grpcpp/server.h>

#include <chrono>
#include <filesystem>
#include <memory>

#include "daemon/rpc/admin_service.h"
#include "daemon/rpc/broker_service.h"
#include "daemon/rpc/monitor_service.h"

namespace gpumem::rpc {

/// The gRPC side: all services, standard health and reflection, on a Unix socket.
class Server {
 public:
  /// Errors  kUnavailable: cannot listen there.
  static Result<std::unique_ptr<Server>> start(core::Gate& gate, core::QuotaDesk& desk,
                                               const std::filesystem::path& socket, BrokerInfo info);

  /// Tells health watchers, takes no more calls, and ends those under way after `patience`. The gate and
  /// the desk still have to be open.   Blocks.
  void stop(std::chrono::milliseconds patience);

 private:
  Server(core::Gate& gate, core::QuotaDesk& desk, BrokerInfo info)
      : broker_(gate, calls_), monitor_(gate, calls_, std::move(info)), admin_(gate, calls_, desk) {}

  Calls calls_;
  BrokerService broker_;
  MonitorService monitor_;
  AdminService admin_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace gpumem::rpc
