#include "daemon/rpc/admin_service.h"

#include <utility>

#include "daemon/api/calls.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/for_admin.h"

namespace gpumem::rpc {
namespace {

void fill(v1::QuotaInfo& info, const core::QuotaLine& line) {
  info.set_tenant(line.tenant);
  info.set_parent(line.parent);
  info.set_device(line.device);
  info.set_guarantee(line.quota.guarantee.count);
  info.set_limit(line.quota.limit.count);
  info.set_weight(line.quota.weight);
  info.set_priority(line.quota.priority);
  info.set_set_at_run_time(line.set_at_run_time);
}

core::QuotaChange change_of(const v1::SetQuotaRequest& request) {
  core::QuotaChange change;
  change.tenant = request.tenant();
  change.device = request.device();
  if (request.has_guarantee()) change.guarantee = request.guarantee();
  if (request.has_limit()) change.limit = request.limit();
  if (request.has_weight()) change.weight = request.weight();
  if (request.has_priority()) change.priority = request.priority();
  change.reset = request.reset();
  change.revision = request.revision();
  return change;
}

}  // namespace

grpc::ServerUnaryReactor* AdminService::ListQuotas(grpc::CallbackServerContext* context,
                                                   const v1::ListQuotasRequest*,
                                                   v1::ListQuotasResponse* response) {
  return for_admin(executor_, calls_, context, [this, response](const Asked& asked) {
    quotas_.list([response, reactor = asked.reactor](const Result<core::QuotaList>& list) {
      if (!list) return reactor->Finish(to_status(list.error()));
      response->set_revision(list->revision);
      for (const core::QuotaLine& line : list->quotas) fill(*response->add_quotas(), line);
      reactor->Finish(grpc::Status::OK);
    });
  });
}

grpc::ServerUnaryReactor* AdminService::SetQuota(grpc::CallbackServerContext* context,
                                                 const v1::SetQuotaRequest* request,
                                                 v1::SetQuotaResponse* response) {
  return for_admin(
      executor_, calls_, context, [this, change = change_of(*request), response](const Asked& asked) {
        quotas_.set(change, asked.caller,
                    [response, reactor = asked.reactor](const Result<core::QuotaOutcome>& outcome) {
                      if (!outcome) return reactor->Finish(to_status(outcome.error()));
                      response->set_revision(outcome->revision);
                      for (const core::QuotaLine& line : outcome->before) fill(*response->add_before(), line);
                      for (const core::QuotaLine& line : outcome->after) fill(*response->add_after(), line);
                      reactor->Finish(grpc::Status::OK);
                    });
      });
}

grpc::ServerUnaryReactor* AdminService::RemoveRegion(grpc::CallbackServerContext* context,
                                                     const v1::RemoveRegionOfRequest* request,
                                                     v1::RemoveRegionOfResponse*) {
  const api::RemoveRegion call{request->name(), request->version()};
  return for_admin(executor_, calls_, context, [this, owner = request->owner(), call](const Asked& asked) {
    const auto removed = api::remove_region_of(asked.broker, owner, call, asked.now);
    executor_.after(
        [reactor = asked.reactor, status = removed ? grpc::Status::OK : to_status(removed.error())] {
          reactor->Finish(status);
        });
  });
}

}  // namespace gpumem::rpc
