#include "daemon/rpc/callers.h"

#include <charconv>
#include <string_view>

#include "proto/lane.h"

namespace gpumem::rpc {

std::string token_of(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kSessionMetadataKey);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
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

Error no_session() {
  return {Code::kUnauthenticated,
          "this call is for clients of the lane's version 2, and needs the token of a living session of "
          "theirs as "
          "metadata 'gpumem-session'; everybody else opens a session by the call Session (docs/grpc.md)"};
}

}  // namespace gpumem::rpc
