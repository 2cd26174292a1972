#include "tests/support/lanes/raw_lane.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>

#include "base/packet.h"
#include "base/system/unix_socket.h"
#include "proto/lane.h"
#include "proto/lane/header.h"
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
  const std::filesystem::path path = runtime_folder / kLaneSocketName;
  EXPECT_EQ(connect_unix(socket_.get(), path), 0) << path << ": " << std::strerror(errno);
}

bool RawLane::send(std::string_view bytes, std::span<const int> descriptors) {
  return send_packet(socket_.get(), bytes, descriptors).has_value();
}

bool RawLane::is_closed_by_broker() {
  while (is_readable(socket_.get())) {
    auto packet = receive_packet(socket_.get(), lane::kMostBytes, lane::kMostDescriptors);
    if (!packet || packet->bytes.empty()) return true;
  }
  return false;
}

}  // namespace gpumem::test
