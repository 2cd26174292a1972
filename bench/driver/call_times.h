#pragma once
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpumem/bytes.h"

namespace gpumem::bench {

/// One timed call: its memory, its number of extents, with a context or without.
struct TimedCall {
  std::string name;
  Bytes size;
  std::size_t extents = 1;
  bool context = false;
  bool operator==(const TimedCall&) const = default;
};

/// Durations of calls that succeeded, in the order in which each was first made.
class CallTimes {
 public:
  /// Runs `work`, which answers with a Result or with a number that is 0 for success, and notes how long it
  /// took.
  template <class Work>
  auto time(const TimedCall& call, Work&& work) {
    const auto start = std::chrono::steady_clock::now();
    auto result = work();
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
    if (succeeded(result)) samples_of(call).push_back(took.count());
    return result;
  }

  /// A list of {call, size, extents, context, count, median_ns, p10_ns, p90_ns, min_ns}.
  nlohmann::json to_json() const {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& [call, samples] : times_) {
      std::vector<std::int64_t> sorted = samples;
      std::ranges::sort(sorted);
      const auto quantile = [&](std::size_t percent) { return sorted[(sorted.size() - 1) * percent / 100]; };
      list.push_back({{"call", call.name},
                      {"size", call.size.count},
                      {"extents", call.extents},
                      {"context", call.context},
                      {"count", sorted.size()},
                      {"median_ns", quantile(50)},
                      {"p10_ns", quantile(10)},
                      {"p90_ns", quantile(90)},
                      {"min_ns", sorted.front()}});
    }
    return list;
  }

 private:
  template <class Answer>
  static bool succeeded(const Answer& answer) {
    if constexpr (requires { answer.has_value(); }) {
      return answer.has_value();
    } else {
      return static_cast<int>(answer) == 0;
    }
  }

  std::vector<std::int64_t>& samples_of(const TimedCall& call) {
    const auto known =
        std::ranges::find(times_, call, &std::pair<TimedCall, std::vector<std::int64_t>>::first);
    return known != times_.end() ? known->second
                                 : times_.emplace_back(call, std::vector<std::int64_t>()).second;
  }

  std::vector<std::pair<TimedCall, std::vector<std::int64_t>>> times_;
};

}  // namespace gpumem::bench
