#include "base/http/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <deque>
#include <exception>
#include <list>
#include <optional>

#include "base/log.h"
#include "base/system/nice_thread.h"
#include "base/thread_guards.h"

namespace gpumem::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

namespace {

using Body = http::span_body<const char>;

constexpr std::chrono::milliseconds kPause{100};

int domain_of(int socket) {
  int domain = AF_UNIX;
  socklen_t size = sizeof domain;
  ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size);
  return domain;
}

template <class Response>
void set_head(Response& response, const Answer& answer, bool keep) {
  response.result(answer.status);
  response.version(11);
  response.keep_alive(keep);
  for (const auto& [name, value] : answer.fields) response.set(name, value);
}

}  // namespace

Answer plain_answer(unsigned status, const std::string& more) {
  const auto reason = http::obsolete_reason(http::int_to_status(status));
  const std::string words(reason.data(), reason.size());
  return {.status = status,
          .body = std::make_shared<const std::string>(words + (more.empty() ? "" : ": " + more) + "\n"),
          .fields = {{"Content-Type", "text/plain; charset=utf-8"}}};
}

// One connection of a client: one request after the other, and errors that end it. It closes itself when a
// limit is passed. Threads  the loop's.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  enum class Stage { kAwaitsRequest, kAwaitsAnswer, kSends };
  struct Options {
    HttpLimits limits;
    // Gives the answer to what it is called with, later, on the loop's thread.
    HttpServer::Handle handle;
    // The connection is at another stage.
    std::function<void(Stage)> moved_on;
    // Its answer is a stream.
    std::function<void()> streams;
    // The connection has ended, whichever side closed it. Called once, never from within a call of the
    // owner.
    std::function<void()> closed;
  };

  Connection(asio::io_context& loop, Options options)
      : loop_(loop), options_(std::move(options)), stream_(loop), buffer_(options_.limits.header) {}

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

  void push(Text piece) {
    if (pieces_.size() >= Stream::kMostQueued) return cut();
    pieces_.push_back(std::move(piece));
    if (pieces_.size() == 1 && is_headed_) write_piece();
  }

 private:
  void read(std::chrono::milliseconds patience) {
    options_.moved_on(Stage::kAwaitsRequest);
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(options_.limits.header));
    parser_->body_limit(0);
    stream_.expires_after(patience);
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](beast::error_code error, std::size_t) { self->take_request(error); });
  }

  void take_request(beast::error_code error) {
    if (!error && parser_->is_done()) {  // the request has no body
      options_.moved_on(Stage::kAwaitsAnswer);
      is_head_ = parser_->get().method() == http::verb::head;
      const bool keep = parser_->get().keep_alive();
      return options_.handle(parser_->get(), [self = shared_from_this(), keep](Answer answer) {
        self->send(std::move(answer), keep);
      });
    }
    const bool is_spoken =
        !error || error.category() == http::make_error_code(http::error::bad_method).category();
    if (!is_spoken || error == http::error::end_of_stream || error == http::error::partial_message)
      return end();
    const bool too_large = error == http::error::header_limit || error == http::error::buffer_overflow;
    is_head_ = false;
    send(plain_answer(too_large ? 431 : 400), false);
  }

  void send(Answer answer, bool keep) {
    answer_ = std::move(answer);
    if (answer_.stream) return begin_stream();
    options_.moved_on(Stage::kSends);
    keep = keep && !answer_.is_last;
    response_ = {};
    set_head(response_, answer_, keep);
    if (!is_head_) response_.body() = Body::value_type(answer_.body->data(), answer_.body->size());
    response_.content_length(answer_.body->size());
    stream_.expires_after(options_.limits.response);
    serializer_.emplace(response_);
    http::async_write(stream_, *serializer_,
                      [self = shared_from_this(), keep](beast::error_code error, std::size_t) {
                        self->answer_ = {};
                        if (error || !keep) return self->end();
                        self->read(self->options_.limits.idle);
                      });
  }

  // Its end is the end of the connection, so it needs no lengths.
  void begin_stream() {
    options_.streams();
    handle_ = std::make_shared<Stream>(loop_, weak_from_this());
    head_ = {};
    set_head(head_, answer_, false);
    stream_.expires_never();
    stream_.async_read_some(asio::buffer(unwanted_),
                            [self = shared_from_this()](beast::error_code, std::size_t) { self->end(); });
    stream_.expires_after(options_.limits.response);
    http::async_write(stream_, head_, [self = shared_from_this()](beast::error_code error, std::size_t) {
      if (error) return self->end();
      self->is_headed_ = true;
      if (!self->pieces_.empty()) self->write_piece();
    });
    const auto stream = std::exchange(answer_, {}).stream;
    stream(handle_);
  }

  void write_piece() {
    stream_.expires_after(options_.limits.response);
    asio::async_write(stream_, asio::buffer(*pieces_.front()),
                      [self = shared_from_this()](beast::error_code error, std::size_t) {
                        if (error) return self->end();
                        self->pieces_.pop_front();
                        if (!self->pieces_.empty()) self->write_piece();
                      });
  }

  void end() {
    stream_.close();
    if (handle_) handle_->over_ = true;
    if (const auto closed = std::exchange(options_.closed, nullptr)) closed();
  }

  asio::io_context& loop_;
  Options options_;
  beast::basic_stream<asio::generic::stream_protocol> stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  Answer answer_;  ///< what `response_` shows
  http::response<Body> response_;
  std::optional<http::response_serializer<Body>> serializer_;
  bool is_head_ = false;
  // Of a stream:
  std::shared_ptr<Stream> handle_;
  http::response<http::empty_body> head_;
  bool is_headed_ = false;
  std::deque<Text> pieces_;  ///< the first is being sent
  std::array<char, 1> unwanted_{};
};

void Stream::send(Text piece) {
  asio::post(loop_, [connection = connection_, piece = std::move(piece)] {
    if (const auto open = connection.lock()) open->push(piece);
  });
}

/// One listening socket and its connections. Threads  the server's.
class HttpServer::Listener {
 public:
  Listener(asio::io_context& io, UniqueFd socket, const Options& options)
      : io_(io),
        domain_(domain_of(socket.get())),
        limits_(options.limits),
        most_connections_(options.most_connections),
        admit_(options.admit ? options.admit : [handle = options.handle](int) { return handle; }),
        made_room_(options.made_room),
        socket_(io, socket.release()),
        pause_(io) {}

  void await() {
    socket_.async_wait(asio::posix::stream_descriptor::wait_read,
                       [this](const boost::system::error_code& error) {
                         if (!error) accept();
                       });
  }

  void cut_all() {
    for (const Places* places : {&connections_, &others_})
      for (const Place& one : *places) one.connection->cut();
  }

 private:
  struct Place {
    std::shared_ptr<Connection> connection;
    Connection::Stage stage = Connection::Stage::kAwaitsRequest;
    bool is_other = false;
  };
  using Places = std::list<Place>;

  // Accepts some at a time, then lets these be served; one where another makes room for it, which is read
  // before it makes room for the next.
  void accept() {
    for (std::size_t i = 0; i < kMostConnections; ++i) {
      const bool is_full = connections_.size() >= most_connections_;
      if (is_full && find_oldest() == connections_.end()) return pause();
      UniqueFd connection(::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (connection.valid()) {
        if (auto handle = admit_(connection.get())) take(std::move(connection), std::move(handle));
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        return pause();
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        break;
      }
      if (is_full) break;
    }
    await();
  }

  void pause() {
    pause_.expires_after(kPause);
    pause_.async_wait([this](const boost::system::error_code& error) {
      if (!error) await();
    });
  }

  void take(UniqueFd socket, Handle handle) {
    if (connections_.size() >= most_connections_) make_room();
    const auto place = connections_.emplace(connections_.end());
    place->connection = std::make_shared<Connection>(
        io_, Connection::Options{
                 .limits = limits_,
                 .handle = [this, handle = std::move(handle)](
                               const Request& request,
                               Respond respond) { ask(handle, request, std::move(respond)); },
                 .moved_on = [this, place](Connection::Stage stage) { move_on(place, stage); },
                 .streams = [this, place] { move_to_others(place); },
                 .closed = [this, place] { (place->is_other ? others_ : connections_).erase(place); }});
    if (!place->connection->take(std::move(socket), domain_))
      return static_cast<void>(connections_.erase(place));
    place->connection->start();
  }

  void move_on(Places::iterator place, Connection::Stage stage) {
    place->stage = stage;
    if (stage == Connection::Stage::kAwaitsAnswer && !place->is_other)
      connections_.splice(connections_.end(), connections_, place);
  }

  void move_to_others(Places::iterator place) {
    if (!std::exchange(place->is_other, true)) others_.splice(others_.end(), connections_, place);
  }

  // The one to make room, which is none that awaits its answer: else nobody would get an answer that takes
  // longer than many others to connect. A connection without a request goes before one that reads an answer.
  Places::iterator find_oldest() {
    using Stage = Connection::Stage;
    const auto waits = std::ranges::find(connections_, Stage::kAwaitsRequest, &Place::stage);
    if (waits != connections_.end()) return waits;
    return std::ranges::find(connections_, Stage::kSends, &Place::stage);
  }

  // The connection calls closed() once its operations have failed.
  void make_room() {
    made_room_();
    const auto oldest = find_oldest();
    move_to_others(oldest);
    oldest->connection->cut();
  }

  void ask(const Handle& handle, const Request& request, Respond respond) {
    handle(request, [this, respond = std::move(respond)](Answer answer) {
      asio::post(io_, [respond, answer = std::move(answer)]() mutable { respond(std::move(answer)); });
    });
  }

  asio::io_context& io_;
  const int domain_;
  const HttpLimits limits_;
  const std::size_t most_connections_;
  const std::function<Handle(int)> admit_;
  const std::function<void()> made_room_;
  asio::posix::stream_descriptor socket_;
  asio::steady_timer pause_;
  Places connections_;  ///< the one whose latest request, or begin, is longest ago first
  Places others_;       ///< streams, and those that were cut to make room and are not over yet
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

// A client that asks without end takes time from nobody who decides. A connection that finds no memory is
// lost.
void HttpServer::work() {
  make_thread_nice();
  for (;;) {
    try {
      io_.run();
      return;
    } catch (const std::exception& error) {
      spdlog::error("http: {}", error.what());
    }
  }
}

void HttpServer::stop() {
  if (!thread_.joinable()) return;
  io_.stop();
  thread_.join();
  for (const auto& one : listeners_) one->cut_all();
}

}  // namespace gpumem::http
