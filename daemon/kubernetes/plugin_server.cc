#include "daemon/kubernetes/plugin_server.h"

#include "daemon/kubernetes/unix_server.h"

namespace gpumem::kubernetes {
namespace {

std::string with_instance(const std::string& name, const std::string& instance) {
  return instance.empty() ? name : name + "-" + instance;
}

}  // namespace

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
  auto services = listen(plugin->service_socket_, {&plugin->v1_, &plugin->v1beta1_, &plugin->health_});
  if (!services) return services.error();
  plugin->service_server_ = std::move(*services);
  auto registration = listen(plugin->registration_socket_, {&plugin->registration_});
  if (!registration) return registration.error();
  plugin->registration_server_ = std::move(*registration);
  return plugin;
}

PluginServer::~PluginServer() {
  health_.stop();
  stop_listening(registration_server_, registration_socket_);
  stop_listening(service_server_, service_socket_);
}

}  // namespace gpumem::kubernetes
