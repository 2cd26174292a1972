#pragma once
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/system/unique_fd.h"
#include "daemon/host/limits/socket_disposal.h"
#include "daemon/host/sockets/http2_guard.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// Passes bytes between a client's stream socket and the broker's own, and nothing but bytes. A client that
/// sends descriptors is cut off before they are received. A client that asks for too much (Http2Guard) is cut
/// off before gRPC is told.
/// Threads  the loop's.
class Relay : public std::enable_shared_from_this<Relay> {
 public:
  /// `why` the client was cut off; empty: it was not.
  using Ended = std::function<void(const std::string& why)>;

  /// `client`, `own`  non-blocking. `disposal` closes the client's; outlives the relay.
  /// `user`           what the client's user holds.
  /// `ended`          is called once, when either end has closed or was cut off.
  /// Errors           kResourceExhausted: the kernel can watch no more sockets; both are closed.
  static Result<std::shared_ptr<Relay>> create(boost::asio::io_context& loop, UniqueFd client, UniqueFd own,
                                               SocketDisposal& disposal, std::shared_ptr<UserCalls> user,
                                               Ended ended);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  void start();

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;
  struct Direction {
    Descriptor* from;
    Descriptor* to;
    bool from_client;
    std::array<std::byte, 16384> bytes{};
    std::size_t begin = 0, end = 0;  ///< bounds of the bytes to be written
    bool done = false;               ///< there will be no more
  };

  Relay(boost::asio::io_context& loop, SocketDisposal& disposal, std::shared_ptr<UserCalls> user,
        Ended ended);
  void pass(Direction& direction);
  ssize_t receive(Direction& direction);
  bool read_some(Direction& direction);
  Result<void> inspect(const Direction& direction);
  bool write_some(Direction& direction);
  void wait(Direction& direction, Descriptor& on, Descriptor::wait_type what);
  void finish(Direction& direction);
  void end(const std::string& why = {});

  SocketDisposal& disposal_;
  Http2Guard guard_;
  Ended ended_;
  Descriptor client_;
  Descriptor own_;
  Direction in_{&client_, &own_, true};
  Direction out_{&own_, &client_, false};
};

}  // namespace gpumem::host
