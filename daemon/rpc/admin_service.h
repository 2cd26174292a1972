#pragma once
#include "daemon/core/broker/admin.h"
#include "daemon/rpc/calls.h"
#include "gpumem/v1/broker.grpc.pb.h"
#include "gpumem/v1/claims.grpc.pb.h"

namespace gpumem::rpc {

/// gpumem.v1.Admin: what administrators ask. The core's thread says who calls; the thread of `quotas`, which
/// may wait for a disk, does the rest and answers.
class AdminService final : public v1::Admin::CallbackService {
 public:
  AdminService(core::Executor& executor, Calls& calls, core::QuotaAdmin& quotas, core::Reload reload)
      : executor_(executor), calls_(calls), quotas_(quotas), reload_(std::move(reload)) {}

  grpc::ServerUnaryReactor* ListQuotas(grpc::CallbackServerContext* context,
                                       const v1::ListQuotasRequest* request,
                                       v1::ListQuotasResponse* response) override;
  grpc::ServerUnaryReactor* SetQuota(grpc::CallbackServerContext* context, const v1::SetQuotaRequest* request,
                                     v1::SetQuotaResponse* response) override;
  grpc::ServerUnaryReactor* RemoveRegion(grpc::CallbackServerContext* context,
                                         const v1::RemoveRegionOfRequest* request,
                                         v1::RemoveRegionOfResponse* response) override;
  grpc::ServerUnaryReactor* Reload(grpc::CallbackServerContext* context, const v1::ReloadRequest* request,
                                   v1::ReloadResponse* response) override;
  grpc::ServerUnaryReactor* EndProcess(grpc::CallbackServerContext* context,
                                       const v1::EndProcessRequest* request,
                                       v1::EndProcessResponse* response) override;
  grpc::ServerUnaryReactor* AskBack(grpc::CallbackServerContext* context, const v1::AskBackRequest* request,
                                    v1::AskBackResponse* response) override;

 private:
  core::Executor& executor_;
  Calls& calls_;
  core::QuotaAdmin& quotas_;
  const core::Reload reload_;
};

/// gpumem.v1.Claims: what is prepared for pods. The core's thread says who calls; the thread of `claims`,
/// which may wait for a disk, does the rest and answers.
class ClaimsService final : public v1::Claims::CallbackService {
 public:
  ClaimsService(core::Executor& executor, Calls& calls, core::PodClaimAdmin& claims)
      : executor_(executor), calls_(calls), claims_(claims) {}

  grpc::ServerUnaryReactor* Prepare(grpc::CallbackServerContext* context,
                                    const v1::PrepareClaimRequest* request,
                                    v1::PrepareClaimResponse* response) override;
  grpc::ServerUnaryReactor* Unprepare(grpc::CallbackServerContext* context,
                                      const v1::UnprepareClaimRequest* request,
                                      v1::UnprepareClaimResponse* response) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context, const v1::ListClaimsRequest* request,
                                 v1::ListClaimsResponse* response) override;

 private:
  core::Executor& executor_;
  Calls& calls_;
  core::PodClaimAdmin& claims_;
};

}  // namespace gpumem::rpc
