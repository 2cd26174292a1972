#include "daemon/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

#include <cctype>
#include <string_view>

namespace gpumem::rpc {
namespace {

// gRPC reads an address as a URI, so what has a meaning there is escaped.
std::string address_of(const std::filesystem::path& socket) {
  constexpr std::string_view kPlain = "/-._~";
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string address = "unix:";
  for (const char letter : socket.native()) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0 || kPlain.find(letter) != std::string_view::npos)
      address += letter;
    else
      address += {'%', kHex[byte >> 4], kHex[byte & 15]};
  }
  return address;
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(core::Gate& gate, core::QuotaDesk& desk,
                                              const std::filesystem::path& socket, BrokerInfo info) {
  static const bool kExtensionsReady = [] {  // both are process-wide switches of gRPC
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  static_cast<void>(kExtensionsReady);
  std::unique_ptr<Server> server(new Server(gate, desk, std::move(info)));
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address_of(socket), grpc::InsecureServerCredentials());
  builder.RegisterService(&server->broker_);
  builder.RegisterService(&server->monitor_);
  builder.RegisterService(&server->admin_);
  server->server_ = builder.BuildAndStart();
  if (!server->server_) return Error{Code::kUnavailable, "cannot listen on " + socket.string()};
  grpc::HealthCheckServiceInterface& health = *server->server_->GetHealthCheckService();
  for (const char* service :
       {v1::Broker::service_full_name(), v1::Monitor::service_full_name(), v1::Admin::service_full_name()}) {
    health.SetServingStatus(service, true);
  }
  health.SetServingStatus(true);
  return server;
}

void Server::stop(std::chrono::milliseconds patience) {
  server_->GetHealthCheckService()->SetServingStatus(false);
  // Shutdown() alone would wait for the connections too, and one whose client is idle within a synchronous
  // library does not answer: nobody reads there between calls.
  calls_.await_none(patience);
  server_->Shutdown(std::chrono::system_clock::now());
}

}  // namespace gpumem::rpc
