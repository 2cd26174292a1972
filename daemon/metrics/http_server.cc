#include "daemon/metrics/http_server.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <exception>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/thread_guards.h"
#include "daemon/core/words/refusals.h"

namespace gpumem::metrics {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr const char* kOpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
constexpr const char* kPath = "/metrics";

using Stream = beast::basic_stream<asio::generic::stream_protocol>;
using Body = http::span_body<const char>;

constexpr std::chrono::milliseconds kPause{100};
constexpr int kNice = 10;

int domain_of(int socket) {
  int domain = AF_UNIX;
  socklen_t size = sizeof domain;
  ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size);
  return domain;
}

}  // namespace

// One connection of a scraper: GET and HEAD of /metrics, one request after the other, and errors that end it.
// It closes itself when a limit is passed. Threads  the loop's.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  struct Options {
    HttpLimits limits;
    // Gives the text to what it is called with, later, on the loop's thread.
    std::function<void(std::function<void(Text)>)> text;
    // A request has been read: the connection is in use.
    std::function<void()> used;
    // The connection has ended, whichever side closed it. Called once, never from within a call of the
    // owner.
    std::function<void()> closed;
  };

  HttpConnection(asio::io_context& loop, Options options)
      : options_(std::move(options)), stream_(loop), buffer_(options_.limits.header) {}

  // `socket`  connected and non-blocking; `domain` as it was made. False: the loop has no room for it.
  bool take(UniqueFd socket, int domain) {
    beast::error_code failed;
    stream_.socket().assign(asio::generic::stream_protocol(domain, 0), socket.get(), failed);
    if (!failed) static_cast<void>(socket.release());
    return !failed;
  }

  void start() { read(options_.limits.request); }
  // Pending operations fail, and their handlers end the connection.
  void cut() { stream_.close(); }

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

/// One listening socket and its connections. Threads  the server's.
class HttpServer::Listener {
 public:
  Listener(asio::io_context& io, UniqueFd socket, const Options& options)
      : io_(io),
        domain_(domain_of(socket.get())),
        limits_(options.limits),
        text_(options.text),
        is_reserved_(options.is_reserved),
        socket_(io, socket.release()),
        pause_(io) {}

  void await() {
    socket_.async_wait(asio::posix::stream_descriptor::wait_read,
                       [this](const boost::system::error_code& error) {
                         if (!error) accept();
                       });
  }

  void cut_all() {
    for (const Place& one : connections_) one.connection->cut();
  }

 private:
  struct Place {
    std::shared_ptr<HttpConnection> connection;
    bool cut = false;
  };
  using Places = std::list<Place>;

  // As many as there are places; then what they do comes first.
  void accept() {
    for (std::size_t i = 0; i < kMostConnections; ++i) {
      UniqueFd connection(::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (connection.valid() && !is_reserved_(connection.get())) {
        take(std::move(connection));
      } else if (connection.valid()) {
        core::count_refusal(core::Bound::kDescriptors);
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        return pause();
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        break;
      }
    }
    await();
  }

  void pause() {
    pause_.expires_after(kPause);
    pause_.async_wait([this](const boost::system::error_code& error) {
      if (!error) await();
    });
  }

  void take(UniqueFd socket) {
    if (connections_.size() >= kMostConnections) make_room();
    const auto place = connections_.emplace(connections_.end());
    place->connection = std::make_shared<HttpConnection>(
        io_, HttpConnection::Options{
                 .limits = limits_,
                 .text = [this](std::function<void(Text)> then) { ask(std::move(then)); },
                 .used = [this, place] { move_to_back(place); },
                 .closed = [this, place] { (place->cut ? cut_ : connections_).erase(place); }});
    if (!place->connection->take(std::move(socket), domain_))
      return static_cast<void>(connections_.erase(place));
    place->connection->start();
  }

  void move_to_back(Places::iterator place) {
    if (!place->cut) connections_.splice(connections_.end(), connections_, place);
  }

  // The connection calls closed() once none of its operations is pending.
  void make_room() {
    core::count_refusal(core::Bound::kMetricsConnections);
    const auto oldest = connections_.begin();
    oldest->cut = true;
    cut_.splice(cut_.end(), connections_, oldest);
    oldest->connection->cut();
  }

  void ask(std::function<void(Text)> then) {
    text_([this, then = std::move(then)](Text text) {
      asio::post(io_, [then, text = std::move(text)] { then(text); });
    });
  }

  asio::io_context& io_;
  const int domain_;
  const HttpLimits limits_;
  const std::function<void(Exposition::Then)> text_;
  const std::function<bool(int)> is_reserved_;
  asio::posix::stream_descriptor socket_;
  asio::steady_timer pause_;
  Places connections_;  ///< the one whose latest request is longest ago first
  Places cut_;          ///< to make room, and not over yet
};

HttpServer::HttpServer(Options options) : work_guard_(io_.get_executor()) {
  for (UniqueFd& socket : options.sockets)
    listeners_.push_back(std::make_unique<Listener>(io_, std::move(socket), options));
}

HttpServer::~HttpServer() { stop(); }

void HttpServer::start() {
  for (const auto& one : listeners_) one->await();
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { work(); });
}

// A scraper that asks without end takes time from nobody who decides. A connection that finds no memory is
// lost.
void HttpServer::work() {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);  // on Linux: of this thread
  for (;;) {
    try {
      io_.run();
      return;
    } catch (const std::exception& error) {
      spdlog::error("metrics: {}", error.what());
    }
  }
}

void HttpServer::stop() {
  if (!thread_.joinable()) return;
  io_.stop();
  thread_.join();
  for (const auto& one : listeners_) one->cut_all();
}

}  // namespace gpumem::metrics
