#include "client/cli/run/http_post.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string_view>

#include "base/unique_fd.h"

namespace gpumem::cli {
namespace {

constexpr std::string_view kScheme = "http://";

Error unavailable(const HttpUrl& url, const std::string& words) {
  return {Code::kUnavailable, "POST to http://" + url.host + ":" + url.port + url.path + ": " + words};
}

Result<UniqueFd> connect_to(const HttpUrl& url, std::chrono::milliseconds patience) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int failed = ::getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found); failed != 0)
    return unavailable(url, ::gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
  const timeval limit{patience.count() / 1000, patience.count() % 1000 * 1000};
  int number = 0;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    UniqueFd socket(::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (::connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0) return socket;
    number = errno;
  }
  return unavailable(url, errno_error(number, "cannot connect").message);
}

std::string request_text(const HttpUrl& url, const std::string& json) {
  const bool is_ipv6 = url.host.find(':') != std::string::npos;
  const std::string host = is_ipv6 ? "[" + url.host + "]" : url.host;
  return "POST " + url.path + " HTTP/1.1\r\nHost: " + host + ":" + url.port +
         "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(json.size()) +
         "\r\nConnection: close\r\n\r\n" + json;
}

}  // namespace

Result<HttpUrl> parse_url(const std::string& url) {
  const Error wrong{
      Code::kInvalidArgument,
      "'" + url + "' is not http://HOST[:PORT][/PATH]; for others, name a command such as curl"};
  if (!url.starts_with(kScheme)) return wrong;
  const std::string rest = url.substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const std::string authority = rest.substr(0, slash);
  const std::size_t bracket = authority.find(']');  // the end of an address of IPv6
  const std::size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  HttpUrl parsed{authority.substr(0, colon), colon == std::string::npos ? "80" : authority.substr(colon + 1),
                 slash == rest.size() ? "/" : rest.substr(slash)};
  if (parsed.host.starts_with('[') && parsed.host.ends_with(']'))
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  const bool has_control = url.find_first_of(" \t\r\n") != std::string::npos;
  if (parsed.host.empty() || parsed.port.empty() || has_control) return wrong;
  return parsed;
}

Result<void> post_json(const HttpUrl& url, const std::string& json, std::chrono::milliseconds patience) {
  auto socket = connect_to(url, patience);
  if (!socket) return socket.error();
  const std::string request = request_text(url, json);
  for (std::size_t sent = 0; sent < request.size();) {
    const ssize_t count = ::send(socket->get(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (count < 0) return unavailable(url, errno_error(errno, "cannot send").message);
    sent += static_cast<std::size_t>(count);
  }
  std::string answer;
  std::array<char, 256> part{};
  constexpr std::string_view kStatusLine = "HTTP/1.1 200";
  while (answer.size() < kStatusLine.size()) {
    const ssize_t count = ::recv(socket->get(), part.data(), part.size(), 0);
    if (count <= 0) return unavailable(url, "no answer");
    answer.append(part.data(), static_cast<std::size_t>(count));
  }
  const bool is_good = answer.starts_with("HTTP/1.") && answer.at(8) == ' ' && answer.at(9) == '2';
  return is_good ? Result<void>() : unavailable(url, "answered " + answer.substr(0, answer.find('\r')));
}

}  // namespace gpumem::cli
