#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "daemon/core/words/refusals.h"
#include "daemon/core/words/types.h"
#include "gpumem/result.h"

namespace gpumem::core {

/// How many explanations each user gets in a second, by every transport together. The core's thread works
/// them out, and one takes as long as many other calls.
class ExplanationLimit {
 public:
  static constexpr std::size_t kMostOfAUser = 16;
  static constexpr std::chrono::seconds kWindow{1};

  /// Counts one more of `account`. Errors  kResourceExhausted: it is one too many within kWindow.
  Result<void> add(std::uint64_t account, TimePoint now) {
    if (now >= end_) {
      by_user_.clear();
      end_ = now + kWindow;
    }
    std::size_t& count = by_user_[account];
    if (count >= kMostOfAUser) {
      return refusal(Bound::kListings, "this user has had " + std::to_string(count) +
                                           " explanations within a second; ask again later");
    }
    ++count;
    return {};
  }

 private:
  TimePoint end_ = TimePoint::min();              ///< of the window
  std::map<std::uint64_t, std::size_t> by_user_;  ///< within the window
};

}  // namespace gpumem::core
