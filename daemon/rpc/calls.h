#pragma once
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "base/mutex.h"
#include "daemon/core/broker/executor.h"

namespace gpumem::rpc {

/// The user behind a connection, a number of connection_of(); none: it is gone. Threads  any.
using AccountOf = std::function<std::optional<std::uint64_t>(int connection)>;

/// The calls that are under way, so that the end of the server need not wait for longer than they do. Each
/// user has a share of the unary calls, because an answer stays in memory until it is read. Threads  any.
class Calls {
 public:
  static constexpr std::size_t kMostUnaryOfUser = 64;

  /// `account_of`  empty: users are not told apart, and not bounded.
  explicit Calls(AccountOf account_of = {}) : account_of_(std::move(account_of)) {}

  void begin();
  void end();
  /// Begins a call that is answered once. The user to count it for; none: it counts for nobody.
  /// Errors  kResourceExhausted: the user has too many; the call has begun all the same.
  Result<std::optional<std::uint64_t>> begin_unary(std::optional<int> connection);
  /// The call that `user` was given for counts for nobody any more.
  void uncount(std::optional<std::uint64_t> user);
  /// Waits until there are none, or for `patience`.   Blocks.
  void await_none(std::chrono::milliseconds patience);

 private:
  Mutex mutex_;
  Condition none_;
  const AccountOf account_of_;
  std::size_t under_way_ GPUMEM_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::size_t> unary_ GPUMEM_GUARDED_BY(mutex_);  ///< by user
};

/// The number of the descriptor of the call's connection, which Server::serve() was given.
std::optional<int> connection_of(const grpc::CallbackServerContext& context);

/// Answers a call once, by Finish(). Counted until that has been sent, which gRPC may tell long after the
/// client has the answer. A refusal keeps no memory and counts no longer: a client that asks again at once,
/// and is refused again, is never told that it has too many calls.
class Unary final : public grpc::ServerUnaryReactor {
 public:
  Unary(Calls& calls, const grpc::CallbackServerContext& context);

  /// False: its user has too many calls. It is finished already.
  bool is_taken() const { return taken_; }
  void Finish(const grpc::Status& status);
  /// The account that it counts for; none: it counts for nobody.
  std::optional<std::uint64_t> user() const { return user_; }

 private:
  void OnDone() override;

  Calls& calls_;
  std::optional<std::uint64_t> user_;
  bool taken_ = true;
};

/// The caller behind `connection`, a number of connection_of(). Called in work on the core's thread.
/// Errors  kUnauthenticated: the connection is gone.
Result<core::Caller> caller_of(const core::Executor& executor, std::optional<int> connection);

}  // namespace gpumem::rpc
