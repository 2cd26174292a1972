#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "daemon/core/memory/job.h"
#include "daemon/host/driver/extent_source.h"
#include "daemon/host/limits/connection_limits.h"
#include "daemon/host/state/passed_descriptors.h"

namespace gpumem::host {

/// A job with the extents that it destroys. They have no descriptors if their holder keeps these until the
/// proof of the step has succeeded.
struct DriverJob {
  core::Job job;
  std::vector<std::vector<HeldExtent>> destroy;  ///< one list a step
};
struct DriverResult {
  core::JobResult result;
  std::vector<HeldExtent> created;
  std::vector<LeaseId> destroyed;  ///< leases of steps with a proof that the source has not refused
  std::string last_error;          ///< of the driver, if anything failed
};

/// Runs the jobs of one device, each in its turn, on a thread of its own, since driver calls block. No extent
/// is made whose descriptor is one of the last, which administrators need to connect. Also tells the store of
/// descriptors, which forgets memory before that is destroyed.
class DeviceWorker {
 public:
  using Done = std::function<void(DriverResult)>;
  struct Options {
    std::unique_ptr<ExtentSource> source;
    const DescriptorStore* store = nullptr;  ///< outlives the worker; null: there is none
    Done done;                               ///< is called on the worker's thread
  };

  explicit DeviceWorker(Options options);
  /// Finishes the job under way; drops the rest.
  ~DeviceWorker();
  DeviceWorker(const DeviceWorker&) = delete;
  DeviceWorker& operator=(const DeviceWorker&) = delete;

  /// Queues all of `jobs` before an ordered one starts: a job may free the memory that the next one
  /// allocates. The worker that sleeps sleeps on until wake(). Threads  any; does not block.
  void queue(std::vector<DriverJob> jobs);
  void wake() { wake_.notify_one(); }
  /// A request waits for the job: core::JobQueue::hurry(). Likewise.
  void hurry(core::JobId job);
  /// As ExtentSource::adopt, before the jobs that are queued later. Likewise.
  void adopt(const core::Extent& extent, int descriptor);
  /// As ExtentSource::note_holder, likewise.
  void note_holder(LeaseId lease, ProcessHandle process);
  /// Has the store keep the descriptor, before it does what it is told later. Threads  any; does not block.
  void keep(LeaseId lease, UniqueFd descriptor);
  /// Has the store forget what it keeps for the leases. Likewise.
  void forget(std::vector<LeaseId> leases);

 private:
  struct Keep {
    LeaseId lease;
    UniqueFd descriptor;
  };
  struct Adopted {
    core::Extent extent;
    int descriptor;
  };
  struct Holder {
    LeaseId lease;
    ProcessHandle process;
  };
  using Task = std::variant<DriverJob, Keep, std::vector<LeaseId>, Adopted, Holder>;

  void work();
  void add(core::Job::Turn turn, Task task);
  std::optional<Task> next_task();
  void do_what_cannot_wait();
  void carry_out(DriverJob job);
  void carry_out(const Keep& keep) const;
  void carry_out(const Adopted& adopted) { options_.source->adopt(adopted.extent, adopted.descriptor); }
  void carry_out(Holder holder) { options_.source->note_holder(holder.lease, std::move(holder.process)); }
  void carry_out(std::vector<LeaseId> leases);
  void forget_stored(const DriverJob& job);
  void carry_out(const core::Job::Step& step, std::vector<HeldExtent> destroy, DriverResult& result);
  void create_all(const core::Job::Step& step, DriverResult& result);
  bool create(const core::Extent& extent, DriverResult& result);
  std::optional<Bytes> room_beside(Bytes kept_free);

  const Options options_;
  const DescriptorBudget budget_ = DescriptorBudget::of_process();
  Mutex mutex_;
  Condition wake_;
  core::JobQueue<Task> tasks_ GPUMEM_GUARDED_BY(mutex_);
  bool stopping_ GPUMEM_GUARDED_BY(mutex_) = false;
  std::vector<LeaseId> unforgotten_;  ///< the worker's thread's: what the store could not be told to forget
  std::thread thread_;
};

}  // namespace gpumem::host
