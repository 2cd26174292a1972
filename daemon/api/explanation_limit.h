#pragma once
#include <chrono>
#include <cstdint>
#include <map>

#include "daemon/core/types.h"
#include "gpumem/result.h"

namespace gpumem::api {

/// How many explanations each user gets in a second, by every transport together. The core's thread works
/// them out, and one takes as long as many other calls. Threads  the core's.
class ExplanationLimit {
 public:
  static constexpr std::size_t kMostOfAUser = 16;
  static constexpr std::chrono::seconds kWindow{1};

  /// Counts one more of `account`. Errors  kResourceExhausted: it is one too many within kWindow.
  Result<void> add(std::uint64_t account, core::TimePoint now);

 private:
  core::TimePoint end_ = core::TimePoint::min();  ///< of the window
  std::map<std::uint64_t, std::size_t> by_user_;  ///< within the window
};

}  // namespace gpumem::api
