#pragma once
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/system/unique_fd.h"

namespace gpumem::http {

/// A text that many read and nobody changes; none: there is none any more.
using Text = std::shared_ptr<const std::string>;
using Request = boost::beast::http::request<boost::beast::http::empty_body>;

class Connection;

/// An answer that goes on, in pieces, until either side ends it.   Threads  any, while the server exists.
class Stream {
 public:
  /// Pieces that may wait for a reader. One that has more to read is cut off.
  static constexpr std::size_t kMostQueued = 16;

  Stream(boost::asio::io_context& loop, std::weak_ptr<Connection> connection)
      : loop_(loop), connection_(std::move(connection)) {}

  void send(Text piece);
  bool is_over() const { return over_; }

 private:
  friend class Connection;
  boost::asio::io_context& loop_;
  const std::weak_ptr<Connection> connection_;
  std::atomic<bool> over_ = false;
};

struct Answer {
  unsigned status = 200;
  Text body{};
  std::vector<std::pair<std::string, std::string>> fields{};
  bool is_last = false;  ///< the connection ends with it
  /// In place of `body`: is given the stream, on the server's thread.
  std::function<void(std::shared_ptr<Stream>)> stream{};
};

/// The status in words, and `more`, as plain text.
Answer plain_answer(unsigned status, const std::string& more = {});

/// What a connection may take.
struct HttpLimits {
  std::chrono::milliseconds request = std::chrono::seconds(10);  ///< for the first request, from its start
  std::chrono::milliseconds idle =
      std::chrono::seconds(90);  ///< for each further one: scrapers keep connections
  std::chrono::milliseconds response =
      std::chrono::seconds(10);  ///< until all of it is taken; of a stream, each piece
  std::size_t header = 8192;     ///< bytes of a request
};

/// Serves HTTP/1.1 on listening sockets, on a thread of its own. Each socket has most_connections places:
/// when one more comes, the connection with the oldest latest request is closed, so idle connections cannot
/// lock others out. Those without a request go first, then those that read an answer; one that awaits its
/// answer stays, and while all do, nothing is accepted. Streams have no place there: whoever begins them
/// bounds their number. The bytes that a client sends or leaves unread are bounded, and cost this thread
/// alone. A request with a body is refused. Descriptors that arrive on a Unix socket, where the kernel does
/// not refuse them, are dropped as they are read.
class HttpServer {
 public:
  static constexpr std::size_t kMostConnections = 16;

  using Respond = std::function<void(Answer)>;
  /// Answers a request, on the server's thread. `respond`  may be called later, on any thread, and not at all
  /// once the server has stopped.
  using Handle = std::function<void(const Request&, Respond)>;

  struct Options {
    std::vector<UniqueFd> sockets;  ///< listening and non-blocking
    HttpLimits limits{};
    std::size_t most_connections = kMostConnections;
    Handle handle{};
    /// In place of `handle`: gives it for a connection, just accepted. Nothing: the connection is closed.
    std::function<Handle(int connection)> admit{};
    /// A connection was closed to make room.
    std::function<void()> made_room = [] {};
  };

  explicit HttpServer(Options options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  void start();
  /// Cuts every connection and ends the thread.  Blocks  as long as that takes.
  void stop();

 private:
  class Listener;
  void work();

  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_guard_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::thread thread_;
};

}  // namespace gpumem::http
