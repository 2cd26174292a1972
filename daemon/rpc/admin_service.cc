#include "daemon/rpc/admin_service.h"

#include <utility>

#include "daemon/rpc/calls.h"
#include "daemon/rpc/convert.h"

namespace gpumem::rpc {
namespace {

// A unary call on the core's thread, with its caller.
struct Asked {
  const core::Caller& caller;
  Unary* reactor;  // to be finished
  core::Broker& broker;
  core::TimePoint now;
};

Error no_administrator(const core::Caller& caller) {
  const std::string pod = caller.peer.contained ? " in pod " + caller.peer.pod +
                                                      ", which does not share the machine's PIDs (hostPID),"
                                                : "";
  return {Code::kPermissionDenied,
          "user " + std::to_string(caller.peer.uid) + pod +
              " may not administer this broker: root may, and the members of the "
              "group that is configured as admin_group in [broker] (gpumemd.toml(5))"};
}

// Runs `act` with the call on the core's thread. Finishes a call whose connection is gone.
template <class Act>
grpc::ServerUnaryReactor* for_caller(core::Executor& executor, Calls& calls,
                                     grpc::CallbackServerContext* context, Act act) {
  auto* reactor = new Unary(calls, *context);
  if (!reactor->is_taken()) return reactor;
  const auto connection = connection_of(*context);
  executor.post_for(connection, [&executor, reactor, connection, act = std::move(act)](core::Broker& broker,
                                                                                       core::TimePoint now) {
    const auto caller = caller_of(executor, connection);
    if (!caller) return reactor->Finish(to_status(caller.error()));
    act(Asked{*caller, reactor, broker, now});
  });
  return reactor;
}

// As for_caller(). Finishes the calls of all who are no administrators.
template <class Act>
grpc::ServerUnaryReactor* for_admin(core::Executor& executor, Calls& calls,
                                    grpc::CallbackServerContext* context, Act act) {
  return for_caller(executor, calls, context, [act = std::move(act)](const Asked& asked) {
    if (!asked.caller.admin) return asked.reactor->Finish(to_status(no_administrator(asked.caller)));
    act(asked);
  });
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

std::function<void(Result<void>)> finish(Unary* reactor) {
  return [reactor](const Result<void>& done) {
    reactor->Finish(done ? grpc::Status::OK : to_status(done.error()));
  };
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

grpc::ServerUnaryReactor* AdminService::Reload(grpc::CallbackServerContext* context, const v1::ReloadRequest*,
                                               v1::ReloadResponse* response) {
  return for_admin(executor_, calls_, context, [this, response](const Asked& asked) {
    reload_([response, done = finish(asked.reactor)](const Result<core::Unapplied>& unapplied) {
      if (!unapplied) return done(unapplied.error());
      response->mutable_unapplied()->Assign(unapplied->begin(), unapplied->end());
      done({});
    });
  });
}

grpc::ServerUnaryReactor* AdminService::EndProcess(grpc::CallbackServerContext* context,
                                                   const v1::EndProcessRequest* request,
                                                   v1::EndProcessResponse*) {
  const bool is_job = request->has_job();
  const std::uint64_t number = is_job ? request->job() : request->session();
  return for_caller(executor_, calls_, context, [this, is_job, number](const Asked& asked) {
    const core::Broker::Requester by{asked.caller.peer, asked.caller.admin};
    auto ended = is_job ? asked.broker.end_by_request(core::CommandJobId{number}, by, asked.now)
                        : asked.broker.end_by_request(SessionId{number}, by, asked.now);
    executor_.after([done = finish(asked.reactor), ended = std::move(ended)] { done(ended); });
  });
}

grpc::ServerUnaryReactor* AdminService::AskBack(grpc::CallbackServerContext* context,
                                                const v1::AskBackRequest* request,
                                                v1::AskBackResponse* response) {
  return for_caller(executor_, calls_, context, [this, asked_for = *request, response](const Asked& asked) {
    const auto back =
        asked.broker.ask_back(SessionId{asked_for.session()}, asked_for.device(), Bytes{asked_for.bytes()},
                              {asked.caller.peer, asked.caller.admin}, asked.now);
    if (back) {
      response->set_bytes(back->bytes.count);
      response->set_within_ms(core::to_milliseconds(back->within));
    }
    executor_.after([reactor = asked.reactor, status = back ? grpc::Status::OK : to_status(back.error())] {
      reactor->Finish(status);
    });
  });
}

grpc::ServerUnaryReactor* AdminService::RemoveRegion(grpc::CallbackServerContext* context,
                                                     const v1::RemoveRegionOfRequest* request,
                                                     v1::RemoveRegionOfResponse*) {
  const core::RemoveRegion removal{request->name(), request->version()};
  return for_admin(executor_, calls_, context, [this, owner = request->owner(), removal](const Asked& asked) {
    const auto removed = asked.broker.remove_region_of(owner, removal, asked.now);
    executor_.after(
        [reactor = asked.reactor, status = removed ? grpc::Status::OK : to_status(removed.error())] {
          reactor->Finish(status);
        });
  });
}

grpc::ServerUnaryReactor* ClaimsService::Prepare(grpc::CallbackServerContext* context,
                                                 const v1::PrepareClaimRequest* request,
                                                 v1::PrepareClaimResponse*) {
  return for_admin(executor_, calls_, context,
                   [this, claim = claim_of(request->claim())](const Asked& asked) {
                     claims_.prepare(claim, asked.caller, finish(asked.reactor));
                   });
}

grpc::ServerUnaryReactor* ClaimsService::Unprepare(grpc::CallbackServerContext* context,
                                                   const v1::UnprepareClaimRequest* request,
                                                   v1::UnprepareClaimResponse*) {
  return for_admin(executor_, calls_, context, [this, uid = request->uid()](const Asked& asked) {
    claims_.unprepare(uid, asked.caller, finish(asked.reactor));
  });
}

grpc::ServerUnaryReactor* ClaimsService::List(grpc::CallbackServerContext* context,
                                              const v1::ListClaimsRequest*,
                                              v1::ListClaimsResponse* response) {
  return for_admin(executor_, calls_, context, [this, response](const Asked& asked) {
    claims_.list_claims(
        [response, reactor = asked.reactor](const Result<std::vector<core::PodClaim>>& claims) {
          if (!claims) return reactor->Finish(to_status(claims.error()));
          for (const core::PodClaim& claim : *claims) fill_claim(*response->add_claims(), claim);
          reactor->Finish(grpc::Status::OK);
        });
  });
}

}  // namespace gpumem::rpc
