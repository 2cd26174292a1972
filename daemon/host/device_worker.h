#pragma once
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "cuda/memory.h"
#include "daemon/core/store.h"

namespace gpumem::host {

/// An extent in the broker's hands: never mapped. The descriptor is what clients are sent.
struct HeldExtent {
  core::Extent extent;
  cuda::Allocation allocation;
  UniqueFd descriptor;
  std::optional<cuda::FabricHandle> fabric{};  ///< where the device has them, unless the driver refused
};

/// A job with the extents that it destroys.
struct DriverJob {
  core::Job job;
  std::vector<std::vector<HeldExtent>> destroy;  ///< one list a step
};
struct DriverResult {
  core::JobResult result;
  std::vector<HeldExtent> created;
  std::string last_error;  ///< of the driver, if anything failed
};

/// Runs the jobs of one device in order on a thread of its own, since driver calls block.
class DeviceWorker {
 public:
  using Done = std::function<void(DriverResult)>;

  /// `done`  is called on the worker's thread.
  DeviceWorker(const cuda::Driver& driver, int ordinal, cuda::HandleTypes types, Done done);
  /// Finishes the job under way; drops the rest.
  ~DeviceWorker();
  DeviceWorker(const DeviceWorker&) = delete;
  DeviceWorker& operator=(const DeviceWorker&) = delete;

  /// Threads  any; does not block.
  void run(DriverJob job);

 private:
  void work();
  std::optional<DriverJob> next_job();
  DriverResult carry_out(DriverJob job) const;
  Result<HeldExtent> create(const core::Extent& extent) const;
  Result<cuda::Allocation> allocate(Bytes size) const;

  const cuda::Driver& driver_;
  int ordinal_;
  cuda::HandleTypes types_;
  Done done_;
  Mutex mutex_;
  Condition wake_;
  std::deque<DriverJob> jobs_ GPUMEM_GUARDED_BY(mutex_);
  bool stopping_ GPUMEM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gpumem::host
