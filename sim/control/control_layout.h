#pragma once
#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// The page that tells all processes of a machine how its driver is to misbehave and what its calls cost:
/// /dev/shm/gpumem-sim-ID/control. An edit writes the bank that is not in force, then puts it in force with
/// one store to `state`: whoever is killed in the middle of an edit has changed nothing.
namespace gpumem::sim::layout {

inline constexpr std::uint64_t kControlMagic = 0x6c7274632d706d67;  // "gmp-ctrl"
inline constexpr std::uint32_t kControlVersion = 1;
inline constexpr std::uint32_t kRules = 64;
inline constexpr std::uint32_t kCosts = 1024;
inline constexpr std::uint32_t kCounters = 4 * kRules;  ///< a rule's counter is not used again soon
inline constexpr std::size_t kCallLength = 64;          ///< of a call's name, its zero included
// Control::state
inline constexpr std::uint64_t kStateBank = 1;      ///< the bank in force
inline constexpr std::uint64_t kStateActive = 2;    ///< that bank holds a rule or a cost
inline constexpr std::uint64_t kStateRevision = 4;  ///< added by every edit
// Rule::flags
inline constexpr std::uint32_t kKill = 1;

struct Rule {
  char call[kCallLength];
  std::int32_t pid;    ///< 0: any
  std::int32_t error;  ///< the driver's result; 0: none
  std::uint64_t delay_ns;
  std::uint64_t from;       ///< the first matching call that it may fire at, counted from 1
  std::uint64_t until;      ///< the last one
  std::uint64_t times;      ///< how often it fires at most
  std::uint64_t threshold;  ///< probability in units of 2^-32
  std::uint64_t seed;
  std::uint32_t counter;
  std::uint32_t flags;
};
static_assert(sizeof(Rule) == 128 && offsetof(Rule, pid) == 64 && offsetof(Rule, delay_ns) == 72 &&
              offsetof(Rule, threshold) == 104 && offsetof(Rule, counter) == 120);

struct Cost {
  char call[kCallLength];
  std::uint64_t base_ps;     ///< picoseconds for each call
  std::uint64_t per_mib_ps;  ///< and for each MiB of it
};
static_assert(sizeof(Cost) == 80 && offsetof(Cost, base_ps) == 64);

struct Bank {
  std::uint32_t rule_count;
  std::uint32_t cost_count;
  Rule rules[kRules];
  Cost costs[kCosts];
};
static_assert(sizeof(Bank) == 8 + kRules * sizeof(Rule) + kCosts * sizeof(Cost) && alignof(Bank) == 8);

struct Counter {
  std::uint64_t matches;
  std::uint64_t hits;
};

struct Control {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t last_counter;  ///< the newest one given to a rule
  std::uint64_t size;          ///< of this struct
  std::uint64_t state;
  union {
    pthread_mutex_t mutex;  ///< of the editors; process-shared and robust
    std::uint8_t mutex_room[96];
  };
  Counter counters[kCounters];
  Bank banks[2];
};
static_assert(std::is_trivially_copyable_v<Control> &&
              sizeof(pthread_mutex_t) <= sizeof(Control::mutex_room));
static_assert(offsetof(Control, state) == 24 && offsetof(Control, mutex) == 32 &&
              offsetof(Control, counters) == 128 && offsetof(Control, banks) == 128 + 16 * kCounters);

}  // namespace gpumem::sim::layout
