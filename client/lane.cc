#include "client/lane.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "base/packet.h"
#include "client/runtime_folder.h"
#include "client/status.h"
#include "proto/lane.h"
#include "shm/pages.h"

namespace gpumem::client {

struct Lane::Received {
  v1::ToClient message;
  std::vector<OwnFd> descriptors;
};

namespace {

Result<OwnFd> open_socket() {
  const NoFork no_fork;
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return errno_error(errno, "cannot make a socket");
  return OwnFd(no_fork, std::move(socket));
}

/// Connects within `timeout`. A full accept queue of the broker blocks connect(), so the socket becomes
/// non-blocking only afterwards. Returns an errno value, 0 for success.
int connect_to(int socket, const std::filesystem::path& path, std::chrono::milliseconds timeout) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof address.sun_path) return ENAMETOOLONG;
  std::memcpy(address.sun_path, path.c_str(), path.native().size());
  const timeval limit{timeout.count() / 1000, timeout.count() % 1000 * 1000};
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  int result = 0;
  do {
    result = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return errno;
  return ::fcntl(socket, F_SETFL, O_NONBLOCK) == 0 ? 0 : errno;
}

Error protocol_error(std::string_view what) {
  return {Code::kInternal, "the broker broke the lane's protocol: " + std::string(what)};
}

Result<void> check_welcome(const v1::Welcome& welcome, std::size_t descriptors) {
  if (welcome.session() == 0 || welcome.token().empty()) return protocol_error("a welcome without a session");
  if (descriptors != 3) {
    return protocol_error("a welcome with " + std::to_string(descriptors) + " descriptors instead of 3");
  }
  if (static_cast<std::size_t>(welcome.devices_size()) > kMaxDevices)
    return protocol_error("too many devices");
  return {};
}

}  // namespace

Result<std::unique_ptr<Lane>> Lane::connect(const std::filesystem::path& socket,
                                            std::chrono::milliseconds timeout) {
  auto opened = open_socket();
  if (!opened) return opened.error();
  if (const int failed = connect_to(opened->get(), socket, timeout); failed != 0)
    return connect_error(socket, failed);
  return std::unique_ptr<Lane>(new Lane(std::move(*opened), socket, timeout));
}

Result<void> Lane::wait(short event, Clock::time_point deadline) const {
  pollfd polled{socket_.get(), event, 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready =
        ::poll(&polled, 1, left > 0 ? static_cast<int>(std::min<std::int64_t>(left, 60'000)) : 0);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return errno_error(errno, "cannot wait for the broker");
    if (ready == 0 && Clock::now() >= deadline) {
      return Error{Code::kDeadlineExceeded, "the broker at " + path_.string() + " does not answer"};
    }
  }
}

Result<void> Lane::send(const v1::ToBroker& message) {
  const std::string bytes = message.SerializeAsString();
  auto sent = send_packet(socket_.get(), bytes);
  if (sent || sent.error().code != Code::kUnavailable) return sent;
  if (auto ready = wait(POLLOUT, Clock::now() + timeout_); !ready) return ready;
  sent = send_packet(socket_.get(), bytes);
  return sent ? sent : Result<void>(sent.error().in("the broker at " + path_.string() + " is gone"));
}

Result<Lane::Received> Lane::receive(Clock::time_point deadline) {
  if (auto ready = wait(POLLIN, deadline); !ready) return ready.error();
  Received received;
  const NoFork no_fork;
  auto packet = receive_packet(socket_.get(), kLaneMessageBytes, kLaneDescriptors);
  if (!packet) return packet.error().in("the lane to the broker");
  for (UniqueFd& fd : packet->descriptors) received.descriptors.emplace_back(no_fork, std::move(fd));
  if (packet->bytes.empty()) {
    return Error{Code::kUnavailable, "the broker at " + path_.string() + " has closed the connection"};
  }
  if (!received.message.ParseFromString(packet->bytes))
    return protocol_error("a message that cannot be read");
  return received;
}

Result<Lane::Received> Lane::introduce(v1::Hello hello) {
  hello.set_protocol(kLaneProtocol);
  v1::ToBroker message;
  *message.mutable_hello() = std::move(hello);
  if (auto sent = send(message); !sent) return sent.error();
  auto answer = receive(Clock::now() + timeout_);
  if (!answer) return answer;
  if (answer->message.has_refused()) {
    const v1::Refused& refused = answer->message.refused();
    return Error{code_of(refused.code()), refused.message()}.in("the broker refuses this process");
  }
  if (!answer->message.has_welcome()) return protocol_error("no welcome");
  return answer;
}

Result<std::string> Lane::greet_control() {
  v1::Hello hello;
  hello.set_control(true);
  auto answer = introduce(std::move(hello));
  if (!answer) return answer.error();
  if (answer->message.welcome().token().empty()) return protocol_error("a welcome without a token");
  return answer->message.welcome().token();
}

Result<Greeting> Lane::greet(const std::string& label) {
  v1::Hello hello;
  hello.set_label(label);
  auto answer = introduce(std::move(hello));
  if (!answer) return answer.error();
  auto valid = check_welcome(answer->message.welcome(), answer->descriptors.size());
  if (!valid) return valid.error();
  return Greeting{answer->message.welcome(), std::move(answer->descriptors[0]),
                  std::move(answer->descriptors[1]), std::move(answer->descriptors[2])};
}

Result<Offer> Lane::receive_offer(std::uint64_t grant) {
  const MutexLock lock(mutex_);
  const auto deadline = Clock::now() + timeout_;
  for (;;) {
    if (const auto found = aside_.find(grant); found != aside_.end()) {
      Offer offer = std::move(found->second);
      aside_.erase(found);
      return offer;
    }
    auto received = receive(deadline);
    if (!received) return received.error();
    const v1::Offer& offer = received->message.offer();
    if (!received->message.has_offer()) return protocol_error("not an offer");
    if (static_cast<std::size_t>(offer.leases_size()) != received->descriptors.size() ||
        offer.leases_size() == 0) {
      return protocol_error("an offer whose descriptors are not its leases'");
    }
    Offer taken{{offer.leases().begin(), offer.leases().end()}, std::move(received->descriptors)};
    aside_.emplace(offer.grant(), std::move(taken));
  }
}

Result<void> Lane::accept(std::uint64_t grant) {
  v1::ToBroker message;
  message.mutable_accept()->set_grant(grant);
  return send(message);
}

Result<void> Lane::spent(std::size_t device) {
  v1::ToBroker message;
  message.mutable_spent()->set_device(static_cast<std::uint32_t>(device));
  return send(message);
}

void Lane::goodbye() {
  v1::ToBroker message;
  message.mutable_goodbye();
  (void)send_packet(socket_.get(), message.SerializeAsString());
}

Lane::Growth::Growth(Lane& lane) : lane_(lane) {
  const MutexLock lock(lane_.mutex_);
  ++lane_.growths_;
}

Lane::Growth::~Growth() {
  const MutexLock lock(lane_.mutex_);
  if (--lane_.growths_ == 0 && (!succeeded_ || !lane_.aside_.empty())) lane_.drop_orphans();
}

void Lane::drop_orphans() {
  aside_.clear();
  while (receive(Clock::now())) {
  }
}

}  // namespace gpumem::client
