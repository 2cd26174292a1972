#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "gpumem/result.h"

namespace gpumem::core {

/// A bound of docs/guarantees.md that has turned a client away.
enum class Bound : std::size_t {
  kSessions,
  kSlices,
  kRequests,
  kHandles,
  kImports,
  kRegions,
  kSilentConnections,
  kApiConnections,
  kDescriptors,
  kListings,
  kLooks,
  kFollowers,
  kMetricsConnections,
};

/// The name of each bound in the metrics, in the order of Bound.
inline constexpr std::array<std::string_view, 13> kBoundNames{
    "sessions",           "slices",          "requests",    "handles",  "imports", "regions",
    "silent_connections", "api_connections", "descriptors", "listings", "looks",   "followers",
    "metrics_connections"};
inline constexpr std::size_t kBounds = kBoundNames.size();
static_assert(static_cast<std::size_t>(Bound::kMetricsConnections) + 1 == kBounds);

/// How often each bound has refused since this process started: of all brokers in it.
/// Threads  any; does not block.
inline std::array<std::atomic<std::uint64_t>, kBounds>& refusals() {
  static std::array<std::atomic<std::uint64_t>, kBounds> counts{};
  return counts;
}

inline void count_refusal(Bound bound) {
  refusals()[static_cast<std::size_t>(bound)].fetch_add(1, std::memory_order_relaxed);
}

/// The error of a client that `bound` turns away, counted.
inline Error refusal(Bound bound, std::string message) {
  count_refusal(bound);
  return {Code::kResourceExhausted, std::move(message)};
}

}  // namespace gpumem::core
