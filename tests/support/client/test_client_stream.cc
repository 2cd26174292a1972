// The commands of a session by gRPC.
#include "tests/support/client/test_client.h"
#include "tests/support/lanes/session_stream.h"

namespace gpumem::test {
namespace {

Answer refused(const v1::SessionAnswer& answer) {
  return failure(Error{Code::kResourceExhausted, answer.failed().message()});
}

Answer stream_open(Holdings& holdings) {
  holdings.stream = std::make_shared<SessionStream>(holdings.runtime_folder);
  v1::SessionRequest request;
  request.mutable_open()->set_label("stream");
  const v1::SessionAnswer answer = holdings.stream->ask(request);
  if (!answer.has_opened()) return refused(answer);
  holdings.stream_device = answer.opened().devices(0).uuid();
  return {};
}

Answer stream_grow(const Json& command, Holdings& holdings) {
  v1::SessionRequest request;
  request.mutable_open_slice()->set_device(holdings.stream_device);
  const v1::SessionAnswer opened = holdings.stream->ask(request);
  if (!opened.has_slice_opened()) return refused(opened);
  const Bytes bytes{command.at("bytes").get<std::uint64_t>()};
  const v1::SessionAnswer answer = holdings.stream->ask(growth(opened.slice_opened().slice(), bytes));
  return answer.has_granted() ? Answer{} : refused(answer);
}

}  // namespace

std::optional<Answer> stream_command(const Json& command, Holdings& holdings) {
  const std::string what = command.at("do");
  if (what == "stream_open") return stream_open(holdings);
  if (what == "stream_grow") return stream_grow(command, holdings);
  return std::nullopt;
}

}  // namespace gpumem::test
