#include "client/cli/rpc.h"

#include "client/status.h"

namespace gpumem::cli {

Error call_error(const grpc::Status& status, const std::filesystem::path& socket) {
  const std::string& words = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return {Code::kUnavailable,
              "the broker at " + socket.string() + " is gone (systemctl status gpumemd): " + words};
    case grpc::StatusCode::CANCELLED:  // not by this side, which reports its own cancelling earlier
      return {Code::kUnavailable,
              "the broker at " + socket.string() + " broke the call off: it is stopping: " + words};
    case grpc::StatusCode::UNIMPLEMENTED:
      return {Code::kInternal, "the broker does not know this call; it is of another version: " + words};
    default: break;
  }
  const auto number = static_cast<std::uint64_t>(status.error_code());
  return {client::code_of(number), words.empty() ? "the broker gives no reason" : words};
}

}  // namespace gpumem::cli
