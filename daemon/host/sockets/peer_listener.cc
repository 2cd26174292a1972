#include "daemon/host/sockets/peer_listener.h"

#include <sys/socket.h>

#include <cerrno>
#include <exception>

#include "base/log.h"
#include "daemon/core/words/refusals.h"

namespace gpumem::host {
namespace {

constexpr auto kPause = std::chrono::milliseconds(50);
constexpr const char* kRaise = "; raise the limit of open files (LimitNOFILE=)";

// Descriptors or memory have run out, for now.
bool is_shortage(const Error& error) { return error.code == Code::kResourceExhausted; }

}  // namespace

PeerListener::PeerListener(boost::asio::io_context& loop, Options options)
    : options_(std::move(options)), socket_(loop), pause_(loop) {
  socket_.assign(options_.socket.release());
}

void PeerListener::stop() {
  pause_.cancel();
  if (!socket_.is_open()) return;
  UniqueFd socket(socket_.release());
  if (!options_.shared) options_.disposal->close_listener(std::move(socket));
}

void PeerListener::await() {
  if (!socket_.is_open()) return;
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this](const boost::system::error_code& error) {
                       if (!error) accept_next();
                     });
}

void PeerListener::accept_next() {
  options_.queue([this] {
    if (socket_.is_open() && accept()) accept_next();
  });
}

// False: not now; it goes on by itself later.
bool PeerListener::accept() {
  const auto pause = [this](const std::string& why) { return this->pause(why), false; };
  if (!options_.disposal->has_room()) return pause("connections that brought descriptors are being closed");
  UniqueFd connection(::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.valid()) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return await(), false;
    const Error error = errno_error(errno, "accept");
    return is_shortage(error) ? pause(error.message + kRaise) : true;  // else this one gave up alone
  }
  auto peer = identify_peer(connection.get(), options_.kernel);
  if (peer) return take(std::move(connection), std::move(*peer)), true;
  options_.disposal->close(std::move(connection));
  if (is_shortage(peer.error())) return pause(peer.error().message + kRaise);
  spdlog::debug("connection dropped: {}", peer.error().message);
  return true;
}

void PeerListener::take(UniqueFd socket, PeerProcess peer) {
  const bool admin = options_.administrators->include(peer.peer);
  const bool reserved = options_.budget.is_reserved(socket.get(), admin);
  Connection connection{std::move(socket), std::move(peer), admin};
  try {
    if (!reserved) return options_.accepted(std::move(connection));
    const Error error = core::refusal(
        core::Bound::kDescriptors,
        std::string("the broker keeps its last descriptors for what it serves already") + kRaise);
    options_.warn("connection of uid " + std::to_string(connection.peer.peer.uid) +
                  " refused: " + error.message);
    options_.refused(std::move(connection), error);
  } catch (const std::exception& error) {  // no memory, or no room in the kernel's epoll
    options_.warn(std::string("cannot take a connection in: ") + error.what());
  }
}

void PeerListener::pause(const std::string& why) {
  options_.warn("cannot take a connection in: " + why);
  pause_.expires_after(kPause);
  pause_.async_wait([this](const boost::system::error_code& error) {
    if (!error) await();
  });
}

}  // namespace gpumem::host
