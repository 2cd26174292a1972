#include "daemon/kubernetes/plugin/unix_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <chrono>

#include "base/system/unix_socket.h"
#include "proto/channel.h"

namespace gpumem::kubernetes {
namespace {

constexpr std::chrono::seconds kLastCalls{10};

}  // namespace

Result<void> check_socket_path(const std::filesystem::path& socket) {
  if (socket.native().size() <= kLongestSocketPath) return {};
  return Error{Code::kInvalidArgument, "the path of a socket has at most " +
                                           std::to_string(kLongestSocketPath) + " bytes; this one has " +
                                           std::to_string(socket.native().size()) + ": " + socket.string() +
                                           ". Use a shorter --kubelet-dir or a shorter name"};
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

void stop_listening(std::unique_ptr<grpc::Server>& server, const std::filesystem::path& socket) {
  if (server == nullptr) return;
  std::error_code no_matter;
  std::filesystem::remove(socket, no_matter);  // nobody comes any more
  server->Shutdown(std::chrono::system_clock::now() + kLastCalls);
  server.reset();
}

}  // namespace gpumem::kubernetes
