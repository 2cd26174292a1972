#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "daemon/core/words/policy.h"
#include "daemon/host/driver/device_worker.h"
#include "daemon/host/driver/host_file.h"
#include "daemon/host/driver/store_places.h"
#include "daemon/host/state/passed_descriptors.h"
#include "daemon/host/system/process.h"

namespace gpumem::host {

/// Every extent in the broker's hands, and the workers that make and destroy them. Extents that have been
/// lent for a second are also kept in the store, if there is one, for the next broker, as far as StorePlaces
/// has places. Short loans are not. A returned file of the host store stays here, and in the store, until it
/// is proved free: only with its descriptor can the next broker tell. Threads  the loop's.
class Extents {
 public:
  using Done = std::function<void(const core::JobResult&)>;

  struct Options {
    const cuda::Driver* driver = nullptr;
    const cuda::Nvml* nvml = nullptr;         ///< outlives it; null: there is none
    std::vector<core::DevicePolicy> devices;  ///< of the policy, in its order
    /// Of a host store whose memory the driver allocates: the NUMA nodes that it is on. None: it is files.
    std::optional<std::vector<int>> host_nodes{};
    const DescriptorStore* store = nullptr;  ///< outlives it; null: there is none
    Done done;                               ///< is called on the loop's thread
    /// The standing of a lease's extent; none: there is no such lease. Called on the loop's thread.
    std::function<std::optional<StorePlaces::Standing>(LeaseId)> standing_of;
  };

  /// Errors  kNotFound: a device of the policy that the driver does not show.
  static Result<std::unique_ptr<Extents>> create(boost::asio::io_context& loop, Options options);

  /// Takes the extents out that the jobs destroy. The jobs begin with begin_jobs() at the latest.
  void run(core::DeviceIndex device, std::vector<core::Job> jobs);
  /// Wakes the workers that have jobs. After the answers to clients, which would else compete with them for
  /// the processors.
  void begin_jobs();
  void hurry(core::DeviceIndex device, core::JobId job) { workers_[device]->hurry(job); }
  /// The extent is on its way to a client, for a private slice or another one.
  void lent(ExtentId id, LeaseId lease, core::DeviceIndex device, bool is_private);
  /// A kept region lies in the extent from now on, so it is first among those that are stored.
  void region_kept(ExtentId id, core::DeviceIndex device);
  /// An extent that the broker before has lent, by the number that the core gives it. The broker before has
  /// told its size.
  void adopt(core::Extent extent, LeaseId lease, core::DeviceIndex device, KeptDescriptor descriptor);
  /// The process may have memory of the lease from the broker before, if that is the driver's memory of the
  /// host. After adopt().
  void note_holder(LeaseId lease, std::optional<ExtentId> extent, core::DeviceIndex device,
                   ProcessHandle process);
  /// Descriptors of leases that nobody has any more are not kept any longer.
  void forget(std::map<LeaseId, KeptDescriptor> descriptors);
  /// Of all that is lent: duplicates, under the names of the leases.
  NamedDescriptors all_lent() const;
  /// The descriptor to send to a client: the extent's own, or of a shared file of the host store one that is
  /// opened for it, for reading alone if `read_only`. None: there is no such extent (any more).
  /// `client`  of the process that it is sent to.
  SentDescriptor descriptor(ExtentId id, bool read_only, ProcessWatch& client);
  /// Its fabric handle; none: the device has none, or the driver refused.
  std::optional<cuda::FabricHandle> fabric_handle(ExtentId id) const;

 private:
  // On loan since then, and not kept yet.
  struct Recent {
    core::TimePoint since;
    ExtentId extent;
    core::DeviceIndex device;
  };

  Extents(boost::asio::io_context& loop, Options& options)
      : loop_(loop),
        store_(options.store),
        done_(std::move(options.done)),
        standing_of_(std::move(options.standing_of)),
        keeping_(loop) {}
  DriverJob with_extents(core::Job job);
  std::vector<HeldExtent> take_out(const core::Job::Step& step, core::DeviceIndex device);
  void take_in(DriverResult result);
  void note_failure(const DriverResult& result);
  void drop_file(LeaseId lease, core::DeviceIndex device);
  void keep_next();
  void keep(const Recent& one);
  void keep_soon(ExtentId id, core::DeviceIndex device);
  bool take_place(const HeldExtent& held);

  boost::asio::io_context& loop_;
  const DescriptorStore* store_;
  Done done_;
  /// By device.
  enum class Kind { kGpu, kHostFiles, kHostOfDriver };
  std::vector<Kind> kinds_;
  const std::function<std::optional<StorePlaces::Standing>(LeaseId)> standing_of_;
  std::unordered_map<ExtentId, HeldExtent> held_;
  std::unordered_map<LeaseId, ExtentId> returned_files_;  ///< of the host store, not proved free yet
  std::deque<Recent> recent_;                             ///< oldest first
  boost::asio::steady_timer keeping_;
  // systemd passes all names in one variable, which the kernel lets be 128 KiB. FileDescriptorStoreMax= is a
  // little more than this.
  static constexpr std::size_t kMostStored = 2000;
  StorePlaces places_{kMostStored};
  std::unordered_map<ExtentId, core::DeviceIndex> stored_;
  bool has_warned_ = false;                             ///< of too few descriptors
  std::string last_refusal_;                            ///< of the host store's memory, as last logged
  std::vector<core::DeviceIndex> to_wake_;              ///< by begin_jobs()
  std::vector<std::unique_ptr<DeviceWorker>> workers_;  // last: they end before what they post to goes
};

}  // namespace gpumem::host
