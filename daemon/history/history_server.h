#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/http/http_server.h"
#include "base/mutex.h"
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

inline constexpr std::size_t kMostConnections = 64;
inline constexpr std::size_t kMostOfUser = 4;

/// Work of users, which takes long, in turns: one piece of each user after the other, in their order.
/// Threads  any.
class UserTurns {
 public:
  using Work = std::function<void()>;

  void add(std::uint32_t user, Work work);
  /// The next piece of work. Waits for one; nothing: `stop` has come first.
  Work next(const std::stop_token& stop);

 private:
  Mutex mutex_;
  Condition changed_;
  std::map<std::uint32_t, std::deque<Work>> works_ GPUMEM_GUARDED_BY(mutex_);  ///< of each user, not empty
  std::deque<std::uint32_t> order_ GPUMEM_GUARDED_BY(mutex_);  ///< these users, the next first
};

/// A server that answers one request on each connection to a Unix socket. Connections are bounded, for each
/// user too; one too many is closed. An answer may take seconds: it is made on a thread of its own, for users
/// in turns.
class HistoryServer {
 public:
  /// Makes an answer, on the thread for answers.
  using Answering =
      std::function<Answer(const Peer& peer, const std::string& method, const std::string& target)>;
  /// The user that connections of `uid` count for.
  using AccountOf = std::function<std::uint32_t(std::uint32_t uid)>;

  /// `socket`  listening and non-blocking.
  HistoryServer(UniqueFd socket, AccountOf account_of, Answering answer);
  ~HistoryServer() { stop(); }
  HistoryServer(const HistoryServer&) = delete;
  HistoryServer& operator=(const HistoryServer&) = delete;

  void start();
  /// Ends the threads.   Blocks  until the present answer is made.
  void stop();

 private:
  struct OpenConnections {
    std::size_t all = 0;
    std::map<std::uint32_t, std::size_t> of_account;
  };
  http::HttpServer::Options serving(UniqueFd socket);
  http::HttpServer::Handle admit(int connection);

  const AccountOf account_of_;
  const Answering answer_;
  Mutex mutex_;
  OpenConnections open_ GPUMEM_GUARDED_BY(mutex_);
  http::HttpServer server_;
  UserTurns questions_;  // which keep connections of the server
  std::jthread thread_;
};

}  // namespace gpumem::history
