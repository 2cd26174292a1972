#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/words/types.h"

namespace gpumem::core {

/// An amount of memory times the time for which it was used: exactly, in byte-nanoseconds.
class ByteTime {
 public:
  ByteTime() = default;
  ByteTime(std::uint64_t high, std::uint64_t low) : high_(high), low_(low) {}

  /// Adds `bytes` for `time`, which is not negative.
  void add(Bytes bytes, Duration time);
  double byte_seconds() const;
  std::uint64_t high() const { return high_; }  ///< the upper half of the 128 bits
  std::uint64_t low() const { return low_; }
  bool operator==(const ByteTime&) const = default;

 private:
  std::uint64_t high_ = 0;
  std::uint64_t low_ = 0;
};

/// The ways to use memory that are counted, each for itself.
enum class Use : std::size_t {
  kLent,       ///< on loan
  kReturning,  ///< given back, and not proved free yet
  kReserved,   ///< the unused part of a job's reservation
  kOutside,    ///< charged besides the pool: contexts and declared memory
  kKept,       ///< kept free for an unused guarantee
  kWaiting,    ///< asked for in vain so far
};
inline constexpr std::size_t kUses = 6;
using Usage = std::array<ByteTime, kUses>;
using UseLevels = std::array<Bytes, kUses>;

/// The charge of a session or a job since it began, of all devices together.
struct Spending {
  Bytes level;        ///< charged now
  TimePoint since{};  ///< `sum` is up to here
  ByteTime sum;
  Bytes peak;  ///< the highest level
  TimePoint recorded{};

  void begin(TimePoint now) { since = recorded = now; }
  void advance(TimePoint now);
  /// True: the change is to be written down.
  bool set_level(Bytes bytes, TimePoint now);
};

/// The use of a device by a tenant since the tenant came, at all brokers since the machine started.
struct UsageView {
  std::string tenant;  ///< empty: all of the device
  DeviceIndex device = 0;
  TimePoint began{};
  Usage usage{};
};
struct UsagePage {
  std::vector<UsageView> views;
  std::optional<std::string> next;  ///< the name that the next page begins behind; none: this was all
};

}  // namespace gpumem::core
