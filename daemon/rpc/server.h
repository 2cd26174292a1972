#pragma once
#include <grpcpp/server.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "base/system/unique_fd.h"
#include "daemon/rpc/admin_service.h"
#include "daemon/rpc/monitor_service.h"
#include "daemon/rpc/session_stream.h"

namespace gpumem::rpc {

/// So many lines a second; of the others only the number. Threads  any.
class LineLimit {
 public:
  static constexpr std::size_t kPerSecond = 10;
  using Clock = std::chrono::steady_clock;

  /// Whether a line that comes `now` is to be logged; and if so, how many were not since the last that was.
  std::optional<std::size_t> admit(Clock::time_point now);

 private:
  Mutex mutex_;
  Clock::time_point second_ GPUMEM_GUARDED_BY(mutex_);
  std::size_t said_ GPUMEM_GUARDED_BY(mutex_) = 0;
  std::size_t unsaid_ GPUMEM_GUARDED_BY(mutex_) = 0;
};

/// Sends gRPC's own errors to the broker's log: what gRPC writes itself waits for whoever reads it. Clients
/// can cause them, so they are limited.
void redirect_grpc_log();

/// The gRPC side: all services and standard health, on connections that somebody else accepts and bounds
/// (host::Http2Guard).
class Server {
 public:
  struct Options {
    BrokerInfo info;
    core::Reload reload;     ///< callable until stop() has returned
    AccountOf account_of{};  ///< likewise
    /// A connection without a call is closed after this time. Clients connect again by themselves.
    std::chrono::milliseconds idle_connections = std::chrono::minutes(10);
  };
  /// Calls that one connection may have under way; gRPC has clients keep further ones back.
  static constexpr int kMostCallsOfAConnection = 256;
  static constexpr int kMostMessage = 65536;    ///< bytes; no request needs more
  static constexpr int kMostReadAhead = 16384;  ///< bytes of a call that nobody reads yet

  /// Errors  kUnavailable: gRPC does not start.
  static Result<std::unique_ptr<Server>> start(core::Executor& executor, core::QuotaAdmin& quotas,
                                               core::PodClaimAdmin& claims, Options options);

  /// Serves a connection: `socket` is connected and non-blocking. gRPC shuts it down before it closes it.
  /// Threads  any.
  void serve(UniqueFd socket);

  /// Tells health watchers, takes no more calls, and ends those under way after `patience`. The executor,
  /// `quotas` and `claims` still have to be open.   Blocks.
  void stop(std::chrono::milliseconds patience);

 private:
  Server(core::Executor& executor, core::QuotaAdmin& quotas, core::PodClaimAdmin& claims,
         const Options& options)
      : calls_(options.account_of),
        broker_(executor, calls_),
        monitor_(executor, calls_, options.info),
        admin_(executor, calls_, quotas, options.reload),
        claims_(executor, calls_, claims) {}

  Calls calls_;
  BrokerService broker_;
  MonitorService monitor_;
  AdminService admin_;
  ClaimsService claims_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace gpumem::rpc
