#pragma once
#include "daemon/core/quota_desk.h"
#include "daemon/rpc/calls.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::rpc {

/// gpumem.v1.Admin: what administrators ask. The core's thread says who calls; the desk's own thread, which
/// may wait for a disk, does the rest and answers.
class AdminService final : public v1::Admin::CallbackService {
 public:
  AdminService(core::Gate& gate, Calls& calls, core::QuotaDesk& desk)
      : gate_(gate), calls_(calls), desk_(desk) {}

  grpc::ServerUnaryReactor* ListQuotas(grpc::CallbackServerContext* context,
                                       const v1::ListQuotasRequest* request,
                                       v1::ListQuotasResponse* response) override;
  grpc::ServerUnaryReactor* SetQuota(grpc::CallbackServerContext* context, const v1::SetQuotaRequest* request,
                                     v1::SetQuotaResponse* response) override;

 private:
  core::Gate& gate_;
  Calls& calls_;
  core::QuotaDesk& desk_;
};

}  // namespace gpumem::rpc
