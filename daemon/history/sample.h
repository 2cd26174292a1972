#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// The data that the history gets from the broker.

namespace gpumem::history {

/// Bytes times seconds by kind, in the order of kAmountNames.
inline constexpr std::size_t kAmounts = 6;
using Amounts = std::array<double, kAmounts>;
inline constexpr std::array<const char*, kAmounts> kAmountNames{"lent",    "returning", "reserved",
                                                                "outside", "kept",      "waiting"};

inline constexpr std::int64_t kMicros = 1'000'000;  ///< of a second

/// A tenant and a device; an empty tenant is all of the device.
using Key = std::pair<std::string, std::string>;

/// An account of the broker: a counter that begins anew when the machine starts.
struct Account {
  Key key;
  std::optional<std::uint32_t> uid{};  ///< of the tenant's user, if it is that of one
  std::chrono::nanoseconds began{};    ///< since the machine started
  Amounts amounts{};
};

/// Events of one second, tenant and device.
struct Counts {
  std::uint64_t denied = 0;  ///< requests
  std::uint64_t ended = 0;   ///< processes that the broker has ended
};

/// A process that the broker has ended, and the reason.
struct End {
  std::int64_t time = 0;  ///< seconds since 1970
  Key key;
  std::uint64_t session = 0;
  std::int64_t pid = 0;
  std::string words;
};

/// The events that were read: all before `time` (microseconds since 1970), and the first `count` of it.
struct EventPosition {
  std::int64_t time = 0;
  std::int64_t count = 0;
  bool operator==(const EventPosition&) const = default;
};

/// An event, for `gpumem events`.
struct Event {
  std::int64_t time = 0;  ///< microseconds since 1970
  std::string tenant{};
  std::optional<std::uint32_t> uid{};  ///< of the session or job; none: of none, or in a pod
  std::string body{};                  ///< v1::Event as JSON
};

/// A session or a job that is over.
struct Closed {
  std::int64_t time = 0;  ///< its end, seconds since 1970, as `began`
  std::int64_t began = 0;
  std::string tenant{};
  std::optional<std::uint32_t> uid{};
  std::uint64_t job = 0;
  std::uint64_t session = 0;  ///< 0: it is the job itself
  std::int64_t pid = 0;
  std::string name{};  ///< the command of a session, the label of a job
  double charged = 0;  ///< bytes times seconds
  std::uint64_t peak = 0;
  double waited = 0;  ///< seconds
  std::uint64_t denied = 0;
  std::string words{};  ///< why the broker has ended it; empty: it has not
};

/// A user or a group that a tenant is made of.
struct Member {
  std::string tenant;
  std::optional<std::uint32_t> uid{};
  std::optional<std::uint32_t> gid{};
};

/// The users and groups that may see more than strangers do.
struct Rights {
  std::optional<std::uint32_t> admin_group{};
  std::vector<Member> members{};  ///< the first that fits counts, users before groups
};

/// One look at the broker.
struct Sample {
  std::string boot;                   ///< names the run of the machine
  std::chrono::nanoseconds steady{};  ///< since the machine started
  std::int64_t time = 0;              ///< seconds since 1970
  std::vector<Account> accounts{};
  std::map<Key, std::uint64_t> charged{};  ///< bytes
  /// By second, tenant and device. None of all of the device: the store adds those.
  std::map<std::tuple<std::int64_t, std::string, std::string>, Counts> counts{};
  std::vector<End> ends{};
  std::vector<Event> events{};
  std::vector<Closed> closed{};
  std::vector<Member> members{};
  EventPosition position{};
};

}  // namespace gpumem::history
