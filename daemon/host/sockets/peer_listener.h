#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>

#include "daemon/host/limits/connection_limits.h"
#include "daemon/host/limits/socket_disposal.h"
#include "daemon/host/sockets/peer.h"

namespace gpumem::host {

/// A connection that was accepted, and who is at its other end.
struct Connection {
  UniqueFd socket;  ///< non-blocking
  PeerProcess peer;
  bool admin = false;
};

/// Accepts connections and says whose they are. To accept is cheap, and done in the order in which clients
/// have connected, which is the kernel's. To identify a process is not. It is done in turns over users, so a
/// user waits for one connection of each other user. A single connection waits for nobody, so its user is not
/// looked up before. A connection whose client has hung up is not identified.
/// The last descriptors are kept from clients that connect. When there are none at all, the listener waits a
/// little and goes on.
/// Threads  the loop's.
class PeerListener {
 public:
  struct Options {
    UniqueFd socket;
    bool shared = false;  ///< with the service manager: it keeps the connections that wait
    KernelFeatures kernel;
    DescriptorBudget budget;
    const Administrators* administrators = nullptr;  ///< outlives it
    SocketDisposal* disposal = nullptr;              ///< outlives it
    /// Counts the connections that are not identified yet, by the owner of their user, and cuts those that
    /// are too many. Outlives it.
    SilentConnections* silent = nullptr;
    /// Has a piece of work done on the loop's thread, in its turn: to accept some, and to identify one.
    std::function<void(std::function<void()>)> queue;
    std::function<void(Connection)> accepted;
    /// One that may not be taken in: to be told why, and to be disposed of.
    std::function<void(Connection, const Error&)> refused;
    std::function<void(const std::string&)> warn;
  };

  PeerListener(boost::asio::io_context& loop, Options options);
  ~PeerListener() { stop(); }
  PeerListener(const PeerListener&) = delete;
  PeerListener& operator=(const PeerListener&) = delete;

  void start() { await(); }
  /// Takes no more connections. Cuts connections that wait to be identified or accepted. If the socket is
  /// shared, it leaves the latter to the next broker.
  void stop();

 private:
  using Queue = std::list<UniqueFd>;  ///< the oldest first; its elements' addresses are keys of `silent`

  void await();
  void go_on();
  void work();
  bool accept();
  void add(UniqueFd socket);
  bool identify_next();
  void identify(UniqueFd socket);
  void take(UniqueFd socket, PeerProcess peer);
  void pause(const std::string& why);

  Options options_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer pause_;
  std::map<std::uint64_t, Queue> unidentified_;  ///< by account; no queue is empty
  std::uint64_t served_ = 0;                     ///< the account of which one was identified last
  bool may_accept_ = false;                      ///< the kernel may have more connections
  bool is_paused_ = false;
  bool is_queued_ = false;  ///< work() is on its way
};

}  // namespace gpumem::host
