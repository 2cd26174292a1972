#include "daemon/kubernetes/endpoint.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>

namespace gpumem::kubernetes {
namespace {

bool is_loopback(const std::string& host) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 &&
         std::all_of(text.begin(), text.end(), [](char letter) { return letter >= '0' && letter <= '9'; });
}

}  // namespace

std::string Endpoint::authority() const {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port;
}

bool is_address(const std::string& host) {
  boost::system::error_code error;
  boost::asio::ip::make_address(host, error);
  return !error;
}

Result<Endpoint> parse_endpoint(std::string_view url) {
  const Error wrong{Code::kInvalidArgument, "\"" + std::string(url) + "\" is no https://HOST[:PORT]"};
  Endpoint endpoint;
  std::string_view rest = url;
  endpoint.tls = !rest.starts_with("http://");
  if (!rest.starts_with("https://") && endpoint.tls) return wrong;
  rest.remove_prefix(endpoint.tls ? 8 : 7);
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  endpoint.prefix = rest.substr(slash);
  while (endpoint.prefix.ends_with('/')) endpoint.prefix.pop_back();
  std::string_view authority = rest.substr(0, slash);
  const std::size_t bracket = authority.rfind(']');
  const std::size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  endpoint.port = endpoint.tls ? "443" : "80";
  if (colon != std::string_view::npos) {
    endpoint.port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']'))
    authority = authority.substr(1, authority.size() - 2);
  endpoint.host = authority;
  if (endpoint.host.empty() || endpoint.host.find_first_of("[]@ ") != std::string::npos ||
      !is_port(endpoint.port))
    return wrong;
  if (!endpoint.tls && !is_loopback(endpoint.host))
    return Error{Code::kInvalidArgument,
                 "\"" + std::string(url) + "\": http is for an address of loopback alone; use https"};
  return endpoint;
}

}  // namespace gpumem::kubernetes
