#pragma once
#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "client/cli/run/line/broker_session.h"
#include "client/cli/run/program/pressure_hook.h"
#include "client/cli/views/progress.h"
#include "gpumem/bytes.h"

namespace gpumem::cli {

struct ReservationOptions {
  std::filesystem::path runtime_folder;
  std::filesystem::path driver_folder;  ///< of the management library; empty: the system's
  std::string device;                   ///< UUID
  std::string device_name;              ///< for people
  Bytes bytes;
  std::string name;
  pid_t command = 0;  ///< pid of the process that owns the session; 0: this process
};

/// Charges `bytes` of `device` to the tenant of `session`, as held past the broker.
/// Errors  kResourceExhausted: the tenant's limit has no room for it, or the broker does not say whether it
///         has; nothing is charged then. The broker's.
Result<void> charge(BrokerSession& session, const ReservationOptions& options);

/// Memory that stays charged to a tenant while a command runs that takes it by itself. Answers the broker's
/// pressure by the hook. Memory that the broker itself observes and charges to processes of the command is
/// not charged twice. When the broker comes back after a restart, the memory is reserved again.
/// Threads  one of its own does all this.
class Reservation {
 public:
  /// `session`  has charged the memory. `hook` and `progress` outlive this.
  Reservation(ReservationOptions options, std::unique_ptr<BrokerSession> session, PressureHook& hook,
              Progress& progress);
  /// Ends the session, and with it the charge.
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

 private:
  void work();
  void reconnect();
  void reconcile();
  void answer(const v1::DevicePressure& pressure);
  Bytes let_go(Bytes asked);
  void declare(Bytes bytes);
  void tell_spent();
  Bytes charged_besides() const;
  std::optional<Bytes> used_by_command() const;

  const ReservationOptions options_;
  PressureHook& hook_;
  Progress& progress_;
  std::unique_ptr<BrokerSession> session_;  // null: the broker is gone
  pid_t session_pid_;
  Bytes reserved_;
  Bytes declared_;
  UniqueFd stop_;
  std::thread thread_;
};

}  // namespace gpumem::cli
