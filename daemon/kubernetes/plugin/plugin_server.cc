#include "daemon/kubernetes/plugin/plugin_server.h"

#include "base/log.h"
#include "daemon/kubernetes/http/whole_file.h"
#include "daemon/kubernetes/plugin/unix_server.h"

namespace gpumem::kubernetes {
namespace {

void add_health(v1alpha1::NodeWatchResourcesResponse& response, const std::string& pool,
                const std::string& device, v1alpha1::HealthStatus health, const std::string& message) {
  v1alpha1::DeviceHealth& one = *response.add_devices();
  one.mutable_device()->set_pool_name(pool);
  one.mutable_device()->set_device_name(device);
  one.set_health(health);
  one.set_message(message);
}

std::int64_t unix_seconds() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

template <class Claim>
ClaimReference reference(const Claim& claim) {
  return {.space = claim.namespace_(), .name = claim.name(), .uid = claim.uid()};
}

template <class Device>
void describe(const PreparedShare& one, const std::string& uid, const std::string& device_kind,
              Device& device) {
  device.add_request_names(one.share.request);
  device.set_pool_name(one.share.pool);
  device.set_device_name(one.share.device);
  device.add_cdi_device_ids(DeviceSpecs::id(uid));
  if (!device_kind.empty()) device.add_cdi_device_ids(device_kind + "=" + one.uuid);
  if constexpr (requires { device.set_share_id(one.share.share_id); }) {  // from v1 on
    if (!one.share.share_id.empty()) device.set_share_id(one.share.share_id);
  }
}

std::string with_instance(const std::string& name, const std::string& instance) {
  return instance.empty() ? name : name + "-" + instance;
}

}  // namespace

v1alpha1::NodeWatchResourcesResponse health_of(const std::string& pool, const std::set<std::string>& claimed,
                                               const Result<std::vector<Device>>& lent, std::int64_t now) {
  v1alpha1::NodeWatchResourcesResponse response;
  std::set<std::string> others = claimed;
  if (lent) {
    for (const Device& device : *lent) {
      add_health(response, pool, device.name, v1alpha1::HEALTHY, {});
      others.erase(device.name);
    }
  }
  for (const std::string& name : others) {
    if (lent)
      add_health(
          response, pool, name, v1alpha1::UNHEALTHY,
          "the broker of this node does not lend it any more: it may have failed, or is not configured");
    else
      add_health(response, pool, name, v1alpha1::UNKNOWN, lent.error().message);
  }
  for (v1alpha1::DeviceHealth& one : *response.mutable_devices()) one.set_last_updated_time(now);
  return response;
}

grpc::Status HealthService::NodeWatchResources(
    grpc::ServerContext* context, const v1alpha1::NodeWatchResourcesRequest*,
    grpc::ServerWriter<v1alpha1::NodeWatchResourcesResponse>* writer) {
  do {
    if (context->IsCancelled() || !writer->Write(look())) break;
  } while (await_next());
  return grpc::Status::OK;
}

void HealthService::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
}

bool HealthService::await_next() {
  const auto due = std::chrono::steady_clock::now() + options_.period;
  const MutexLock lock(mutex_);
  while (!stopping_ && std::chrono::steady_clock::now() < due) stopped_.wait_until(mutex_, due);
  return !stopping_;
}

v1alpha1::NodeWatchResourcesResponse HealthService::look() {
  auto claimed = claims_.devices();
  if (!claimed) spdlog::warn("the claims' devices are not known: {}", claimed.error().message);
  return health_of(options_.pool, claimed ? *claimed : std::set<std::string>(), broker_.devices(),
                   unix_seconds());
}

template <class Api>
grpc::Status DraService<Api>::NodePrepareResources(grpc::ServerContext* context,
                                                   const typename Api::NodePrepareResourcesRequest* request,
                                                   typename Api::NodePrepareResourcesResponse* response) {
  for (const auto& claim : request->claims()) {
    auto& answer = (*response->mutable_claims())[claim.uid()];
    auto prepared = claims_.prepare(reference(claim), [context] { return context->IsCancelled(); });
    if (!prepared) {
      spdlog::error("not prepared: {}", prepared.error().message);
      answer.set_error(prepared.error().message);
      continue;
    }
    for (const PreparedShare& one : prepared->shares)
      describe(one, prepared->claim.uid, device_kind_, *answer.add_devices());
  }
  return grpc::Status::OK;
}

template <class Api>
grpc::Status DraService<Api>::NodeUnprepareResources(
    grpc::ServerContext*, const typename Api::NodeUnprepareResourcesRequest* request,
    typename Api::NodeUnprepareResourcesResponse* response) {
  for (const auto& claim : request->claims()) {
    auto& answer = (*response->mutable_claims())[claim.uid()];
    auto gone = claims_.unprepare(reference(claim));
    if (gone) continue;
    spdlog::error("not unprepared: {}", gone.error().message);
    answer.set_error(gone.error().message);
  }
  return grpc::Status::OK;
}

template class DraService<DraV1>;
template class DraService<DraV1Beta1>;

grpc::Status RegistrationService::GetInfo(grpc::ServerContext*, const pluginregistration::InfoRequest*,
                                          pluginregistration::PluginInfo* response) {
  response->set_type("DRAPlugin");
  response->set_name(driver_);
  response->set_endpoint(endpoint_);
  response->add_supported_versions("v1.DRAPlugin");
  response->add_supported_versions("v1beta1.DRAPlugin");
  response->add_supported_versions("v1alpha1.DRAResourceHealth");
  return grpc::Status::OK;
}

grpc::Status RegistrationService::NotifyRegistrationStatus(
    grpc::ServerContext*, const pluginregistration::RegistrationStatus* request,
    pluginregistration::RegistrationStatusResponse*) {
  if (request->plugin_registered())
    spdlog::info("the kubelet has registered {}", driver_);
  else
    spdlog::error("the kubelet does not register {}, so no device is offered on this node: {}", driver_,
                  request->error());
  on_answer_(request->plugin_registered());
  return grpc::Status::OK;
}

PluginServer::PluginServer(const Options& options, NodeClaims& claims, BrokerClient& broker,
                           std::function<void(bool)> on_answer)
    : service_socket_(options.folder / (with_instance("dra", options.instance) + ".sock")),
      registration_socket_(options.registry_folder /
                           (with_instance(options.driver, options.instance) + "-reg.sock")),
      v1_(claims, options.device_kind),
      v1beta1_(claims, options.device_kind),
      health_(options.health, broker, claims),
      registration_(options.driver, service_socket_, std::move(on_answer)) {}

Result<std::unique_ptr<PluginServer>> PluginServer::start(const Options& options, NodeClaims& claims,
                                                          BrokerClient& broker,
                                                          std::function<void(bool)> on_answer) {
  std::unique_ptr<PluginServer> plugin(new PluginServer(options, claims, broker, std::move(on_answer)));
  for (const auto& socket : {plugin->service_socket_, plugin->registration_socket_}) {
    if (auto checked = check_socket_path(socket); !checked) return checked.error();
  }
  if (auto listens = plugin->listen_anew(); !listens) return listens.error();
  return plugin;
}

bool PluginServer::can_be_found() const {
  return file_identity(service_socket_) && file_identity(registration_socket_);
}

Result<void> PluginServer::listen_anew() {
  stop_listening(registration_server_, registration_socket_);
  stop_listening(service_server_, service_socket_);
  auto services = listen(service_socket_, {&v1_, &v1beta1_, &health_});
  if (!services) return services.error();
  service_server_ = std::move(*services);
  auto registration = listen(registration_socket_, {&registration_});
  if (!registration) return registration.error();
  registration_server_ = std::move(*registration);
  return {};
}

PluginServer::~PluginServer() {
  health_.stop();
  stop_listening(registration_server_, registration_socket_);
  stop_listening(service_server_, service_socket_);
}

}  // namespace gpumem::kubernetes
