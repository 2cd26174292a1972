#include "daemon/rpc/calls.h"

#include <charconv>
#include <string_view>

namespace gpumem::rpc {

void Calls::begin() {
  const MutexLock lock(mutex_);
  ++under_way_;
}

void Calls::end() {
  const MutexLock lock(mutex_);
  if (--under_way_ == 0) none_.notify_all();
}

void Calls::await_none(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const MutexLock lock(mutex_);
  while (under_way_ != 0 && std::chrono::steady_clock::now() < deadline) none_.wait_until(mutex_, deadline);
}

// gRPC names a connection that it was given as a descriptor by that: `fd:17`.
std::optional<int> connection_of(const grpc::CallbackServerContext& context) {
  constexpr std::string_view kPrefix = "fd:";
  const std::string peer = context.peer();
  int number = 0;
  if (!peer.starts_with(kPrefix)) return std::nullopt;
  const char* const end = peer.data() + peer.size();
  const auto [read, error] = std::from_chars(peer.data() + kPrefix.size(), end, number);
  return error == std::errc() && read == end ? std::optional(number) : std::nullopt;
}

Result<core::Caller> caller_of(const core::Executor& executor, std::optional<int> connection) {
  auto caller = connection ? executor.caller_of(*connection) : std::nullopt;
  if (caller) return std::move(*caller);
  return Error{Code::kUnauthenticated, "the connection of this call has ended: nobody is there to answer"};
}

}  // namespace gpumem::rpc
