#include "daemon/host/sockets/peer_listener.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <exception>
#include <utility>

#include "base/log.h"
#include "base/system/peer_credentials.h"
#include "base/system/subordinate_ids.h"
#include "daemon/core/words/refusals.h"

namespace gpumem::host {
namespace {

constexpr auto kPause = std::chrono::milliseconds(50);
// In one piece of work: about as much as to identify one.
constexpr int kAcceptedInARow = 16;
// Its account, which is no user's.
constexpr std::uint64_t kHostsRoot = ~std::uint64_t{0};
constexpr const char* kRaise = "; raise the limit of open files (LimitNOFILE=)";

// Descriptors or memory have run out, for now.
bool is_shortage(const Error& error) { return error.code == Code::kResourceExhausted; }

// Whether the socket has one of `events` now, or its other end is closed.
bool has(int socket, short events) {
  pollfd polled{socket, events, 0};
  return ::poll(&polled, 1, 0) > 0;
}

// Whether the client has closed its end, and reads nothing any more.
bool has_hung_up(const UniqueFd& socket) { return has(socket.get(), 0); }

}  // namespace

PeerListener::PeerListener(boost::asio::io_context& loop, Options options)
    : options_(std::move(options)), socket_(loop), pause_(loop) {
  socket_.assign(options_.socket.release());
}

void PeerListener::stop() {
  pause_.cancel();
  for (auto& [account, queue] : std::exchange(unidentified_, {})) {
    for (UniqueFd& one : queue) {
      options_.silent->remove(&one);
      options_.disposal->close(std::move(one));
    }
  }
  if (!socket_.is_open()) return;
  UniqueFd socket(socket_.release());
  if (!options_.shared) options_.disposal->close_listener(std::move(socket));
}

void PeerListener::await() {
  may_accept_ = false;
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this](const boost::system::error_code& error) {
                       if (error) return;
                       may_accept_ = true;
                       go_on();
                     });
}

void PeerListener::go_on() {
  if (std::exchange(is_queued_, true)) return;
  options_.queue([this] {
    is_queued_ = false;
    work();
  });
}

void PeerListener::work() {
  if (!socket_.is_open()) return;
  for (int i = 0; i < kAcceptedInARow && may_accept_ && accept(); ++i) {
  }
  for (int i = 0; i < kAcceptedInARow && !unidentified_.empty() && !is_paused_; ++i)
    if (identify_next()) break;
  if (!is_paused_ && (may_accept_ || !unidentified_.empty())) go_on();
}

// False: there is none, or it took long.
bool PeerListener::accept() {
  const auto pause = [this](const std::string& why) { return this->pause(why), false; };
  if (!options_.disposal->has_room()) return pause("connections that brought descriptors are being closed");
  UniqueFd connection(::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.valid()) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return await(), false;
    const Error error = errno_error(errno, "accept");
    return is_shortage(error) ? pause(error.message + kRaise) : true;  // else this one gave up alone
  }
  if (has_hung_up(connection)) return options_.disposal->close(std::move(connection)), true;
  // A single connection need not wait. Of the last descriptors none is kept by a connection that waits.
  const bool is_single = unidentified_.empty() && !has(socket_.native_handle(), POLLIN);
  if (is_single || options_.budget.is_reserved(connection.get(), false))
    return identify(std::move(connection)), false;
  return add(std::move(connection)), true;
}

// Root's pod is looked for, to tell the host's root from that of a container. Other users count by themselves
// until their processes are identified, in pods, too.
void PeerListener::add(UniqueFd socket) {
  const auto credentials = peer_credentials(socket.get());
  if (!credentials) return options_.disposal->close(std::move(socket));
  core::Peer peer;
  peer.uid = credentials->uid;
  if (peer.uid == 0) {
    auto in = options_.kernel.pods.find(credentials->pid);
    peer.pod = std::move(in.pod);
    peer.contained = in.contained;
  } else if (options_.kernel.subordinates != nullptr) {
    peer.owner = options_.kernel.subordinates->owner_of(peer.uid);
  }
  const bool is_admin = options_.administrators->include(peer);
  const std::uint64_t account = is_admin ? kHostsRoot : peer.account();
  Queue& queue = unidentified_[account];
  const auto place = queue.insert(queue.end(), std::move(socket));
  if (is_admin) return;
  options_.silent->add(&*place, account, [this, account, place, uid = peer.uid](const std::string& why) {
    options_.warn("connection of uid " + std::to_string(uid) + " closed: " + why);
    options_.disposal->close(std::move(*place));
    const auto own = unidentified_.find(account);
    own->second.erase(place);
    if (own->second.empty()) unidentified_.erase(own);
  });
}

// Of the next user. False: its client has hung up.
bool PeerListener::identify_next() {
  auto next = unidentified_.upper_bound(served_);
  if (next == unidentified_.end()) next = unidentified_.begin();
  served_ = next->first;
  options_.silent->remove(&next->second.front());
  UniqueFd socket = std::move(next->second.front());
  next->second.pop_front();
  if (next->second.empty()) unidentified_.erase(next);
  const bool hung_up = has_hung_up(socket);
  if (hung_up)
    options_.disposal->close(std::move(socket));
  else
    identify(std::move(socket));
  return !hung_up;
}

void PeerListener::identify(UniqueFd socket) {
  auto peer = identify_peer(socket.get(), options_.kernel);
  if (peer) return take(std::move(socket), std::move(*peer));
  options_.disposal->close(std::move(socket));
  if (is_shortage(peer.error())) return pause(peer.error().message + kRaise);
  spdlog::debug("connection dropped: {}", peer.error().message);
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
  is_paused_ = true;
  pause_.expires_after(kPause);
  pause_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    is_paused_ = false;
    go_on();
  });
}

}  // namespace gpumem::host
