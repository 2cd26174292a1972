#include "daemon/kubernetes/plugin_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <sys/un.h>

#include <chrono>

#include "daemon/kubernetes/broker_client.h"

namespace gpumem::kubernetes {
namespace {

constexpr std::chrono::seconds kLastCalls{10};
constexpr std::size_t kLongestPath = sizeof(sockaddr_un::sun_path) - 1;

Result<void> check_length(const std::filesystem::path& socket) {
  if (socket.native().size() <= kLongestPath) return {};
  return Error{Code::kInvalidArgument, "the path of a socket has at most " + std::to_string(kLongestPath) +
                                           " bytes; this one has " + std::to_string(socket.native().size()) +
                                           ": " + socket.string() +
                                           ". Use a shorter --kubelet-dir or --driver-name"};
}

Result<std::unique_ptr<grpc::Server>> listen(const std::filesystem::path& socket,
                                             std::initializer_list<grpc::Service*> services) {
  std::error_code no_matter;
  if (std::filesystem::is_socket(std::filesystem::symlink_status(socket, no_matter)))
    std::filesystem::remove(socket, no_matter);  // of a process that was killed
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(socket_target(socket), grpc::InsecureServerCredentials(), &port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  auto server = builder.BuildAndStart();
  if (server == nullptr || port == 0)
    return Error{Code::kUnavailable,
                 "cannot listen on " + socket.string() + "; is its folder there, and writable?"};
  return server;
}

std::string with_instance(const std::string& name, const std::string& instance) {
  return instance.empty() ? name : name + "-" + instance;
}

}  // namespace

PluginServer::PluginServer(const Options& options, NodeClaims& claims, std::function<void()> on_registered)
    : service_socket_(options.folder / (with_instance("dra", options.instance) + ".sock")),
      registration_socket_(options.registry_folder /
                           (with_instance(options.driver, options.instance) + "-reg.sock")),
      v1_(claims, options.device_kind),
      v1beta1_(claims, options.device_kind),
      registration_(options.driver, service_socket_, std::move(on_registered)) {}

Result<std::unique_ptr<PluginServer>> PluginServer::start(const Options& options, NodeClaims& claims,
                                                          std::function<void()> on_registered) {
  std::unique_ptr<PluginServer> plugin(new PluginServer(options, claims, std::move(on_registered)));
  for (const auto& socket : {plugin->service_socket_, plugin->registration_socket_}) {
    if (auto checked = check_length(socket); !checked) return checked.error();
  }
  auto services = listen(plugin->service_socket_, {&plugin->v1_, &plugin->v1beta1_});
  if (!services) return services.error();
  plugin->service_server_ = std::move(*services);
  auto registration = listen(plugin->registration_socket_, {&plugin->registration_});
  if (!registration) return registration.error();
  plugin->registration_server_ = std::move(*registration);
  return plugin;
}

PluginServer::~PluginServer() {
  std::error_code no_matter;
  const auto stop = [&](std::unique_ptr<grpc::Server>& server, const std::filesystem::path& socket) {
    if (server == nullptr) return;
    std::filesystem::remove(socket, no_matter);  // nobody comes any more
    server->Shutdown(std::chrono::system_clock::now() + kLastCalls);
    server.reset();
  };
  stop(registration_server_, registration_socket_);
  stop(service_server_, service_socket_);
}

}  // namespace gpumem::kubernetes
