#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/memory.h"
#include "daemon/core/store.h"

namespace gpumem::host {

/// An extent in the broker's hands: never mapped. The descriptor is what clients are sent.
struct HeldExtent {
  core::Extent extent;
  cuda::Allocation allocation;
  UniqueFd descriptor;
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
  DeviceWorker(const cuda::Driver& driver, int ordinal, Done done);
  /// Finishes the job under way; drops the rest.
  ~DeviceWorker();
  DeviceWorker(const DeviceWorker&) = delete;
  DeviceWorker& operator=(const DeviceWorker&) = delete;

  /// Threads  any; does not block.
  void run(DriverJob job);

 private:
  void work();
  DriverResult carry_out(DriverJob job) const;
  Result<HeldExtent> create(const core::Extent& extent) const;

  const cuda::Driver& driver_;
  int ordinal_;
  Done done_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<DriverJob> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gpumem::host
