#include "daemon/rpc/claims_service.h"

#include <utility>

#include "daemon/api/pod_claims.h"
#include "daemon/rpc/for_admin.h"

namespace gpumem::rpc {
namespace {

core::PodClaim claim_of(const v1::Claim& message) {
  core::PodClaim claim{message.uid(), message.namespace_(), message.name(), {}, {}};
  for (const v1::Pod& pod : message.pods()) claim.pods.push_back({pod.uid(), pod.namespace_(), pod.name()});
  for (const v1::ClaimAmount& amount : message.amounts()) {
    claim.amounts.push_back({amount.device(), Bytes{amount.guarantee_bytes()}, Bytes{amount.limit_bytes()}});
  }
  return claim;
}

void fill_claim(v1::Claim& message, const core::PodClaim& claim) {
  message.set_uid(claim.uid);
  message.set_namespace_(claim.space);
  message.set_name(claim.name);
  for (const core::Pod& pod : claim.pods) {
    v1::Pod& one = *message.add_pods();
    one.set_uid(pod.uid);
    one.set_namespace_(pod.space);
    one.set_name(pod.name);
  }
  for (const core::ClaimAmount& amount : claim.amounts) {
    v1::ClaimAmount& one = *message.add_amounts();
    one.set_device(amount.device);
    one.set_guarantee_bytes(amount.guarantee.count);
    one.set_limit_bytes(amount.limit.count);
  }
}

api::ClaimAnswer finish(Unary* reactor) {
  return [reactor](const Result<void>& done) {
    reactor->Finish(done ? grpc::Status::OK : to_status(done.error()));
  };
}

}  // namespace

grpc::ServerUnaryReactor* ClaimsService::Prepare(grpc::CallbackServerContext* context,
                                                 const v1::PrepareClaimRequest* request,
                                                 v1::PrepareClaimResponse*) {
  return for_caller(executor_, calls_, context,
                    [this, claim = claim_of(request->claim())](const Asked& asked) {
                      api::prepare_claim(claims_, asked.caller, claim, finish(asked.reactor));
                    });
}

grpc::ServerUnaryReactor* ClaimsService::Unprepare(grpc::CallbackServerContext* context,
                                                   const v1::UnprepareClaimRequest* request,
                                                   v1::UnprepareClaimResponse*) {
  return for_caller(executor_, calls_, context, [this, uid = request->uid()](const Asked& asked) {
    api::unprepare_claim(claims_, asked.caller, uid, finish(asked.reactor));
  });
}

grpc::ServerUnaryReactor* ClaimsService::List(grpc::CallbackServerContext* context,
                                              const v1::ListClaimsRequest*,
                                              v1::ListClaimsResponse* response) {
  return for_caller(executor_, calls_, context, [this, response](const Asked& asked) {
    api::list_claims(claims_, asked.caller,
                     [response, reactor = asked.reactor](const Result<std::vector<core::PodClaim>>& claims) {
                       if (!claims) return reactor->Finish(to_status(claims.error()));
                       for (const core::PodClaim& claim : *claims) fill_claim(*response->add_claims(), claim);
                       reactor->Finish(grpc::Status::OK);
                     });
  });
}

}  // namespace gpumem::rpc
