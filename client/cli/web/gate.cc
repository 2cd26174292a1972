#include "client/cli/web/gate.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <boost/beast/http/field.hpp>
#include <boost/beast/http/verb.hpp>
#include <string_view>

#include "base/random.h"

namespace gpumem::cli::web {
namespace {

namespace beast = boost::beast::http;

// The only value of the field; empty: there is none, or there are several.
template <class Name>
std::string_view only(const http::Request& request, const Name& name) {
  if (request.count(name) != 1) return {};
  const auto value = request[name];
  return {value.data(), value.size()};
}

// A name that some DNS server could answer for would let that server's pages read this one.
bool is_loopback_name(std::string_view host) {
  for (const std::string_view name : {"localhost", "127.0.0.1", "[::1]"}) {
    if (!host.starts_with(name)) continue;
    const std::string_view rest = host.substr(name.size());
    if (rest.empty()) return true;
    const std::string_view port = rest.substr(1);
    return rest.front() == ':' && !port.empty() && port.size() <= 5 &&
           std::ranges::all_of(port, [](char letter) { return letter >= '0' && letter <= '9'; });
  }
  return false;
}

// Takes as long for any token of the right length.
bool is_equal(std::string_view one, std::string_view other) {
  return one.size() == other.size() && ::CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

http::Answer refusal(unsigned status, const std::string& words) {
  http::Answer answer = http::plain_answer(status, words);
  answer.is_last = true;
  return answer;
}

}  // namespace

std::optional<http::Answer> Gate::refuse(const http::Request& request, Asked asked) const {
  if (request.method() != beast::verb::get) {
    http::Answer answer = refusal(405, "this page only shows");
    answer.fields.emplace_back("Allow", "GET");
    return answer;
  }
  if (!is_loopback_name(only(request, beast::field::host)))
    return refusal(403, "this page answers to localhost, 127.0.0.1 and [::1] alone");
  if (asked == Asked::kPage) return std::nullopt;
  return refuse_data(request);
}

std::optional<http::Answer> Gate::refuse_data(const http::Request& request) const {
  const std::string own = "http://" + std::string(only(request, beast::field::host));
  if (request.count(beast::field::origin) != 0 && only(request, beast::field::origin) != own)
    return refusal(403, "a page of another origin asks");
  const std::string_view site = only(request, "Sec-Fetch-Site");
  if (request.count("Sec-Fetch-Site") != 0 && site != "same-origin" && site != "none")
    return refusal(403, "a page of another site asks");
  if (!token_.empty() && !is_equal(only(request, kTokenField), token_))
    return refusal(401, "open the whole address that gpumem web has printed: it has the token");
  return std::nullopt;
}

std::string random_token() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<char, 32> bytes{};
  fill_random(bytes);
  std::string token;
  for (const char byte : bytes) {
    token += kDigits[static_cast<unsigned char>(byte) >> 4];
    token += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return token;
}

}  // namespace gpumem::cli::web
