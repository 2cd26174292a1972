#include "daemon/rpc/callers.h"

#include "proto/lane.h"

namespace gpumem::rpc {

std::string token_of(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kSessionMetadataKey);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

Error no_session() {
  return {Code::kUnauthenticated,
          "this call needs the token of a living session as metadata 'gpumem-session'; connect to the lane "
          "socket first (docs/architecture.md)"};
}

Error no_connection() {
  return {Code::kUnauthenticated,
          "this call needs the token of a living session or control connection as metadata 'gpumem-session'; "
          "connect to the lane socket first (docs/architecture.md)"};
}

}  // namespace gpumem::rpc
