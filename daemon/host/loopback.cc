#include "daemon/host/loopback.h"

#include <arpa/inet.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

namespace gpumem::host {
namespace {

Error wrong(const std::string& text, const std::string& why) {
  return {Code::kInvalidArgument,
          "'" + text + "' " + why +
              ": give one that only this machine reaches, such as \"127.0.0.1:9400\" or "
              "\"[::1]:9400\""};
}

template <class Address>
Loopback loopback_of(const Address& address) {
  Loopback loopback;
  std::memcpy(&loopback.address, &address, sizeof address);
  loopback.size = sizeof address;
  return loopback;
}

std::optional<Loopback> v4(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return std::nullopt;
  const bool is_loopback = ntohl(address.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  return is_loopback ? std::optional(loopback_of(address)) : std::nullopt;
}

std::optional<Loopback> v6(const std::string& host, std::uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  if (::inet_pton(AF_INET6, host.c_str(), &address.sin6_addr) != 1) return std::nullopt;
  return IN6_IS_ADDR_LOOPBACK(&address.sin6_addr) ? std::optional(loopback_of(address)) : std::nullopt;
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

Result<Loopback> parse_loopback(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return wrong(text, "has no port");
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  if (const auto read = std::from_chars(text.data() + colon + 1, end, port);
      read.ec != std::errc() || read.ptr != end)
    return wrong(text, "has no port from 0 to 65535");
  const std::string host = text.substr(0, colon);
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const auto loopback = in_brackets ? v6(host.substr(1, host.size() - 2), port) : v4(host, port);
  return loopback ? Result<Loopback>(*loopback) : wrong(text, "is no loopback address");
}

Result<LoopbackSocket> listen_on_loopback(const std::string& text) {
  const auto loopback = parse_loopback(text);
  if (!loopback) return loopback.error();
  UniqueFd socket(::socket(loopback->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno_error(errno, "cannot make a socket for " + text);
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&loopback->address), loopback->size) != 0)
    return errno_error(errno, "cannot bind " + text);
  constexpr int kBacklog = 128;
  if (::listen(socket.get(), kBacklog) != 0) return errno_error(errno, "cannot listen on " + text);
  std::string listens = where(socket.get(), text);
  return LoopbackSocket{std::move(socket), std::move(listens)};
}

}  // namespace gpumem::host
