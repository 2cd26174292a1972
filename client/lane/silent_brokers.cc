#include "client/lane/silent_brokers.h"

#include <algorithm>
#include <thread>

#include "base/text/printable.h"
#include "client/process/runtime_folder.h"
#include "proto/lane.h"

namespace gpumem::client {
namespace {

constexpr std::chrono::milliseconds kLookAgain{20};
constexpr std::chrono::milliseconds kLongestPause{500};

}  // namespace

SilentBrokers& SilentBrokers::of_process() {
  static std::atomic<SilentBrokers*> latest{nullptr};
  return this_process(latest, [](const SilentBrokers*) { return std::make_unique<SilentBrokers>(); });
}

Result<GreetedLane> SilentBrokers::connect(const SessionOptions& options, std::uint64_t job,
                                           Clock::time_point deadline) {
  if (options.label.size() > kLabelBytes) {
    return Error{Code::kInvalidArgument,
                 "the label is longer than " + std::to_string(kLabelBytes) + " bytes"};
  }
  const std::filesystem::path socket = runtime_folder(options.runtime_folder) / kLaneSocketName;
  auto late = take_late(socket, options, job);
  if (!late) return late.error();
  if (*late) return std::move(**late);
  // A broker that is stopping, or ends before it answers, is followed by the next one. One that refuses for
  // another reason may do so for long: it is asked less and less often.
  std::optional<Error> refused;  // by the broker that answered last
  bool has_ended = false;
  for (std::chrono::milliseconds pause = kLookAgain;; std::this_thread::sleep_for(pause)) {
    auto lane = reach(socket, options, deadline);
    if (!lane) {
      pause = kLookAgain;
      const bool goes_on = has_ended && lane.error().code == Code::kUnavailable;
      if (!goes_on || Clock::now() + pause >= deadline) return lane.error();
      continue;
    }
    auto greeting = (*lane)->greet(options.label, deadline, job);
    if (greeting) return GreetedLane{std::move(*lane), std::move(*greeting)};
    const bool is_answered = !(*lane)->awaits_greeting();
    if (is_answered) refused = greeting.error();
    has_ended = greeting.error().code == Code::kUnavailable && (is_answered || (*lane)->is_closed());
    if (!is_answered && !has_ended) remember(socket, {std::move(*lane), options, job});
    pause = is_answered ? std::min(2 * pause, kLongestPause) : kLookAgain;
    // With little time left the last one may not get to answer: what was answered before says more.
    if (!has_ended || Clock::now() + pause >= deadline) return refused.value_or(greeting.error());
  }
}

void SilentBrokers::remember(const std::filesystem::path& socket, Silent silent) {
  const MutexLock lock(mutex_);
  Silent& known = silent_[socket];
  if (known.lane == nullptr) known = std::move(silent);
}

void SilentBrokers::forget() {
  const MutexLock lock(mutex_);
  silent_.clear();
}

Result<std::optional<GreetedLane>> SilentBrokers::take_late(const std::filesystem::path& socket,
                                                            const SessionOptions& options,
                                                            std::uint64_t job) {
  std::optional<GreetedLane> none;
  const MutexLock lock(mutex_);
  const auto known = silent_.find(socket);
  if (known == silent_.end() || known->second.lane == nullptr) return none;
  Lane& lane = *known->second.lane;
  auto greeting = lane.greet_on();
  if (!greeting && lane.awaits_greeting() && !lane.is_closed()) return greeting.error();
  Silent answered = std::move(silent_.extract(known).mapped());
  if (!greeting) return none;
  if (answered.options.label == options.label && answered.options.timeout == options.timeout &&
      answered.job == job)
    return std::optional(GreetedLane{std::move(answered.lane), std::move(*greeting)});
  answered.lane->goodbye();
  return none;
}

// A full queue of connections is not waited for again.
Result<std::unique_ptr<Lane>> SilentBrokers::reach(const std::filesystem::path& socket,
                                                   const SessionOptions& options,
                                                   Clock::time_point deadline) {
  const auto is_full = [&] {
    const MutexLock lock(mutex_);
    return silent_.contains(socket);
  };
  auto lane = Lane::connect(socket, options.timeout, is_full() ? Clock::now() : deadline);
  const MutexLock lock(mutex_);
  const auto known = silent_.find(socket);
  if (lane) {
    if (known != silent_.end() && known->second.lane == nullptr) silent_.erase(known);
  } else if (lane.error().code == Code::kUnavailable && Clock::now() >= deadline) {
    silent_.try_emplace(socket);
  }
  return lane;
}

}  // namespace gpumem::client
