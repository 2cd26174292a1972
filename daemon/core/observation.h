#pragma once
#include <functional>
#include <string>
#include <vector>

#include "daemon/core/types.h"

namespace gpumem::core {

/// What the driver says of one device's memory at one moment.
struct Observation {
  struct Process {
    std::int64_t pid = 0;       ///< 0: gone meanwhile; only what it held then is known
    std::uint64_t started = 0;  ///< /proc/PID/stat, field 22; 0: unknown, as is what follows but `used`
    std::uint32_t uid = 0;
    std::vector<std::uint32_t> gids;  ///< the primary group first
    std::string command;
    Bytes used;  ///< zero: the driver does not tell
  };
  DeviceIndex device = 0;
  Bytes used;
  Bytes broker;  ///< of `used`: booked on the broker's own process; zero: the driver does not tell
  std::uint64_t broker_started = 0;  ///< as Process::started
  std::vector<Process> processes;    ///< without the broker's own
  std::string problem;               ///< why there are no figures; empty: there are
};

class Broker;

/// Whoever asks the driver, for all devices, what the core is to observe.
class Observer {
 public:
  using Then = std::function<void(Broker& broker, TimePoint now)>;

  virtual ~Observer() = default;
  /// Asks at once. `then` is called on the core's thread when the core has observed the answers; not at all
  /// if the broker stops. Threads  any; does not block.
  virtual void look(Then then) = 0;
};

}  // namespace gpumem::core
