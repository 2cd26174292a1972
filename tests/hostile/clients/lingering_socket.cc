#include "tests/hostile/clients/lingering_socket.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "base/packet.h"

namespace gpumem::test {
namespace {

std::array<char, 1 << 16> much;

bool connect_and_send(const sockaddr_in& address, int socket) {
  const int own = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(own, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return false;
  const linger minute{1, 60};
  if (::setsockopt(own, SOL_SOCKET, SO_LINGER, &minute, sizeof minute) != 0) return false;
  while (::send(own, much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  return send_packet(socket, "x", std::array{own}).has_value();
}

}  // namespace

LingeringSockets::LingeringSockets() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  address_.sin_family = AF_INET;
  address_.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address_;
  auto* const any = reinterpret_cast<sockaddr*>(&address_);
  EXPECT_EQ(::bind(listener_.get(), any, length), 0);
  EXPECT_EQ(::listen(listener_.get(), 64), 0);
  EXPECT_EQ(::getsockname(listener_.get(), any, &length), 0);
}

// In a process of its own: the kernel does not wait for what a process leaves open when it ends.
bool LingeringSockets::send_one(int socket) const {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(connect_and_send(address_, socket) ? 0 : 1);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace gpumem::test
