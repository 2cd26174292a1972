// Many sessions of one process, each with so many operations a second: it grows, reads its quota, gives back,
// reads its slices.
//   load_client RUNTIME_FOLDER SESSIONS OPERATIONS_A_SECOND
// For each line on standard input, a number of milliseconds, it works for so long, waits for the answers that
// are to come, and prints a line of JSON. The end of the input is its own. Anything that is not as it should
// be ends it with status 1.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <iostream>
#include <nlohmann/json.hpp>
#include <queue>
#include <vector>

#include "base/packet.h"
#include "base/system/unix_socket.h"
#include "gpumem/result.h"
#include "proto/lane.h"
#include "proto/lane/frames.h"

namespace gpumem::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kPiece = std::uint64_t{2} << 20;
constexpr std::uint64_t kWait = 60'000'000'000;  // nanoseconds: what is given back is proved free first
constexpr std::chrono::seconds kPatience{60};

[[noreturn]] void fail(const std::string& why) {
  std::cerr << "load_client: " << why << "\n";
  std::_Exit(1);
}

template <class Body>
Body whole(const lane::Incoming& frame) {
  auto body = lane::body_of<Body>(frame);
  if (!body) {
    const auto failed = lane::body_of<lane::Failed>(frame);
    fail(failed ? std::string(failed->message.view()) : body.error().message);
  }
  return *body;
}

/// A session that has one request under way at most.
class LoadedSession {
 public:
  LoadedSession(const std::string& runtime_folder, std::size_t number)
      : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), step_(number % kSteps) {
    const std::string path = runtime_folder + "/" + kLaneSocketName;
    if (connect_unix(socket_.get(), path) != 0) fail(path + ": " + std::strerror(errno));
    send(lane::Hello{lane::kVersion, lane::kVersion, 0, 0, decltype(lane::Hello::label)::of("load")});
    receive([](const lane::Incoming& frame) { whole<lane::Welcome>(frame); });
    send(lane::OpenSlice{0, 0, {}});
    receive([this](const lane::Incoming& frame) { slice_ = whole<lane::SliceOpened>(frame).slice; });
    if (step_ != 0) step_ = kSteps - 1;  // the new slice holds nothing yet
  }

  int socket() const { return socket_.get(); }
  std::uint64_t held() const { return lease_ != 0 ? kPiece : 0; }
  Clock::time_point sent() const { return sent_; }

  void ask() {
    sent_ = Clock::now();
    switch (step_) {
      case 0: return grow();
      case 1: return send(lane::Explain{});
      case 2: return give_back();
      default: send(lane::Describe{});
    }
  }
  /// Reads an answer. Whether it was the last of the operation.
  bool answered() {
    bool last = true;
    receive([&](const lane::Incoming& frame) {
      switch (step_) {
        case 0: last = note_growth(frame); break;
        case 1: note_standing(frame); break;
        case 2:
          whole<lane::Done>(frame);
          lease_ = 0;
          break;
        default: last = whole<lane::Described>(frame).missing == 0;
      }
    });
    if (last) step_ = (step_ + 1) % kSteps;
    return last;
  }

 private:
  static constexpr std::size_t kSteps = 4;

  template <class Body>
  void send(const Body& body) {
    const lane::Outgoing frame(body, ++last_, 0);
    if (auto sent = send_packet(socket_.get(), frame.bytes()); !sent) fail(sent.error().message);
  }
  template <class Take>
  void receive(const Take& take) {
    const auto packet = receive_packet(socket_.get(), lane::kMostBytes, lane::kMostDescriptors);
    if (!packet) fail(packet.error().message);
    if (packet->bytes.empty()) fail("the broker has closed a session");
    const auto frame = lane::parse(packet->bytes);
    if (!frame) fail(frame.error().message);
    take(*frame);
  }

  void grow() {
    lane::Grow body{};
    body.wait = kWait;
    body.parts[body.count++] = {slice_, kPiece, 0, 0};
    send(body);
  }
  bool note_growth(const lane::Incoming& frame) {
    if (frame.header.kind == lane::Kind::kWaiting) return false;
    const auto granted = whole<lane::Granted>(frame);
    if (granted.count != 1 || granted.missing != 0) fail("a piece is one extent");
    lease_ = granted.leases[0].lease;
    send(lane::Accept{granted.grant});
    return true;
  }
  // All sessions are one user's, which is told so many times a second.
  static void note_standing(const lane::Incoming& frame) {
    if (frame.header.kind != lane::Kind::kFailed) return static_cast<void>(whole<lane::Explained>(frame));
    if (whole<lane::Failed>(frame).code != static_cast<std::uint64_t>(Code::kResourceExhausted))
      fail("an explanation failed");
  }
  void give_back() {
    lane::Return body{};
    body.slice = slice_;
    body.leases[body.count++] = lease_;
    send(body);
  }

  UniqueFd socket_;
  std::size_t step_;
  std::uint64_t slice_ = 0;
  std::uint64_t lease_ = 0;  ///< 0: it holds none
  std::uint64_t last_ = 0;
  Clock::time_point sent_;
};

/// Has each session do an operation when it is due, and measures how long each takes.
class Load {
 public:
  Load(const std::string& runtime_folder, std::size_t sessions, double rate)
      : period_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1 / rate))),
        poll_(::epoll_create1(EPOLL_CLOEXEC)),
        next_(sessions) {
    for (std::size_t i = 0; i < sessions; ++i) {
      LoadedSession& session = sessions_.emplace_back(runtime_folder, i);
      epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
      if (::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, session.socket(), &event) != 0) fail("epoll_ctl");
    }
  }

  nlohmann::json work(std::chrono::milliseconds length) {
    microseconds_.clear();
    const auto start = Clock::now();
    const auto end = start + length;
    // Not all at once: each begins at another part of the period.
    for (std::size_t i = 0; i < sessions_.size(); ++i)
      due_.push({start + period_ * static_cast<int>(i) / static_cast<int>(sessions_.size()), i});
    while (!due_.empty() || under_way_ != 0) {
      ask_who_is_due(end);
      await_answers(end);
    }
    return figures(Clock::now() - start);
  }

 private:
  struct Due {
    Clock::time_point at;
    std::size_t session;
    bool operator>(const Due& other) const { return at > other.at; }
  };

  // Nothing is due after the end.
  void ask_who_is_due(Clock::time_point end) {
    if (Clock::now() >= end) due_ = {};
    while (!due_.empty() && due_.top().at <= Clock::now()) {
      const Due next = due_.top();
      due_.pop();
      sessions_[next.session].ask();
      next_[next.session] = next.at + period_;
      ++under_way_;
    }
  }

  void await_answers(Clock::time_point end) {
    if (due_.empty() && under_way_ == 0) return;
    const auto until = due_.empty() ? Clock::now() + kPatience : std::min(due_.top().at, end);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    epoll_event events[256];
    const int count = ::epoll_wait(poll_.get(), events, std::size(events),
                                   static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (count == 0 && due_.empty()) fail("the broker does not answer");
    for (int i = 0; i < count; ++i) note_answer(events[i].data.u64, end);
  }

  // An operation is due a period after the one before it was, or at once where that took longer.
  void note_answer(std::size_t which, Clock::time_point end) {
    LoadedSession& session = sessions_[which];
    if (!session.answered()) return;
    const auto now = Clock::now();
    microseconds_.push_back(
        static_cast<float>(std::chrono::duration<double, std::micro>(now - session.sent()).count()));
    --under_way_;
    if (now < end) due_.push({std::max(next_[which], now), which});
  }

  nlohmann::json figures(Clock::duration took) {
    std::ranges::sort(microseconds_);
    const auto quantile = [&](double share) {
      return microseconds_.empty() ? 0
                                   : microseconds_[static_cast<std::size_t>(
                                         share * static_cast<double>(microseconds_.size() - 1))];
    };
    std::uint64_t held = 0;
    for (const LoadedSession& session : sessions_) held += session.held();
    return {{"operations", microseconds_.size()},
            {"seconds", std::chrono::duration<double>(took).count()},
            {"held", held},
            {"p50_us", quantile(0.5)},
            {"p99_us", quantile(0.99)},
            {"max_us", quantile(1)}};
  }

  const Clock::duration period_;
  UniqueFd poll_;
  std::deque<LoadedSession> sessions_;
  std::vector<Clock::time_point> next_;  ///< when the next operation of each is due
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::size_t under_way_ = 0;
  std::vector<float> microseconds_;
};

}  // namespace
}  // namespace gpumem::test

int main(int count, char** arguments) {
  if (count != 4) return std::cerr << "usage: load_client RUNTIME_FOLDER SESSIONS OPERATIONS_A_SECOND\n", 2;
  gpumem::test::Load load(arguments[1], std::stoul(arguments[2]), std::stod(arguments[3]));
  std::cout << "ready" << std::endl;
  std::uint64_t milliseconds = 0;
  while (std::cin >> milliseconds)
    std::cout << load.work(std::chrono::milliseconds(milliseconds)) << std::endl;
  return 0;
}
