#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/words/types.h"
#include "gpumem/result.h"

namespace gpumem::core {

/// What the driver says of one device's memory at one moment.
struct Observation {
  struct Process {
    std::int64_t pid = 0;       ///< 0: gone meanwhile; only what it held then is known
    std::uint64_t started = 0;  ///< /proc/PID/stat, field 22; 0: unknown, as is what follows but `used`
    std::uint32_t uid = 0;
    std::vector<std::uint32_t> gids;  ///< the primary group first
    std::string command;
    std::string pod{};             ///< as Peer::pod
    std::optional<Owner> owner{};  ///< as Peer::owner
    /// In system mode the drop-in driver leaves it to the real one, so it is not ended for that.
    bool left_to_driver = false;
    Bytes used;  ///< zero: the driver does not tell
  };
  DeviceIndex device = 0;
  bool regular = true;  ///< made on the broker's own schedule: only such count against anybody
  Bytes used;
  Bytes total{};  ///< by the same answer as `used`; zero: not told
  Bytes free{};   ///< likewise
  Bytes broker;   ///< of `used`: booked on the broker's own process; zero: the driver does not tell
  std::uint64_t broker_started = 0;  ///< as Process::started
  std::vector<Process> processes;    ///< without the broker's own
  std::string problem;               ///< why there are no figures; empty: there are
};

/// How busy a device is, as far as its driver tells.
struct DeviceLoad {
  std::optional<unsigned> utilization;  ///< percent of the time in which a kernel ran
  std::optional<unsigned> temperature;  ///< degrees Celsius
};

class Broker;

/// The caller that wants the driver to be asked.
struct Asker {
  std::uint64_t account = 0;  ///< as Peer::account
  bool admin = false;         ///< an administrator: the number of looks is not limited
};

/// Asks the driver, for all devices, for the figures that the core observes.
class Observer {
 public:
  using Then = std::function<void(Broker& broker, TimePoint now)>;

  virtual ~Observer() = default;
  /// Asks as soon as it is the asker's turn: each user has one a second, which all that the user asks until
  /// then share. `then` is called on the core's thread when the core has observed the answers; not at all if
  /// the broker stops.
  /// Errors   kResourceExhausted: too many of this user, or of all, wait for their turn.
  /// Threads  any; does not block.
  virtual Result<void> look(Asker asker, Then then) = 0;
};

}  // namespace gpumem::core
