#pragma once
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>

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

/// One connection of a scraper: GET and HEAD of /metrics, one request after the other, and errors that end
/// it. It closes itself when a limit is passed. Threads  the loop's.
class HttpConnection {
 public:
  struct Options {
    HttpLimits limits;
    /// Gives the text to what it is called with, later, on the loop's thread.
    std::function<void(std::function<void(Text)>)> text;
    /// A request has been read: the connection is in use.
    std::function<void()> used;
    /// The connection has ended, whichever side closed it. Called once, never from within a call of the
    /// owner.
    std::function<void()> closed;
  };

  virtual ~HttpConnection() = default;
  virtual void start() = 0;
  virtual void cut() = 0;

  /// `socket`  connected and non-blocking; `domain` as it was made. Nothing: the loop has no room for it.
  static std::shared_ptr<HttpConnection> make(boost::asio::io_context& loop, UniqueFd socket, int domain,
                                              Options options);
};

}  // namespace gpumem::metrics
