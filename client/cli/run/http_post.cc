#include "client/cli/run/http_post.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/none.hpp>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

namespace gpumem::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

constexpr std::string_view kScheme = "http://";
constexpr std::uint32_t kLongestHead = 16 * 1024;
constexpr int kMostInterim = 16;  ///< answers before the final one

/// One exchange: host to addresses, connection, request, head of the answer.
class Post {
 public:
  using Clock = std::chrono::steady_clock;

  Post(HttpUrl url, const std::string& json)
      : url_(std::move(url)), request_(http::verb::post, url_.path, 11) {
    const bool is_ipv6 = url_.host.find(':') != std::string::npos;
    request_.set(http::field::host, (is_ipv6 ? "[" + url_.host + "]" : url_.host) + ":" + url_.port);
    request_.set(http::field::content_type, "application/json");
    request_.keep_alive(false);
    request_.body() = json;
    request_.prepare_payload();
  }

  /// Once.
  Result<void> run(Clock::time_point deadline) {
    stream_.expires_at(deadline);  // of every step: one that trickles in gets no more
    resolver_.async_resolve(url_.host, url_.port,
                            [this](beast::error_code error, const tcp::resolver::results_type& found) {
                              is_resolved_ = true;
                              if (goes_on(error, "no address")) connect(found);
                            });
    context_.run_until(deadline);
    if (!failure_.empty()) return unavailable(failure_);
    if (!is_answered_) return unavailable("no answer in time");
    const auto& head = answer_->get();
    if (http::to_status_class(head.result_int()) == http::status_class::successful) return {};
    return unavailable("answered " + std::to_string(head.result_int()) + " " + std::string(head.reason()));
  }
  /// Until then a thread of the resolver, which cannot be called off, is waited for by the destructor.
  bool is_resolved() const { return is_resolved_; }

 private:
  void connect(const tcp::resolver::results_type& found) {
    stream_.async_connect(found, [this](beast::error_code error, const tcp::endpoint&) {
      if (goes_on(error, "cannot connect")) write();
    });
  }
  void write() {
    http::async_write(stream_, request_, [this](beast::error_code error, std::size_t) {
      if (goes_on(error, "cannot send")) read();
    });
  }
  void read() {
    answer_.emplace();
    answer_->header_limit(kLongestHead);
    answer_->body_limit(boost::none);  // the body is not read
    http::async_read_header(stream_, buffer_, *answer_, [this](beast::error_code error, std::size_t) {
      if (!goes_on(error, "no answer")) return;
      if (is_interim() && ++interim_ <= kMostInterim) return read();
      is_answered_ = true;
    });
  }
  // Such as 103 Early Hints: the final answer follows. After 101 another protocol would.
  bool is_interim() const {
    const auto& head = answer_->get();
    return http::to_status_class(head.result_int()) == http::status_class::informational &&
           head.result() != http::status::switching_protocols;
  }

  bool goes_on(beast::error_code error, const char* what) {
    if (error == beast::error::timeout) return false;
    if (error) failure_ = std::string(what) + ": " + error.message();
    return !error;
  }
  Error unavailable(const std::string& words) const {
    return {Code::kUnavailable, "POST to http://" + url_.host + ":" + url_.port + url_.path + ": " + words};
  }

  const HttpUrl url_;
  asio::io_context context_{1};
  tcp::resolver resolver_{context_};
  beast::tcp_stream stream_{context_};
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_{kLongestHead};
  std::optional<http::response_parser<http::empty_body>> answer_;  ///< the latest
  int interim_ = 0;
  std::string failure_;
  bool is_resolved_ = false;
  bool is_answered_ = false;
};

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
  if (parsed.host.empty() || parsed.host.find_first_of("[]") != std::string::npos || has_control)
    return wrong;
  std::uint16_t port = 0;
  const char* const end = parsed.port.data() + parsed.port.size();
  const auto read = std::from_chars(parsed.port.data(), end, port);
  if (read.ec != std::errc() || read.ptr != end || port == 0) return wrong;
  return parsed;
}

Result<void> post_json(const HttpUrl& url, const std::string& json, std::chrono::milliseconds patience) {
  auto post = std::make_unique<Post>(url, json);
  auto done = post->run(Post::Clock::now() + patience);
  // A name server that does not answer is not waited for.
  if (!post->is_resolved()) std::thread([late = std::move(post)] {}).detach();
  return done;
}

}  // namespace gpumem::cli
