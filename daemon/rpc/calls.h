#pragma once
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <optional>

#include "base/mutex.h"
#include "daemon/core/broker/executor.h"

namespace gpumem::rpc {

/// The calls that are under way, so that the end of the server need not wait for longer than they do.
/// Threads  any.
class Calls {
 public:
  void begin();
  void end();
  /// Waits until there are none, or for `patience`.   Blocks.
  void await_none(std::chrono::milliseconds patience);

 private:
  Mutex mutex_;
  Condition none_;
  std::size_t under_way_ GPUMEM_GUARDED_BY(mutex_) = 0;
};

/// Answers a call once, by Finish(); counted until that has been sent.
class Unary final : public grpc::ServerUnaryReactor {
 public:
  explicit Unary(Calls& calls) : calls_(calls) { calls_.begin(); }

 private:
  void OnDone() override {
    Calls& calls = calls_;
    delete this;
    calls.end();
  }

  Calls& calls_;
};

/// The number of the descriptor of the call's connection, which Server::serve() was given.
std::optional<int> connection_of(const grpc::CallbackServerContext& context);

/// The caller behind `connection`, a number of connection_of(). Called in work on the core's thread.
/// Errors  kUnauthenticated: the connection is gone.
Result<core::Caller> caller_of(const core::Executor& executor, std::optional<int> connection);

}  // namespace gpumem::rpc
