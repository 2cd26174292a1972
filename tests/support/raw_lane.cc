#include "tests/support/raw_lane.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "proto/lane.h"
#include "tests/support/eventually.h"

namespace gpumem::test {
namespace {

bool is_readable(int socket) {
  pollfd waiting{socket, POLLIN, 0};
  return ::poll(&waiting, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) > 0;
}

}  // namespace

RawLane::RawLane(const std::filesystem::path& runtime_folder)
    : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = (runtime_folder / kLaneSocketName).string();
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0)
      << path << ": " << std::strerror(errno);
}

bool RawLane::send(std::string_view bytes, std::span<const int> descriptors) {
  return send_packet(socket_.get(), bytes, descriptors).has_value();
}

bool RawLane::send(const v1::ToBroker& message, std::span<const int> descriptors) {
  return send(message.SerializeAsString(), descriptors);
}

bool RawLane::accept(std::uint64_t grant) {
  v1::ToBroker message;
  message.mutable_accept()->set_grant(grant);
  return send(message);
}

bool RawLane::goodbye() {
  v1::ToBroker message;
  message.mutable_goodbye();
  return send(message);
}

v1::ToClient RawLane::receive() {
  v1::ToClient message;
  EXPECT_TRUE(is_readable(socket_.get())) << "the broker does not answer";
  auto packet = receive_packet(socket_.get(), kLaneMessageBytes, kLaneDescriptors);
  if (!packet) return message;
  EXPECT_TRUE(message.ParseFromString(packet->bytes));
  for (UniqueFd& descriptor : packet->descriptors) descriptors_.push_back(std::move(descriptor));
  return message;
}

v1::Welcome RawLane::greet(const std::string& label) {
  EXPECT_TRUE(send(hello(label)));
  const v1::ToClient answer = receive();
  EXPECT_TRUE(answer.has_welcome()) << answer.refused().message();
  EXPECT_EQ(descriptors_.size(), 3U);
  return answer.welcome();
}

std::string RawLane::greet_control() {
  v1::ToBroker message = hello("");
  message.mutable_hello()->set_control(true);
  EXPECT_TRUE(send(message));
  const v1::ToClient answer = receive();
  EXPECT_TRUE(answer.has_welcome()) << answer.refused().message();
  EXPECT_TRUE(descriptors_.empty());
  return answer.welcome().token();
}

bool RawLane::is_closed_by_broker() {
  while (is_readable(socket_.get())) {
    auto packet = receive_packet(socket_.get(), kLaneMessageBytes, kLaneDescriptors);
    if (!packet || packet->bytes.empty()) return true;
  }
  return false;
}

v1::ToBroker hello(const std::string& label) {
  v1::ToBroker message;
  message.mutable_hello()->set_protocol(kLaneProtocol);
  message.mutable_hello()->set_label(label);
  return message;
}

}  // namespace gpumem::test
