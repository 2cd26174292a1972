#pragma once
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <unordered_map>

#include "base/unique_fd.h"
#include "daemon/host/limits/connection_limits.h"
#include "daemon/host/sockets/peer_listener.h"
#include "daemon/host/sockets/relay.h"
#include "daemon/host/state/runtime_folder.h"
#include "daemon/host/system/rate_limited_log.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// Tells when a socket has been shut down for both directions, by either end; of nothing else that happens on
/// it, so that traffic wakes nobody.
/// Threads  the loop's.
class HangupWatch {
 public:
  explicit HangupWatch(boost::asio::io_context& loop);

  /// Keeps `socket`, a duplicate, until `ended` has been called. Errors  kResourceExhausted.
  Result<void> add(UniqueFd socket, std::function<void()> ended);
  /// Stops watching: nobody is told any more.
  void stop();

 private:
  struct Watched {
    UniqueFd socket;
    std::function<void()> ended;
  };
  void await();
  void take_ended();

  boost::asio::posix::stream_descriptor epoll_;
  std::unordered_map<int, Watched> watched_;
};

/// Accepts gRPC's connections, on a thread of its own, and hands them over once their client has begun to
/// speak HTTP/2. Records the peer of each connection while it lives. Descriptors that clients send never
/// reach gRPC: where the kernel does not refuse them, a relay stands between.
class ApiListener {
 public:
  struct Options {
    ListeningSocket socket;
    KernelFeatures kernel;
    DescriptorBudget budget = DescriptorBudget::of_process();
    const Administrators* administrators = nullptr;  ///< outlives it
    /// The peers of connections that were handed over; outlives the listener.
    ApiConnections* connections = nullptr;
    /// Takes over a connected, non-blocking socket, and shuts it down before closing it. Called on the
    /// listener's thread.
    std::function<void(UniqueFd)> serve;
  };

  explicit ApiListener(Options options);
  /// Cuts what is not handed over, and what is relayed. Blocks for as long as the thread takes to end.
  ~ApiListener();
  ApiListener(const ApiListener&) = delete;
  ApiListener& operator=(const ApiListener&) = delete;

  void start();
  /// Accepts no more connections. Connections that were handed over continue. Blocks as above.
  void stop();

 private:
  struct Silent;
  void take_in(Connection connection);
  void await_first_bytes(const std::shared_ptr<Silent>& silent);
  void listen_to(const std::shared_ptr<Silent>& silent);
  void cut(const std::shared_ptr<Silent>& silent, const std::string& why);
  void hand_over(UniqueFd socket, ApiConnections::Caller caller);
  Result<void> hand_over_directly(UniqueFd& socket, const ApiConnections::Caller& caller);
  Result<void> hand_over_relayed(UniqueFd& socket, const ApiConnections::Caller& caller);
  UniqueFd renumber(UniqueFd socket);

  const DescriptorBudget budget_;
  const std::function<void(UniqueFd)> serve_;
  ApiConnections& connections_;
  SocketDisposal disposal_;  // before io_, which may hold the last of a connection
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_guard_;
  RateLimitedLog warnings_;
  HangupWatch hangups_;
  SilentConnections silent_;
  std::unique_ptr<PeerListener> listener_;
  int next_number_ = 0;
  std::thread thread_;
};

}  // namespace gpumem::host
