#include "daemon/rpc/unavailable_server.h"

#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include <utility>

#include "daemon/rpc/server.h"

namespace gpumem::rpc {
namespace {

struct Refusal final : grpc::ServerGenericBidiReactor {
  explicit Refusal(const std::string& why) { Finish({grpc::StatusCode::UNAVAILABLE, why}); }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerGenericBidiReactor* UnavailableServer::Service::CreateReactor(
    grpc::GenericCallbackServerContext*) {
  return new Refusal(why_);
}

Result<std::unique_ptr<UnavailableServer>> UnavailableServer::start(std::string why) {
  redirect_grpc_log();
  std::unique_ptr<UnavailableServer> server(new UnavailableServer(std::move(why)));
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, Server::kMostCallsOfAConnection);
  builder.RegisterCallbackGenericService(&server->service_);
  server->server_ = builder.BuildAndStart();
  if (!server->server_) return Error{Code::kUnavailable, "gRPC does not start"};
  return server;
}

void UnavailableServer::serve(UniqueFd socket) {
  grpc::AddInsecureChannelFromFd(server_.get(), socket.release());
}

}  // namespace gpumem::rpc
