#include "daemon/rpc/monitor_service.h"

#include "daemon/rpc/convert.h"

namespace gpumem::rpc {
namespace {

template <class Fill>
grpc::ServerUnaryReactor* listing(core::Gate& gate, grpc::CallbackServerContext* context, Fill fill) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
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

}  // namespace

grpc::ServerUnaryReactor* MonitorService::GetStatus(grpc::CallbackServerContext* context,
                                                    const v1::GetStatusRequest*,
                                                    v1::GetStatusResponse* response) {
  return listing(gate_, context, [this, response](core::Broker& broker, core::TimePoint now) {
    response->set_version(info_.version);
    response->set_driver(info_.driver);
    response->set_started(to_date(info_.started, now));
    for (const core::DeviceView& view : broker.devices()) *response->add_devices() = to_proto(view);
    response->set_sessions(broker.sessions().size());
  });
}

grpc::ServerUnaryReactor* MonitorService::ListTenants(grpc::CallbackServerContext* context,
                                                      const v1::ListTenantsRequest*,
                                                      v1::ListTenantsResponse* response) {
  return listing(gate_, context, [response](core::Broker& broker, core::TimePoint) {
    for (const core::TenantView& view : broker.tenants()) {
      *response->add_tenants() = to_proto(view, broker.policy().devices[view.device].uuid);
    }
  });
}

grpc::ServerUnaryReactor* MonitorService::ListSessions(grpc::CallbackServerContext* context,
                                                       const v1::ListSessionsRequest*,
                                                       v1::ListSessionsResponse* response) {
  return listing(gate_, context, [this, response](core::Broker& broker, core::TimePoint now) {
    for (const core::SessionView& view : broker.sessions()) {
      v1::SessionInfo& info = *response->add_sessions();
      info = to_proto(view, now);
      add_slices(gate_, broker, view, info);
    }
  });
}

}  // namespace gpumem::rpc
