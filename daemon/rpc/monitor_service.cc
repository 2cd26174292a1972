#include "daemon/rpc/monitor_service.h"

#include "daemon/rpc/callers.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/entitlement.h"
#include "daemon/rpc/event_stream.h"
#include "daemon/rpc/reconcile_call.h"

namespace gpumem::rpc {
namespace {

template <class Fill>
grpc::ServerUnaryReactor* listing(core::Gate& gate, Calls& calls, Fill fill) {
  auto* const reactor = new Unary(calls);
  gate.post([reactor, fill = std::move(fill)](core::Broker& broker, core::TimePoint now) {
    fill(broker, now);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

void add_slices(const core::Gate& gate, const core::Broker& broker, const core::SessionView& view,
                v1::SessionInfo& info) {
  for (const core::SliceView& slice : view.slices) {
    v1::SliceInfo& one = *info.add_slices();
    one.set_id(slice.id.value);
    one.set_device(broker.policy().devices[slice.device].uuid);
    one.set_label(slice.label);
    one.set_limit(slice.limit.count);
    one.set_charged(slice.charged.count);
    one.set_waiting(slice.waiting.count);
    const auto figures = gate.client_figures(view.id, slice.device, slice.charged);
    one.set_in_use(figures ? figures->in_use : 0);
  }
}

// Others' requests are part of how a common parent stands; what they ask for is not for everybody.
Result<void> explain(const core::Gate& gate, const core::Broker& broker, const std::string& token,
                     const v1::ExplainRequest& request, v1::ExplainResponse& response, core::TimePoint now) {
  const auto caller = gate.caller_of(token);
  if (!caller) return no_connection();
  if (request.about_case() == v1::ExplainRequest::ABOUT_NOT_SET)
    return Error{Code::kInvalidArgument, "name a session or a tenant"};
  const auto explanation = request.has_session()
                               ? broker.explain_session(SessionId{request.session()}, caller->admin, now)
                               : broker.explain_tenant(request.tenant(), caller->admin, now);
  if (!explanation) return explanation.error();
  if (!may_ask_about(*caller, explanation->tenant, broker))
    return may_not_ask_about(*caller, explanation->tenant);
  response.set_tenant(explanation->tenant);
  const auto devices = core::uuids_of(broker.policy());
  for (const core::Standing& standing : explanation->devices)
    *response.add_devices() = to_proto(standing, devices, now);
  for (const core::Denial& waiting : explanation->waiting) {
    if (may_follow(*caller, waiting.tenant, broker)) *response.add_waiting() = to_proto(waiting);
  }
  return {};
}

}  // namespace

grpc::ServerUnaryReactor* MonitorService::GetStatus(grpc::CallbackServerContext*, const v1::GetStatusRequest*,
                                                    v1::GetStatusResponse* response) {
  return listing(gate_, calls_, [this, response](core::Broker& broker, core::TimePoint now) {
    response->set_version(info_.version);
    response->set_driver(info_.driver);
    response->set_started(to_date(info_.started, now));
    for (const core::DeviceView& view : broker.devices()) *response->add_devices() = to_proto(view);
    response->set_sessions(broker.sessions().size());
  });
}

grpc::ServerUnaryReactor* MonitorService::ListTenants(grpc::CallbackServerContext*,
                                                      const v1::ListTenantsRequest*,
                                                      v1::ListTenantsResponse* response) {
  return listing(gate_, calls_, [response](core::Broker& broker, core::TimePoint) {
    for (const core::TenantView& view : broker.tenants()) {
      *response->add_tenants() = to_proto(view, broker.policy().devices[view.device].uuid);
    }
  });
}

grpc::ServerUnaryReactor* MonitorService::ListSessions(grpc::CallbackServerContext*,
                                                       const v1::ListSessionsRequest*,
                                                       v1::ListSessionsResponse* response) {
  return listing(gate_, calls_, [this, response](core::Broker& broker, core::TimePoint now) {
    for (const core::SessionView& view : broker.sessions()) {
      v1::SessionInfo& info = *response->add_sessions();
      info = to_proto(view, now);
      add_slices(gate_, broker, view, info);
    }
  });
}

grpc::ServerUnaryReactor* MonitorService::Reconcile(grpc::CallbackServerContext*,
                                                    const v1::ReconcileRequest* request,
                                                    v1::ReconcileResponse* response) {
  return reconcile(gate_, calls_, info_.observer, *request, response);
}

grpc::ServerUnaryReactor* MonitorService::Explain(grpc::CallbackServerContext* context,
                                                  const v1::ExplainRequest* request,
                                                  v1::ExplainResponse* response) {
  auto* const reactor = new Unary(calls_);
  gate_.post([&gate = gate_, reactor, token = token_of(*context), request, response](core::Broker& broker,
                                                                                     core::TimePoint now) {
    const auto done = explain(gate, broker, token, *request, *response, now);
    reactor->Finish(done ? grpc::Status::OK : to_status(done.error()));
  });
  return reactor;
}

grpc::ServerWriteReactor<v1::Event>* MonitorService::WatchEvents(grpc::CallbackServerContext* context,
                                                                 const v1::WatchEventsRequest* request) {
  return new EventStream(gate_, calls_, seats_, *context, *request);
}

}  // namespace gpumem::rpc
