#include "daemon/host/sockets/api_listener.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <string_view>

#include "base/log.h"
#include "daemon/host/limits/socket_disposal.h"

namespace gpumem::host {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);
constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

}  // namespace

// A connection whose client has not said anything yet.
struct ApiListener::Silent {
  Silent(boost::asio::io_context& loop, SocketDisposal& closer, ApiConnections::Caller who)
      : caller(std::move(who)), disposal(closer), socket(loop), patience(loop) {}
  ~Silent() {
    if (socket.is_open()) disposal.close(UniqueFd(socket.release()));
  }

  ApiConnections::Caller caller;
  SocketDisposal& disposal;
  boost::asio::posix::stream_descriptor socket;
  boost::asio::steady_timer patience;
};

ApiListener::ApiListener(Options options)
    : budget_(options.budget),
      serve_(std::move(options.serve)),
      connections_(*options.connections),
      disposal_(options.socket.takes_descriptors),
      work_guard_(boost::asio::make_work_guard(io_)),
      warnings_(io_),
      silent_({budget_.silent(), budget_.silent_of_a_user()}) {
  PeerListener::Options listening{
      .socket = std::move(options.socket.fd),
      .shared = options.socket.shared,
      .kernel = options.kernel,
      .budget = budget_,
      .administrators = options.administrators,
      .disposal = &disposal_,
      .silent = &silent_,
      .queue = [this](std::function<void()> work) { boost::asio::post(io_, std::move(work)); },
      .accepted = [this](Connection connection) { take_in(std::move(connection)); },
      .refused = [this](Connection connection,
                        const Error&) { disposal_.close(std::move(connection.socket)); },
      .warn = [this](const std::string& words) { warnings_.warn("gRPC: " + words); }};
  listener_ = std::make_unique<PeerListener>(io_, std::move(listening));
}

ApiListener::~ApiListener() {
  if (thread_.joinable()) stop();
  io_.stop();
  if (thread_.joinable()) thread_.join();
}

void ApiListener::start() {
  thread_ = std::thread([this] { io_.run(); });
  boost::asio::post(io_, [this] { listener_->start(); });
}

void ApiListener::stop() {
  std::promise<void> stopped;
  boost::asio::post(io_, [&] {
    listener_->stop();
    stopped.set_value();
  });
  stopped.get_future().wait();
}

void ApiListener::take_in(Connection connection) {
  ApiConnections::Caller caller{std::move(connection.peer.peer), connection.admin};
  if (connection.peer.pidfd.valid())
    caller.pidfd = std::make_shared<const UniqueFd>(std::move(connection.peer.pidfd));
  const auto silent = std::make_shared<Silent>(io_, disposal_, std::move(caller));
  boost::system::error_code failed;
  silent->socket.assign(connection.socket.get(), failed);
  if (failed) {
    warnings_.warn("gRPC: a connection was cut: " + failed.message());
    return disposal_.close(std::move(connection.socket));
  }
  static_cast<void>(connection.socket.release());
  if (!silent->caller.admin) {
    silent_.add(silent.get(), silent->caller.peer.account(),
                [this, weak = std::weak_ptr(silent)](const std::string& why) {
                  if (const auto one = weak.lock()) cut(one, why);
                });
  }
  silent->patience.expires_after(kPatience);
  silent->patience.async_wait([this, weak = std::weak_ptr(silent)](const boost::system::error_code& error) {
    if (const auto one = weak.lock(); one && !error) cut(one, "it said nothing in time");
  });
  await_first_bytes(silent);
}

void ApiListener::await_first_bytes(const std::shared_ptr<Silent>& silent) {
  silent->socket.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                            [this, silent](const boost::system::error_code& error) {
                              if (!error) listen_to(silent);
                            });
}

// The event may be of a descriptor that was closed in the same round of the loop (ProcessWatch::await_end).
void ApiListener::listen_to(const std::shared_ptr<Silent>& silent) {
  if (!silent->socket.is_open()) return;
  std::array<std::byte, kPreface.size()> bytes{};
  const Readable start = look_at(silent->socket.native_handle(), bytes);
  if (start.bytes < 0 && errno == EAGAIN) return await_first_bytes(silent);
  if (start.descriptors) return cut(silent, "it sent descriptors");
  if (start.bytes <= 0) return cut(silent, {});
  const std::string_view said(reinterpret_cast<const char*>(bytes.data()),
                              static_cast<std::size_t>(start.bytes));
  if (!kPreface.starts_with(said)) return cut(silent, "it does not speak HTTP/2");
  silent_.remove(silent.get());
  silent->patience.cancel();
  hand_over(UniqueFd(silent->socket.release()), std::move(silent->caller));
}

void ApiListener::cut(const std::shared_ptr<Silent>& silent, const std::string& why) {
  silent_.remove(silent.get());
  silent->patience.cancel();
  if (!silent->socket.is_open()) return;
  if (!why.empty())
    warnings_.warn("gRPC: connection of uid " + std::to_string(silent->caller.peer.uid) + " closed: " + why);
  disposal_.close(UniqueFd(silent->socket.release()));
}

void ApiListener::hand_over(UniqueFd socket, ApiConnections::Caller caller) {
  Result<void> done = connections_.check_room(caller);
  if (done) done = hand_over_relayed(socket, caller);
  if (done) return;
  warnings_.warn("gRPC: connection of uid " + std::to_string(caller.peer.uid) +
                 " refused: " + done.error().message);
  disposal_.close(std::move(socket));
}

Result<void> ApiListener::hand_over_relayed(UniqueFd& socket, const ApiConnections::Caller& caller) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return errno_error(errno, "cannot make a pair of sockets");
  UniqueFd own(ends[0]);
  UniqueFd handed = renumber(UniqueFd(ends[1]));
  const int number = handed.get();
  auto relay = Relay::create(
      io_, std::move(socket), std::move(own), disposal_, calls_.of(caller.peer.account()),
      [this, number, uid = caller.peer.uid](const std::string& why) { relay_ended(number, uid, why); });
  if (!relay) return relay.error();
  connections_.add(number, caller);
  serve_(std::move(handed));
  (*relay)->start();
  return {};
}

void ApiListener::relay_ended(int number, std::uint32_t uid, const std::string& why) {
  connections_.remove(number);
  if (!why.empty()) warnings_.warn("gRPC: connection of uid " + std::to_string(uid) + " cut: " + why);
}

// Calls are told apart by the number of their connection's descriptor. So a number is used again as late as
// possible, not at once as the kernel would.
UniqueFd ApiListener::renumber(UniqueFd socket) {
  constexpr std::size_t kMostNumbers = 1 << 16;
  const int limit = static_cast<int>(std::min(budget_.limit(), 3 * kMostNumbers));
  const int first = limit / 3;
  if (next_number_ < first || next_number_ >= limit - limit / 3) next_number_ = first;
  const int number = ::fcntl(socket.get(), F_DUPFD_CLOEXEC, next_number_);
  if (number < 0) return socket;
  next_number_ = number + 1;
  return UniqueFd(number);
}

}  // namespace gpumem::host
