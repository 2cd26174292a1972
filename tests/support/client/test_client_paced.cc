// Calls at a steady pace, each of them timed.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "tests/support/child.h"
#include "tests/support/client/test_client.h"

namespace gpumem::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr std::size_t kMostRefusals = 8;  // that are told in words

/// A process that sends back what it gets: what a call to another process takes on this machine at this time.
class Echo {
 public:
  Echo() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    socket_.reset(ends[0]);
    const UniqueFd theirs(ends[1]);
    process_.emplace(ChildOptions{.program = "/bin/cat", .input = theirs.get(), .output = theirs.get()});
    EXPECT_TRUE(call()) << "it runs";
  }
  Result<void> call() const {
    char byte = 1;
    if (::send(socket_.get(), &byte, 1, MSG_NOSIGNAL) == 1 && ::recv(socket_.get(), &byte, 1, 0) == 1)
      return {};
    return Error{Code::kInternal, "no echo"};
  }

 private:
  UniqueFd socket_;
  std::optional<Child> process_;
};

/// Pings, and in turns with them echoes, growths by one extent and their shrinking. A call that is late
/// because the one before it took long is timed from when it was due: a standstill counts for every call that
/// it held up.
class PacedCalls {
 public:
  PacedCalls(Session& session, Slice& slice, const Echo& echo)
      : session_(session), slice_(slice), echo_(echo) {}

  void run(Clock::time_point end, microseconds pace) {
    Clock::time_point free{};
    for (auto due = Clock::now(); due < end; due += pace) {
      std::this_thread::sleep_until(due);
      const auto start = free > due ? due : Clock::now();
      const char* const name = call();
      free = Clock::now();
      times_[name].push_back(std::chrono::duration_cast<microseconds>(free - start).count());
    }
  }
  Answer answer() const {
    Answer answer;
    answer.json["us"] = times_;
    answer.json["refused"] = refused_;
    return answer;
  }

 private:
  // Which call it was.
  const char* call() {
    switch (turn_++ % 4) {
      case 0: return note("ping", session_.ping());
      case 2: return note("echo", echo_.call());
      default: return change();
    }
  }
  const char* change() {
    if (!slice_.committed().is_zero()) return note("shrink", slice_.shrink({}));
    return note("grow", slice_.grow(mebibytes(2), {std::chrono::seconds(15)}));
  }
  template <class Result>
  const char* note(const char* call, const Result& result) {
    if (!result && refused_.size() < kMostRefusals)
      refused_.push_back(call + (": " + to_string(result.error())));
    return call;
  }

  Session& session_;
  Slice& slice_;
  const Echo& echo_;
  unsigned turn_ = 0;
  std::map<std::string, std::vector<std::int64_t>> times_;
  std::vector<std::string> refused_;
};

}  // namespace

std::optional<Answer> paced_command(const Json& command, Holdings& holdings) {
  if (command.at("do") != "paced") return std::nullopt;
  static const Echo echo;  // one for all rounds: a fork slows down the calls after it
  PacedCalls calls(*holdings.session, holdings.slices.at(command.at("slice")), echo);
  calls.run(Clock::now() + std::chrono::milliseconds(command.at("for_ms").get<std::int64_t>()),
            microseconds(command.at("every_us").get<std::int64_t>()));
  return calls.answer();
}

}  // namespace gpumem::test
