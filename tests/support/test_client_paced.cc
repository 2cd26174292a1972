// Calls at a steady pace, each of them timed.
#include <thread>

#include "tests/support/test_client.h"

namespace gpumem::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr std::size_t kMostRefusals = 8;  // that are told in words

/// Pings, and in turns with them growths by one extent and their shrinking. A call that is late because the
/// one before it took long is timed from when it was due: a standstill counts for every call that it held up.
class PacedCalls {
 public:
  PacedCalls(Session& session, Slice& slice) : session_(session), slice_(slice) {}

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
    is_ping_ = !is_ping_;
    if (is_ping_) return note("ping", session_.ping());
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
  bool is_ping_ = false;
  std::map<std::string, std::vector<std::int64_t>> times_;
  std::vector<std::string> refused_;
};

}  // namespace

std::optional<Answer> paced_command(const Json& command, Holdings& holdings) {
  if (command.at("do") != "paced") return std::nullopt;
  PacedCalls calls(*holdings.session, holdings.slices.at(command.at("slice")));
  calls.run(Clock::now() + std::chrono::milliseconds(command.at("for_ms").get<std::int64_t>()),
            microseconds(command.at("every_us").get<std::int64_t>()));
  return calls.answer();
}

}  // namespace gpumem::test
