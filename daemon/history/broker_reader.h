#pragma once
#include <filesystem>
#include <memory>

#include "base/mutex.h"
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

  /// As the broker said last. Threads  any.
  Rights rights() const {
    const MutexLock lock(mutex_);
    return rights_;
  }

 private:
  Result<v1::ListAccountsResponse> accounts();
  Result<void> read_charged(Sample& sample);

  std::unique_ptr<v1::Monitor::Stub> stub_;
  EventReader events_;
  mutable Mutex mutex_;
  Rights rights_ GPUMEM_GUARDED_BY(mutex_);
};

/// The present time and instant, and the run of the machine.
Sample now_of_machine();

}  // namespace gpumem::history
