#include "client/rpc_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <atomic>
#include <cctype>

#include "client/fork_guard.h"
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

constexpr std::uint64_t kNotStarted = ~std::uint64_t{0};
std::atomic<std::uint64_t> started_in{kNotStarted};  // the process_generation that first used gRPC

}  // namespace

Result<void> check_rpc_usable() {
  const std::uint64_t started = started_in.load();
  if (started == kNotStarted || started == process_generation()) return {};
  return Error{
      Code::kFailedPrecondition,
      "this process was forked from one that had already called the broker, which gRPC does not survive; "
      "fork first and connect then, or start workers by exec (Python: multiprocessing's \"spawn\")"};
}

std::shared_ptr<grpc::Channel> make_channel(const std::filesystem::path& socket) {
  std::uint64_t unset = kNotStarted;
  started_in.compare_exchange_strong(unset, process_generation());
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
                   1);  // otherwise sessions of one process share a connection
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // Grow is not idempotent
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);  // an upgraded broker is back soon
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
