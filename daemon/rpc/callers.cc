#include "daemon/rpc/callers.h"

#include <charconv>
#include <string_view>

namespace gpumem::rpc {

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
