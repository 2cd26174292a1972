#include "tests/support/http_client.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/system/unix_socket.h"
#include "tests/support/eventually.h"

namespace gpumem::test {
namespace {

// Reads until `enough` of what came says so, or the end.
template <class Enough>
std::string read(int socket, Enough&& enough) {
  std::string text;
  std::array<char, 65536> piece;
  while (!enough(text)) {
    pollfd waiting{socket, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) <= 0) {
      ADD_FAILURE() << "neither bytes nor an end after: " << text.substr(0, 1000);
      break;
    }
    const ssize_t count = ::recv(socket, piece.data(), piece.size(), 0);
    if (count <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(count));
  }
  return text;
}

}  // namespace

UniqueFd connect_to(const std::filesystem::path& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect_unix(socket.get(), path), 0) << path << ": " << std::strerror(errno);
  return socket;
}

UniqueFd connect_to_port(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0)
      << std::strerror(errno);
  return socket;
}

bool send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

std::string read_to_end(int socket) {
  return read(socket, [](const std::string&) { return false; });
}

std::string read_until(int socket, std::string_view words) {
  return read(socket, [&](const std::string& text) { return text.find(words) != std::string::npos; });
}

bool is_closed_soon(int socket) {
  return eventually([&] {
    std::array<char, 65536> piece;
    const ssize_t count = ::recv(socket, piece.data(), piece.size(), MSG_DONTWAIT);
    return count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
  });
}

}  // namespace gpumem::test
