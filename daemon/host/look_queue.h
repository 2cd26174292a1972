#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "daemon/core/observation.h"

namespace gpumem::host {

/// Who waits for a look at the devices' memory, and when it is whose turn. Each user has one look a second;
/// whatever a user asks until then waits for the same one. Administrators need not wait.
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
    Clock::time_point turn;  ///< of those that wait; or until when the last look counts
    std::vector<Then> waiting;
  };

  std::map<std::uint64_t, User> users_;  // who waits, or has had a look within kPause
  std::size_t waiting_ = 0;
};

}  // namespace gpumem::host
