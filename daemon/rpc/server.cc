#include "daemon/rpc/server.h"

#include <grpc/support/log.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include <utility>

#include "base/log.h"

namespace gpumem::rpc {
namespace {

void prepare_grpc() {
  static const bool kReady = [] {  // process-wide switches of gRPC
    redirect_grpc_log();
    grpc::EnableDefaultHealthCheckService(true);
    return true;
  }();
  static_cast<void>(kReady);
}

}  // namespace

std::optional<std::size_t> LineLimit::admit(Clock::time_point now) {
  const MutexLock lock(mutex_);
  if (now - second_ >= std::chrono::seconds(1)) {
    second_ = now;
    said_ = 0;
  }
  if (said_ == kPerSecond) {
    ++unsaid_;
    return std::nullopt;
  }
  ++said_;
  return std::exchange(unsaid_, 0);
}

void redirect_grpc_log() {
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  gpr_set_log_function([](gpr_log_func_args* line) {
    static LineLimit limit;
    const auto unsaid = limit.admit(LineLimit::Clock::now());
    if (!unsaid) return;
    if (*unsaid != 0) spdlog::warn("gRPC: {} more such lines before", *unsaid);
    spdlog::warn("gRPC: {}", line->message);
  });
}

Result<std::unique_ptr<Server>> Server::start(core::Executor& executor, core::QuotaAdmin& quotas,
                                              core::PodClaimAdmin& claims, Options options) {
  prepare_grpc();
  std::unique_ptr<Server> server(new Server(executor, quotas, claims, options));
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             static_cast<int>(options.idle_connections.count()));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCallsOfAConnection);
  builder.SetMaxReceiveMessageSize(kMostMessage);
  // Or what a stream may send before it is read grows to megabytes. Requests are small.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kMostReadAhead);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, kMostReadAhead);
  builder.RegisterService(&server->broker_);
  builder.RegisterService(&server->monitor_);
  builder.RegisterService(&server->admin_);
  builder.RegisterService(&server->claims_);
  server->server_ = builder.BuildAndStart();
  if (!server->server_) return Error{Code::kUnavailable, "gRPC does not start"};
  grpc::HealthCheckServiceInterface& health = *server->server_->GetHealthCheckService();
  for (const char* service : {v1::Broker::service_full_name(), v1::Monitor::service_full_name(),
                              v1::Admin::service_full_name(), v1::Claims::service_full_name()}) {
    health.SetServingStatus(service, true);
  }
  health.SetServingStatus(true);
  return server;
}

void Server::serve(UniqueFd socket) { grpc::AddInsecureChannelFromFd(server_.get(), socket.release()); }

void Server::stop(std::chrono::milliseconds patience) {
  server_->GetHealthCheckService()->SetServingStatus(false);
  monitor_.stop();
  // Shutdown() alone would wait for the connections too, and one whose client is idle within a synchronous
  // library does not answer: nobody reads there between calls.
  calls_.await_none(patience);
  server_->Shutdown(std::chrono::system_clock::now());
}

}  // namespace gpumem::rpc
