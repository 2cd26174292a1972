#include "daemon/metrics/http_server.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <exception>
#include <list>
#include <utility>

#include "base/log.h"
#include "base/signals_blocked.h"
#include "daemon/core/refusals.h"

namespace gpumem::metrics {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds kPause{100};
constexpr int kNice = 10;

int domain_of(int socket) {
  int domain = AF_UNIX;
  socklen_t size = sizeof domain;
  ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size);
  return domain;
}

}  // namespace

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
    place->connection =
        HttpConnection::make(io_, std::move(socket), domain_,
                             {.limits = limits_,
                              .text = [this](std::function<void(Text)> then) { ask(std::move(then)); },
                              .used = [this, place] { move_to_back(place); },
                              .closed = [this, place] { (place->cut ? cut_ : connections_).erase(place); }});
    if (place->connection == nullptr) return static_cast<void>(connections_.erase(place));
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
