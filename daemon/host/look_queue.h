#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "daemon/core/observation.h"

namespace gpumem::host {

/// The queue of requests for a look at the devices' memory. Each user has one look a second, and all requests
/// of the user until then share it. Administrators do not wait.
class LookQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using Then = core::Observer::Then;
  static constexpr std::chrono::seconds kPause{1};
  static constexpr std::size_t kMostOfAUser = 16;
  static constexpr std::size_t kMost = 1024;

  /// Errors  kResourceExhausted: too many of this user, or of all, wait already; `then` is dropped.
  Result<void> add(core::Asker asker, Then then, Clock::time_point now);
  /// When the next turn is; nothing: nobody waits.
  std::optional<Clock::time_point> next() const;
  /// Takes out those whose turn has come.
  std::vector<Then> take_due(Clock::time_point now);

 private:
  struct User {
    Clock::time_point turn;  ///< time of the next look for `waiting`; if none waits, when kPause ends
    std::vector<Then> waiting;
  };

  std::map<std::uint64_t, User> users_;  // users who wait, or had a look within kPause
  std::size_t waiting_ = 0;
};

}  // namespace gpumem::host
