#include "client/cli/control.h"

#include <poll.h>

#include <chrono>

#include "base/packet.h"
#include "client/lane_socket.h"
#include "client/status.h"
#include "gpumem/v1/lane.pb.h"
#include "proto/lane.h"

namespace gpumem::cli {
namespace {

constexpr std::chrono::seconds kTimeout{10};

Result<std::string> greet(int socket) {
  v1::ToBroker hello;
  hello.mutable_hello()->set_protocol(kLaneProtocol);
  hello.mutable_hello()->set_control(true);
  if (auto sent = send_packet(socket, hello.SerializeAsString()); !sent) return sent.error();
  pollfd polled{socket, POLLIN, 0};
  const int ready = ::poll(&polled, 1, static_cast<int>(std::chrono::milliseconds(kTimeout).count()));
  if (ready == 0) return Error{Code::kUnavailable, "it does not answer (systemctl status gpumemd)"};
  auto packet = receive_packet(socket, kLaneMessageBytes, kLaneDescriptors);
  if (!packet) return packet.error();
  if (packet->bytes.empty()) return Error{Code::kUnavailable, "it has closed the connection"};
  v1::ToClient answer;
  if (!answer.ParseFromString(packet->bytes)) return client::protocol_error("a message that cannot be read");
  if (answer.has_refused()) {
    const v1::Refused& refused = answer.refused();
    return Error{client::code_of(static_cast<std::uint64_t>(refused.code())), refused.message()};
  }
  if (answer.welcome().token().empty()) return client::protocol_error("a welcome without a token");
  return answer.welcome().token();
}

}  // namespace

Result<Control> Control::connect(const std::filesystem::path& runtime_folder) {
  const std::filesystem::path path = runtime_folder / kLaneSocketName;
  auto socket = client::connect_lane(path, kTimeout);
  if (!socket) return socket.error();
  auto token = greet(socket->get());
  if (!token) return token.error().in("the broker at " + path.string());
  return Control(std::move(*socket), std::move(*token));
}

}  // namespace gpumem::cli
