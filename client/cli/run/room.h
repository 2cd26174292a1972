#pragma once
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "client/cli/run/broker_session.h"
#include "client/cli/run/progress.h"
#include "client/cli/run/signals.h"
#include "gpumem/bytes.h"

namespace gpumem::cli {

/// Prefix of the label of a session that waits to reserve memory.
inline constexpr const char* kReserveLabel = "gpumem reserve";

struct RoomOptions {
  std::filesystem::path runtime_folder;
  std::string device;  ///< UUID
  Bytes bytes;
  std::chrono::milliseconds wait{0};  ///< in all; 0: not at all
  std::chrono::steady_clock::time_point until{};
};

/// A place in front of the line, or the signal that has ended the waiting.
struct Room {
  std::optional<int> signal{};
  std::unique_ptr<BrokerSession>
      place{};  ///< the session that keeps the place; end it when it has been taken
};

/// Waits until the tenant's limit, and the part of the device that the broker does not own, have room for
/// `bytes` that are taken past the broker. First come, first served among those of a tenant that wait so.
/// Errors  kInvalidArgument (there can never be room), kResourceExhausted (no room, and no time to wait),
///         kDeadlineExceeded (waited in vain), kUnavailable.   Blocks.
Result<Room> wait_for_room(const RoomOptions& options, const Signals& signals, Progress& progress);

}  // namespace gpumem::cli
