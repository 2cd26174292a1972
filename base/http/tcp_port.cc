#include "base/http/tcp_port.h"

#include <arpa/inet.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

namespace gpumem::http {
namespace {

Error wrong(const std::string& text, const std::string& why) {
  return {Code::kInvalidArgument,
          "'" + text + "' " + why + ": give one such as \"127.0.0.1:9400\" or \"[::1]:9400\""};
}

template <class Address>
TcpAddress tcp_address(const Address& address, bool is_loopback) {
  TcpAddress tcp;
  std::memcpy(&tcp.address, &address, sizeof address);
  tcp.size = sizeof address;
  tcp.is_loopback = is_loopback;
  return tcp;
}

std::optional<TcpAddress> v4(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return std::nullopt;
  return tcp_address(address, ntohl(address.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET);
}

std::optional<TcpAddress> v6(const std::string& host, std::uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  if (::inet_pton(AF_INET6, host.c_str(), &address.sin6_addr) != 1) return std::nullopt;
  return tcp_address(address, IN6_IS_ADDR_LOOPBACK(&address.sin6_addr));
}

std::string where(int socket, const std::string& text) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return text;
  in_port_t port = 0;  // at the same place in both
  std::memcpy(&port, reinterpret_cast<const char*>(&address) + offsetof(sockaddr_in, sin_port), sizeof port);
  return text.substr(0, text.rfind(':') + 1) + std::to_string(ntohs(port));
}

}  // namespace

static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));

Result<TcpAddress> parse_tcp_address(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return wrong(text, "has no port");
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  if (const auto read = std::from_chars(text.data() + colon + 1, end, port);
      read.ec != std::errc() || read.ptr != end)
    return wrong(text, "has no port from 0 to 65535");
  const std::string host = text.substr(0, colon);
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const auto address = in_brackets ? v6(host.substr(1, host.size() - 2), port) : v4(host, port);
  return address ? Result<TcpAddress>(*address) : wrong(text, "is no address");
}

Result<TcpPort> listen_on_tcp(const std::string& text) {
  const auto address = parse_tcp_address(text);
  if (!address) return address.error();
  UniqueFd socket(::socket(address->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno_error(errno, "cannot make a socket for " + text);
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address->address), address->size) != 0)
    return errno_error(errno, "cannot bind " + text);
  if (::listen(socket.get(), SOMAXCONN) != 0) return errno_error(errno, "cannot listen on " + text);
  std::string listens = where(socket.get(), text);
  return TcpPort{std::move(socket), std::move(listens)};
}

}  // namespace gpumem::http
