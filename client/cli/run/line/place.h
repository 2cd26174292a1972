#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/monitor/monitor.h"
#include "client/cli/run/line/device_choice.h"
#include "client/cli/run/program/signals.h"
#include "client/cli/views/progress.h"
#include "gpumem/bytes.h"
#include "gpumem/session.h"

namespace CLI {
class App;
}  // namespace CLI

namespace gpumem::cli {

inline constexpr const char* kAnyDevice = "auto";  ///< one that has room
inline constexpr const char* kAllDevices = "all";  ///< as far as CUDA_VISIBLE_DEVICES has them

/// The device, the limit and the wait of a command, as the command line says them.
struct PlaceOptions {
  /// UUID, the beginning of one, a place in `gpumem status`, kAnyDevice or kAllDevices. Empty: any, unless
  /// CUDA_VISIBLE_DEVICES says which.
  std::string device;
  std::optional<Amount> limit;       ///< bytes, or a percentage of what the tenant can have
  std::optional<Amount> host_limit;  ///< likewise, of the host store
  std::optional<std::chrono::milliseconds> wait;
};

/// Adds --device, --limit and --host-limit to the command line.
void add_place(CLI::App& command, PlaceOptions& options);

/// Errors  kInvalidArgument: no process could start with the limit.
Result<void> check_place(const PlaceOptions& options);
/// Whether `limit` suffices for a process. The error names it `whose`.   Errors  kInvalidArgument.
Result<void> check_least_limit(Bytes limit, const std::string& whose);

/// The place of a command at the broker: its job, and the device where there is room for it. The command is
/// in the job of another one, if the session has joined that.
class Place {
 public:
  /// How long a command waits for a broker that does not answer: it may be being restarted.
  static constexpr std::chrono::seconds kPatience{10};

  /// `session`  owns the job from begin() on.   Errors  those of Session::usage.
  static Result<Place> find(Session session, PlaceOptions options, std::filesystem::path runtime_folder);

  /// Chooses the device that is named, and bounds the limit by `outer` and by what the tenant may have.
  /// Errors  kNotFound: there is no such device.
  Result<void> choose(std::optional<Bytes> outer, Progress& progress);
  /// Begins the job, `label`.   Errors  those of Session::begin_job.
  Result<void> begin(const std::string& label);
  /// Reserves the limit, if there is a wait. If any device would do, it chooses one: where there is room, or
  /// where the fewest wait. Answers the signal that has ended the waiting.   Blocks.
  Result<std::optional<int>> take(const Signals& signals, Progress& progress);

  Session& session() { return session_; }
  bool is_nested() const { return session_.job() != 0; }
  const std::string& device() const { return device_; }         ///< UUID; empty: those that are visible
  std::uint64_t job() const { return job_; }                    ///< begun here; 0: none
  const std::optional<Bytes>& limit() const { return limit_; }  ///< on the device

 private:
  Place(Session session, PlaceOptions options, std::filesystem::path runtime_folder,
        std::vector<DeviceUsage> usage);
  Bytes most() const;
  Bytes bounded_limit() const;
  Result<std::optional<int>> reserve_on(const std::string& device, std::chrono::milliseconds wait,
                                        const Signals& signals, Progress& progress);
  Result<std::optional<int>> settle(const Signals& signals, Progress& progress);
  Result<std::string> first_device() const;

  Session session_;
  PlaceOptions options_;
  std::filesystem::path runtime_folder_;
  std::vector<DeviceUsage> usage_;
  v1::GetStatusResponse lent_;          ///< UUIDs alone
  std::optional<DeviceChoice> choice_;  ///< any of several devices would do
  std::string device_;
  std::uint64_t job_ = 0;
  std::optional<Bytes> limit_;
};

}  // namespace gpumem::cli
