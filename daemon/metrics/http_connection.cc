#include "daemon/metrics/http_connection.h"

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <optional>
#include <string>
#include <utility>

namespace gpumem::metrics {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr const char* kOpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
constexpr const char* kPath = "/metrics";

using Stream = beast::basic_stream<asio::generic::stream_protocol>;
using Body = http::span_body<const char>;

class BeastConnection final : public HttpConnection, public std::enable_shared_from_this<BeastConnection> {
 public:
  BeastConnection(asio::io_context& loop, Options options)
      : options_(std::move(options)), stream_(loop), buffer_(options_.limits.header) {}

  // False: the loop cannot watch it.
  bool take(UniqueFd socket, int domain) {
    beast::error_code failed;
    stream_.socket().assign(asio::generic::stream_protocol(domain, 0), socket.get(), failed);
    if (!failed) static_cast<void>(socket.release());
    return !failed;
  }

  void start() override { read(options_.limits.request); }
  // Pending operations fail, and their handlers end the connection.
  void cut() override { stream_.close(); }

 private:
  void read(std::chrono::milliseconds patience) {
    head_ = false;
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(options_.limits.header));
    parser_->body_limit(0);
    stream_.expires_after(patience);
    http::async_read(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](beast::error_code error, std::size_t) { self->take_request(error); });
  }

  void take_request(beast::error_code error) {
    if (!error) {
      options_.used();
      return answer(parser_->get());
    }
    const bool is_spoken = error.category() == http::make_error_code(http::error::bad_method).category();
    if (!is_spoken || error == http::error::end_of_stream || error == http::error::partial_message)
      return end();
    const bool too_large = error == http::error::header_limit || error == http::error::buffer_overflow;
    say(too_large ? http::status::request_header_fields_too_large : http::status::bad_request, false);
  }

  void answer(const http::request<http::empty_body>& request) {
    const std::string_view target(request.target().data(), request.target().size());
    const bool keep = request.keep_alive();
    head_ = request.method() == http::verb::head;
    if (!head_ && request.method() != http::verb::get) return say(http::status::method_not_allowed, false);
    if (target.substr(0, target.find('?')) != kPath) return say(http::status::not_found, keep);
    options_.text([self = shared_from_this(), keep](Text text) {
      if (!text) return self->say(http::status::service_unavailable, false);
      self->text_ = std::move(text);
      self->send(http::status::ok, keep);
    });
  }

  // An answer that is not the metrics.
  void say(http::status status, bool keep) {
    const auto reason = http::obsolete_reason(status);
    std::string words(reason.data(), reason.size());
    if (status == http::status::not_found) words += ": the metrics are at /metrics";
    text_ = std::make_shared<const std::string>(words + "\n");
    send(status, keep);
  }

  void send(http::status status, bool keep) {
    response_ = {};
    response_.result(status);
    response_.version(11);
    response_.keep_alive(keep);
    response_.set(http::field::content_type,
                  status == http::status::ok ? kOpenMetrics : "text/plain; charset=utf-8");
    if (status == http::status::method_not_allowed) response_.set(http::field::allow, "GET, HEAD");
    if (!head_) response_.body() = Body::value_type(text_->data(), text_->size());
    response_.content_length(text_->size());
    stream_.expires_after(options_.limits.response);
    serializer_.emplace(response_);
    http::async_write(stream_, *serializer_,
                      [self = shared_from_this(), keep](beast::error_code error, std::size_t) {
                        self->text_.reset();
                        if (error || !keep) return self->end();
                        self->read(self->options_.limits.idle);
                      });
  }

  void end() {
    stream_.close();
    if (const auto closed = std::exchange(options_.closed, nullptr)) closed();
  }

  Options options_;
  Stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  Text text_;  ///< what `response_` shows
  http::response<Body> response_;
  std::optional<http::response_serializer<Body>> serializer_;
  bool head_ = false;
};

}  // namespace

std::shared_ptr<HttpConnection> HttpConnection::make(asio::io_context& loop, UniqueFd socket, int domain,
                                                     Options options) {
  auto connection = std::make_shared<BeastConnection>(loop, std::move(options));
  return connection->take(std::move(socket), domain) ? connection : nullptr;
}

}  // namespace gpumem::metrics
