#pragma once
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "daemon/metrics/exposition.h"

namespace gpumem::metrics {

/// What a connection may take.
struct HttpLimits {
  std::chrono::milliseconds request = std::chrono::seconds(10);  ///< for the first request, from its start
  std::chrono::milliseconds idle =
      std::chrono::seconds(90);  ///< for each further one: scrapers keep connections
  std::chrono::milliseconds response = std::chrono::seconds(10);  ///< until all of it is taken
  std::size_t header = 8192;                                      ///< bytes of a request
};

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
