#include "daemon/rpc/admin_service.h"

#include <utility>

#include "daemon/api/calls.h"
#include "daemon/rpc/callers.h"
#include "daemon/rpc/convert.h"

namespace gpumem::rpc {
namespace {

Error no_admin(const core::Caller& caller) {
  return {Code::kPermissionDenied,
          "user " + std::to_string(caller.peer.uid) +
              " may not look at or change quotas that are set at run time, nor end others' regions: root "
              "may, and "
              "the members of the group that is configured as admin_group (gpumemd.toml(5))"};
}

// Has `act` done for an administrator, on the core's thread; finishes the calls of all others.
template <class Act>
grpc::ServerUnaryReactor* for_admin(core::Executor& executor, Calls& calls,
                                    grpc::CallbackServerContext* context, Act act) {
  auto* reactor = new Unary(calls);
  executor.post([&executor, reactor, connection = connection_of(*context), act = std::move(act)](
                    core::Broker& broker, core::TimePoint now) {
    const auto caller = caller_of(executor, connection);
    if (!caller) return reactor->Finish(to_status(caller.error()));
    if (!caller->admin) return reactor->Finish(to_status(no_admin(*caller)));
    act(*caller, reactor, broker, now);
  });
  return reactor;
}

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
  return for_admin(executor_, calls_, context,
                   [this, response](const core::Caller&, Unary* reactor, core::Broker&, core::TimePoint) {
                     quotas_.list([response, reactor](const Result<core::QuotaList>& list) {
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
  return for_admin(executor_, calls_, context,
                   [this, change = change_of(*request), response](const core::Caller& caller, Unary* reactor,
                                                                  core::Broker&, core::TimePoint) {
                     quotas_.set(change, caller,
                                 [response, reactor](const Result<core::QuotaOutcome>& outcome) {
                                   if (!outcome) return reactor->Finish(to_status(outcome.error()));
                                   response->set_revision(outcome->revision);
                                   for (const core::QuotaLine& line : outcome->before)
                                     fill(*response->add_before(), line);
                                   for (const core::QuotaLine& line : outcome->after)
                                     fill(*response->add_after(), line);
                                   reactor->Finish(grpc::Status::OK);
                                 });
                   });
}

grpc::ServerUnaryReactor* AdminService::RemoveRegion(grpc::CallbackServerContext* context,
                                                     const v1::RemoveRegionOfRequest* request,
                                                     v1::RemoveRegionOfResponse*) {
  const api::RemoveRegion call{request->name(), request->version()};
  return for_admin(
      executor_, calls_, context,
      [this, owner = request->owner(), call](const core::Caller&, Unary* reactor, core::Broker& broker,
                                             core::TimePoint now) {
        const auto removed = api::remove_region_of(broker, owner, call, now);
        executor_.after([reactor, status = removed ? grpc::Status::OK : to_status(removed.error())] {
          reactor->Finish(status);
        });
      });
}

}  // namespace gpumem::rpc
