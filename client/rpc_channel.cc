#include "client/rpc_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <cctype>

#include "proto/lane.h"

namespace gpumem::client {
namespace {

/// gRPC reads the target as a URI.
std::string socket_target(const std::filesystem::path& socket) {
  constexpr std::string_view kPlain = "/-._~+,=@";
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::error_code no_matter;
  const std::filesystem::path path = std::filesystem::absolute(socket, no_matter);
  std::string target = "unix:";
  for (const char letter : path.native()) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0 || kPlain.find(letter) != std::string_view::npos) {
      target += letter;
    } else {
      target += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return target;
}

}  // namespace

std::shared_ptr<grpc::Channel> make_channel(const std::filesystem::path& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // or sessions of one process share a connection
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // Grow is not repeatable
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);  // a broker that is upgraded is soon back
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(socket_target(socket), grpc::InsecureChannelCredentials(), arguments);
}

void set_timeout(grpc::ClientContext& context, std::chrono::milliseconds timeout) {
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(timeout.count(), GPR_TIMESPAN)));
}

v1::Broker::Stub& RpcChannel::stub() {
  const MutexLock lock(mutex_);
  if (!stub_) stub_ = v1::Broker::NewStub(make_channel(socket_));
  return *stub_;
}

void RpcChannel::prepare(grpc::ClientContext& context, std::chrono::milliseconds extra) const {
  set_timeout(context, timeout_ + extra);
  context.AddMetadata(kSessionMetadataKey, token_);
}

}  // namespace gpumem::client
