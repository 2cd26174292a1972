#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "daemon/history/event_reader.h"
#include "daemon/history/sample.h"
#include "gpumem/result.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::history {

/// Reads the broker at a socket.
class BrokerReader {
 public:
  explicit BrokerReader(const std::filesystem::path& socket);

  /// All accounts, and how much memory each tenant is charged. Without events.
  /// Errors  kUnavailable: the broker does not answer, or the clock was set meanwhile; kPermissionDenied: it
  /// does
  ///         not let this user read all accounts.   Blocks  some seconds at most.
  Result<Sample> look();
  EventReader& events() { return events_; }

  /// The broker's group of administrators, as it said last. Threads  any.
  std::optional<std::uint32_t> admin_group() const {
    const std::int64_t gid = admin_group_;
    return gid < 0 ? std::nullopt : std::optional(static_cast<std::uint32_t>(gid));
  }

 private:
  Result<v1::ListAccountsResponse> accounts();
  Result<void> read_charged(Sample& sample);

  std::unique_ptr<v1::Monitor::Stub> stub_;
  EventReader events_;
  std::atomic<std::int64_t> admin_group_ = -1;
};

/// The present time and instant, and the run of the machine.
Sample now_of_machine();

}  // namespace gpumem::history
