#pragma once
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "daemon/metrics/exposition.h"
#include "daemon/metrics/http_connection.h"

namespace gpumem::metrics {

/// Serves the metrics by HTTP/1.1 on listening sockets, on a thread of its own. Each socket has
/// kMostConnections places: when one more comes, the connection with the oldest latest request is closed, so
/// idle connections cannot lock others out. The bytes that a scraper sends or leaves unread are bounded, and
/// cost this thread alone. Descriptors that arrive on a Unix socket, where the kernel does not refuse them,
/// are dropped as they are read.
class HttpServer {
 public:
  static constexpr std::size_t kMostConnections = 16;

  struct Options {
    std::vector<UniqueFd> sockets;  ///< listening and non-blocking
    HttpLimits limits{};
    /// Asks for the text. Its answer may come on any thread, and not at all once the server has stopped.
    std::function<void(Exposition::Then)> text;
    /// Whether a descriptor, just opened, is one that is kept for others.
    std::function<bool(int)> is_reserved = [](int) { return false; };
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

}  // namespace gpumem::metrics
