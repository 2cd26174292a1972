#include "daemon/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <utility>

#include "base/log.h"

namespace gpumem::rpc {

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

}  // namespace gpumem::rpc
