#include "tests/hostile/clients/silent_clients.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>

#include "base/system/unix_socket.h"

namespace gpumem::test {

UniqueFd connect_to_stream(const std::filesystem::path& socket) {
  UniqueFd connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect_unix(connection.get(), socket), 0) << socket << ": " << std::strerror(errno);
  return connection;
}

void begin_http2(int socket) {
  // The preface, and a frame of settings that sets nothing.
  constexpr char kBegin[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
  EXPECT_EQ(::send(socket, kBegin, sizeof kBegin - 1, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof kBegin - 1));
}

bool is_cut(int socket) {
  pollfd waiting{socket, POLLIN | POLLRDHUP, 0};
  return ::poll(&waiting, 1, 0) > 0 && (waiting.revents & (POLLHUP | POLLRDHUP)) != 0;
}

}  // namespace gpumem::test
