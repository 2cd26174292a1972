#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
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

/// Accepts connections and says whose they are. The last descriptors are kept from those who connect; when
/// there are none at all it waits a little and goes on.
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
    /// Has a piece of work done on the loop's thread, in its turn: to take one connection in.
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
  /// Takes no more connections; those that wait to be accepted are cut, or, if the socket is
  /// shared, left to the next broker.
  void stop();

 private:
  void await();
  void accept_next();
  bool accept();
  void take(UniqueFd socket, PeerProcess peer);
  void pause(const std::string& why);

  Options options_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer pause_;
};

}  // namespace gpumem::host
