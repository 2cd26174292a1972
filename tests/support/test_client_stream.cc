// The commands of a session by gRPC.
#include "tests/support/session_stream.h"
#include "tests/support/test_client.h"

namespace gpumem::test {

std::optional<Answer> stream_command(const Json& command, Holdings& holdings) {
  const std::string what = command.at("do");
  if (what == "stream_open") {
    holdings.stream = std::make_shared<SessionStream>(holdings.runtime_folder);
    holdings.stream->open();
    return Answer{};
  }
  if (what != "stream_grow") return std::nullopt;
  const std::uint64_t slice = holdings.stream->open_slice();
  const v1::SessionAnswer answer =
      holdings.stream->ask(growth(slice, {command.at("bytes").get<std::uint64_t>()}));
  if (answer.has_granted()) return Answer{};
  return failure(Error{Code::kResourceExhausted, answer.failed().message()});
}

}  // namespace gpumem::test
