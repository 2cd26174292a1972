// Ports of this machine, and who reaches them.
#include "base/http/tcp_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <vector>

namespace gpumem::http {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(TcpPort, OfLoopbackIsToldInBothFamilies) {
  for (const char* text : {"127.0.0.1:9400", "127.9.8.7:1", "[::1]:65535", "127.0.0.1:0"}) {
    const auto parsed = parse_tcp_address(text);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_TRUE(parsed->is_loopback) << text;
  }
}

TEST(TcpPort, ThatOthersReachIsNotOfLoopback) {
  for (const char* text : {"0.0.0.0:9400", "10.0.0.1:9400", "[::]:9400", "[fe80::1]:9400",
                           "[::ffff:127.0.0.1]:9400", "128.0.0.1:9400"}) {
    const auto parsed = parse_tcp_address(text);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_FALSE(parsed->is_loopback) << text;
  }
}

TEST(TcpPort, HasAnAddressInFigures) {
  for (const char* text :
       {"localhost:9400", "::1:9400", ":9400", "[]:9400", "[127.0.0.1]:9400", "1.2.3:9400"}) {
    const auto parsed = parse_tcp_address(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_THAT(parsed.error().message, HasSubstr("is no address: give one such as \"127.0.0.1:9400\""));
  }
}

TEST(TcpPort, NeedsAPort) {
  for (const char* text :
       {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:1 "})
    EXPECT_THAT(parse_tcp_address(text).error().message, HasSubstr("has no port")) << text;
}

// Connections may come faster than a server accepts them.
TEST(TcpPort, KeepsManyConnectionsThatWait) {
  const auto port = listen_on_tcp("127.0.0.1:0");
  ASSERT_TRUE(port) << port.error().message;
  const auto address = parse_tcp_address(port->where);
  std::vector<UniqueFd> waiting;
  for (int i = 0; i < 500; ++i) {
    waiting.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::connect(waiting.back().get(), reinterpret_cast<const sockaddr*>(&address->address), address->size);
    pollfd connected{waiting.back().get(), POLLOUT, 0};
    ASSERT_EQ(::poll(&connected, 1, 500), 1) << i;
  }
}

TEST(TcpPort, SaysWhichOneTheKernelChose) {
  for (const std::string host : {"127.0.0.1", "[::1]"}) {
    const auto socket = listen_on_tcp(host + ":0");
    if (!socket && host == "[::1]") continue;  // a machine without IPv6
    ASSERT_TRUE(socket) << socket.error().message;
    EXPECT_THAT(socket->where, StartsWith(host + ":"));
    EXPECT_NE(socket->where, host + ":0");
    const auto taken = listen_on_tcp(socket->where);
    ASSERT_FALSE(taken);
    EXPECT_THAT(taken.error().message, HasSubstr("cannot bind " + socket->where));
  }
}

}  // namespace
}  // namespace gpumem::http
