#include "daemon/host/lane_listener.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/log.h"

namespace gpumem::host {
namespace {

// Connections accepted before the lanes that are open have their turn.
constexpr int kAcceptsInARow = 32;
constexpr auto kPause = std::chrono::milliseconds(50);

// Descriptors or memory have run out, for now.
bool is_shortage(const Error& error) { return error.code == Code::kResourceExhausted; }

}  // namespace

LaneListener::LaneListener(boost::asio::io_context& loop, UniqueFd socket, LaneHandler& handler)
    : loop_(loop), socket_(loop, socket.release()), pause_(loop), handler_(handler) {}

void LaneListener::stop() {
  boost::system::error_code ignored;
  socket_.close(ignored);
  pause_.cancel();
}

void LaneListener::await() {
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this](const boost::system::error_code& error) {
                       if (!error) accept();
                     });
}

void LaneListener::accept() {
  for (int i = 0; i < kAcceptsInARow; ++i) {
    UniqueFd connection(::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      if (const Error error = errno_error(errno, "accept"); is_shortage(error)) return pause(error);
      continue;  // this one gave up; the next may not have
    }
    auto peer = identify_peer(connection.get());
    if (!peer && is_shortage(peer.error())) return pause(peer.error());
    if (!peer) {
      spdlog::debug("connection dropped: {}", peer.error().message);
      continue;
    }
    std::make_shared<Lane>(loop_, std::move(connection), std::move(*peer), handler_)->start();
  }
  await();
}

void LaneListener::pause(const Error& error) {
  handler_.complain("cannot take a connection in: " + error.message +
                    "; raise the limit of open files (LimitNOFILE=)");
  pause_.expires_after(kPause);
  pause_.async_wait([this](const boost::system::error_code& error) {
    if (!error) await();
  });
}

}  // namespace gpumem::host
