#pragma once
#include <chrono>
#include <string>

#include "daemon/core/gate.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::rpc {

/// What the listings say of the broker itself.
struct BrokerInfo {
  std::string version;
  std::string driver;
  core::TimePoint started = std::chrono::steady_clock::now();
};

/// gpumem.v1.Monitor: what anyone who may connect can see.
class MonitorService final : public v1::Monitor::CallbackService {
 public:
  MonitorService(core::Gate& gate, BrokerInfo info) : gate_(gate), info_(std::move(info)) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* ListTenants(grpc::CallbackServerContext* context,
                                        const v1::ListTenantsRequest* request,
                                        v1::ListTenantsResponse* response) override;
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::ListSessionsRequest* request,
                                         v1::ListSessionsResponse* response) override;

 private:
  core::Gate& gate_;
  BrokerInfo info_;
};

}  // namespace gpumem::rpc
