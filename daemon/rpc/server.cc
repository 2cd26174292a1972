#include "daemon/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

namespace gpumem::rpc {

Result<std::unique_ptr<Server>> Server::start(core::Gate& gate, const std::filesystem::path& socket, BrokerInfo info) {
  static const bool kExtensionsReady = [] {  // both are process-wide switches of gRPC
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  static_cast<void>(kExtensionsReady);
  std::unique_ptr<Server> server(new Server(gate, std::move(info)));
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket.string(), grpc::InsecureServerCredentials());
  builder.RegisterService(&server->broker_);
  builder.RegisterService(&server->monitor_);
  server->server_ = builder.BuildAndStart();
  if (!server->server_) return Error{Code::kUnavailable, "cannot listen on " + socket.string()};
  server->server_->GetHealthCheckService()->SetServingStatus(true);
  return server;
}

void Server::stop(std::chrono::milliseconds patience) {
  server_->GetHealthCheckService()->SetServingStatus(false);
  server_->Shutdown(std::chrono::system_clock::now() + patience);
}

}  // namespace gpumem::rpc
