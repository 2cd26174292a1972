#pragma once
#include <chrono>
#include <cstddef>
#include <optional>

#include "base/mutex.h"

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

}  // namespace gpumem::rpc
