#pragma once
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "base/system/unique_fd.h"
#include "daemon/host/limits/connection_limits.h"
#include "daemon/host/sockets/peer_listener.h"
#include "daemon/host/sockets/relay.h"
#include "daemon/host/state/runtime_folder.h"
#include "daemon/host/system/rate_limited_log.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// Accepts gRPC's connections, on a thread of its own, and hands them over once their client has begun to
/// speak HTTP/2. Records the peer of each connection while it lives. A relay stands between each client and
/// gRPC: it bounds what the client can make gRPC hold, and lets no descriptors through.
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
  Result<void> hand_over_relayed(UniqueFd& socket, const ApiConnections::Caller& caller);
  void relay_ended(int number, std::uint32_t uid, const std::string& why);
  UniqueFd renumber(UniqueFd socket);

  const DescriptorBudget budget_;
  const std::function<void(UniqueFd)> serve_;
  ApiConnections& connections_;
  SocketDisposal disposal_;  // before io_, which may hold the last of a connection
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_guard_;
  RateLimitedLog warnings_;
  CallsOfUsers calls_;
  SilentConnections silent_;
  std::unique_ptr<PeerListener> listener_;
  int next_number_ = 0;
  std::thread thread_;
};

}  // namespace gpumem::host
