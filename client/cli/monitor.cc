#include "client/cli/monitor.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "base/unique_fd.h"
#include "client/rpc_channel.h"
#include "client/runtime_folder.h"
#include "proto/lane.h"

namespace gpumem::cli {

constexpr std::chrono::seconds kTimeout{10};

// gRPC alone would only say "failed to connect to all addresses".
Result<void> probe(const std::filesystem::path& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.native().size() >= sizeof address.sun_path) return client::connect_error(socket, ENAMETOOLONG);
  std::memcpy(address.sun_path, socket.c_str(), socket.native().size());
  const UniqueFd probed(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probed.valid()) return errno_error(errno, "cannot make a socket");
  if (::connect(probed.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return {};
  return client::connect_error(socket, errno);
}

Result<Monitor> Monitor::connect(const std::filesystem::path& runtime_folder) {
  const std::filesystem::path socket = runtime_folder / kApiSocketName;
  if (auto there = probe(socket); !there) return there.error();
  return Monitor(socket);
}

Monitor::Monitor(std::filesystem::path socket)
    : socket_(std::move(socket)), stub_(v1::Monitor::NewStub(client::make_channel(socket_))) {}

template <class Request, class Response>
Result<Response> Monitor::call(Method<Request, Response> method) const {
  grpc::ClientContext context;
  client::set_timeout(context, kTimeout);
  Response response;
  const grpc::Status status = (stub_.get()->*method)(&context, Request(), &response);
  if (!status.ok()) return Error(client::call_error(status, context, socket_.native()));
  return response;
}

Result<v1::GetStatusResponse> Monitor::status() const { return call(&v1::Monitor::Stub::GetStatus); }
Result<v1::ListTenantsResponse> Monitor::tenants() const { return call(&v1::Monitor::Stub::ListTenants); }
Result<v1::ListSessionsResponse> Monitor::sessions() const { return call(&v1::Monitor::Stub::ListSessions); }

}  // namespace gpumem::cli
