#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "client/cli/run/line/broker_session.h"
#include "client/cli/run/program/signals.h"
#include "client/cli/views/progress.h"
#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::cli {

/// How waiting has ended: with the memory to be had, or by a signal to this process.
struct Waited {
  std::optional<int> signal{};
  std::unique_ptr<BrokerSession> session{};  ///< keeps the place in the queue until it ends
};

/// Prefix of the label of a session that waits to reserve memory.
inline constexpr const char* kReserveLabel = "gpumem reserve";

struct RoomWaitOptions {
  std::filesystem::path runtime_folder;
  std::string device;  ///< UUID
  std::string name;    ///< of the device, for people
  Bytes bytes;
  std::chrono::milliseconds wait{0};  ///< in all; 0: not at all
  std::chrono::steady_clock::time_point until{};
};

/// Waits until the tenant's limit, and the part of the device that the broker does not own, have room for
/// `bytes` that are taken past the broker. First come, first served among those of a tenant that wait so.
/// Errors  kInvalidArgument (there can never be room), kResourceExhausted (no room, and no time to wait),
///         kDeadlineExceeded (waited in vain), kUnavailable.   Blocks.
Result<Waited> wait_for_room(const RoomWaitOptions& options, const Signals& signals, Progress& progress);

}  // namespace gpumem::cli
