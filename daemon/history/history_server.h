#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "daemon/history/report.h"

namespace gpumem::history {

/// The process at the other end of a connection, as the kernel says.
struct Peer {
  std::uint32_t uid = 0;
  std::vector<std::uint32_t> gids;  ///< the primary group first
};

/// An answer of HTTP.
struct Answer {
  unsigned status = 200;
  Json body;
};

/// Answers one request of HTTP/1.1 on each connection to a listening Unix socket, and closes it. Connections
/// are bounded, for each user too, and each may take some seconds only. Threads  the loop's.
class HistoryServer {
 public:
  static constexpr std::size_t kMostConnections = 64;
  static constexpr std::size_t kMostOfUser = 4;

  using Handle =
      std::function<Answer(const Peer& peer, const std::string& method, const std::string& target)>;

  HistoryServer(boost::asio::io_context& loop, UniqueFd socket, Handle handle);
  HistoryServer(const HistoryServer&) = delete;
  HistoryServer& operator=(const HistoryServer&) = delete;

 private:
  class Connection;
  void await();
  void accept();
  void take(UniqueFd connection);

  boost::asio::io_context& loop_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer pause_;
  const Handle handle_;
  /// Connections, which may outlive the server until the loop ends.
  struct Counts {
    std::size_t all = 0;
    std::map<std::uint32_t, std::size_t> of_user;
  };
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace gpumem::history
