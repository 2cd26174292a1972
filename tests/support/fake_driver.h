#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "daemon/core/memory/store.h"
#include "daemon/core/memory/use_proofs.h"

namespace gpumem::core {

/// A driver that only counts: each device has so many bytes, an extent takes its size of them for as long
/// as the broker has its handle or any process keeps using it. The host store is a device whose extents are
/// files: the broker keeps a returned one until nobody else has it. A private one has no bytes from then on.
///
/// Invariant  on every device, stolen bytes and extents together are at most its total.
class FakeDriver {
 public:
  explicit FakeDriver(std::vector<Bytes> totals) {
    for (const Bytes total : totals)
      devices_.push_back({.total = total, .used = {}, .stolen = {}, .proofs = {}});
  }

  /// Decides, if set, which creations fail although there is room.
  std::function<bool(const Extent&)> fails;
  /// Whether it tells how much memory is free.
  bool tells_free = true;
  /// By device: memory that it tells as free, and that no extent can have. Default: none.
  std::map<DeviceIndex, Bytes> besides;
  /// The host store. Default: none.
  std::optional<DeviceIndex> host;

  JobResult run(const Job& job) {
    JobResult result{job.id, job.device, {}};
    UseProofs& proofs = devices_[job.device].proofs;
    for (const Job::Step& step : job.steps) {
      if (!take_back(job.device, step)) {
        result.unproved.push_back(step.proof->lease);
        for (const Extent& extent : step.create) result.failed.push_back(extent.id);
        continue;
      }
      if (step.keep_free && step.create.empty() && tells_free)
        result.room = told(job.device).minus(*step.keep_free);
      for (const Extent& extent : step.create) {
        if (step.keep_free && tells_free) result.room = told(job.device).minus(*step.keep_free);
        const bool has_room = !result.room || extent.size <= *result.room;
        if (!has_room || !create(job.device, extent))
          result.failed.push_back(extent.id);
        else if (result.room)
          *result.room -= extent.size;
      }
      if (step.proof && !step.proof->by_use && host != job.device)
        proofs.note_outcome(*step.proof, step.create.empty() || has_handle(step.create.front().id),
                            used(job.device));
      for (const auto& [lease, alone] : step.group) {
        const bool is_proved = has_handle(step.create.front().id) || create(job.device, alone);
        if (!is_proved) result.failed.push_back(alone.id);
        proofs.note_outcome({lease, alone.size}, is_proved, used(job.device));
      }
    }
    return result;
  }

  /// A process imports the extent: from now on destroying it gives nothing back until let_go(), unless it is
  /// a private file.
  void hold(ExtentId id, bool is_private = false) {
    GPUMEM_CHECK(extents_.at(id).handle, "only what exists can be imported");
    extents_.at(id).is_private |= is_private && host == extents_.at(id).device;
    ++extents_.at(id).users;
  }
  void let_go(ExtentId id) {
    Physical& extent = extents_.at(id);
    GPUMEM_CHECK(extent.users > 0, "held before it is let go");
    --extent.users;
    drop_if_unused(id);
  }

  /// The broker's process is gone, and all its handles, except those that somebody has `kept`. What others
  /// use goes on with numbers that are larger by `more`, so that the next broker's are new.
  void lose_broker(std::uint64_t more, const std::set<ExtentId>& kept = {}) {
    const std::map<ExtentId, Physical> all = std::exchange(extents_, {});
    for (Device& device : devices_) device.proofs = {};
    returned_files_.clear();
    for (const auto& [id, extent] : all) {
      const bool handle = kept.contains(id);
      if (extent.users == 0 && !handle)
        devices_[extent.device].used -= extent.size;
      else
        extents_[ExtentId{id.value + more}] = {extent.device, extent.size, handle, extent.users,
                                               extent.is_private};
    }
  }
  /// The next broker calls an extent that was kept by a number of its own.
  void rename(ExtentId before, ExtentId now) {
    GPUMEM_CHECK(has_handle(before) && !extents_.contains(now), "what was kept gets a new number");
    extents_[now] = extents_.extract(before).mapped();
  }

  /// A process past the broker takes up to `bytes` of what is not in use. Answers how many.
  Bytes steal(DeviceIndex device, Bytes bytes) {
    const Bytes taken = std::min(bytes, room(device));
    devices_[device].stolen += taken;
    return taken;
  }
  /// That process gives back everything, or `bytes`.
  void restore(DeviceIndex device) { devices_[device].stolen = {}; }
  void restore(DeviceIndex device, Bytes bytes) { devices_[device].stolen -= bytes; }

  /// Bytes of extents that the broker has handles of.
  Bytes handled(DeviceIndex device) const {
    Bytes sum;
    for (const auto& [id, extent] : extents_) {
      if (extent.handle && extent.device == device) sum += extent.size;
    }
    return sum;
  }
  /// Bytes that no extent uses and steal() has not taken.
  Bytes room(DeviceIndex device) const {
    const Device& one = devices_[device];
    return one.total - one.used - one.stolen;
  }
  /// As the driver tells it.
  std::optional<Bytes> used(DeviceIndex device) const {
    return tells_free ? std::optional(devices_[device].total - room(device)) : std::nullopt;
  }
  bool has_handle(ExtentId id) const {
    const auto found = extents_.find(id);
    return found != extents_.end() && found->second.handle;
  }
  std::uint64_t creations() const { return creations_; }

 private:
  struct Device {
    Bytes total;
    Bytes used;
    Bytes stolen;
    UseProofs proofs;  ///< of the broker's worker
  };
  struct Physical {
    DeviceIndex device = 0;
    Bytes size;
    bool handle = true;
    int users = 0;
    bool is_private = false;  ///< a file that the broker can make shorter
  };

  Bytes told(DeviceIndex device) const {
    const auto more = besides.find(device);
    return room(device) + (more == besides.end() ? Bytes{} : more->second);
  }
  bool create(DeviceIndex device, const Extent& extent) {
    GPUMEM_CHECK(!extents_.contains(extent.id), "an extent's id comes once");
    ++creations_;
    if (extent.size > room(device) || (fails && fails(extent))) return false;
    devices_[device].used += extent.size;
    devices_[device].proofs.note_created(extent.size);
    extents_[extent.id] = {device, extent.size, true, 0};
    return true;
  }
  // Destroys what the step destroys. False: the step has a proof, and it fails.
  bool take_back(DeviceIndex device, const Job::Step& step) {
    if (step.proof && host == device) return free_files(step.proof->lease, step.destroy);
    UseProofs& proofs = devices_[device].proofs;
    proofs.begin(used(device));
    for (const ExtentId id : step.destroy) destroy(id);
    const bool by_use = step.proof && step.proof->by_use;
    return !by_use || proofs.end(*step.proof, !step.destroy.empty(), used(device));
  }
  bool free_files(LeaseId lease, const std::vector<ExtentId>& more) {
    std::vector<ExtentId>& files = returned_files_[lease];
    files.insert(files.end(), more.begin(), more.end());
    std::erase_if(files, [this](ExtentId id) {
      const Physical& file = extents_.at(id);
      if (file.users != 0 && !file.is_private) return false;
      destroy(id);
      return true;
    });
    const bool are_free = files.empty();
    if (are_free) returned_files_.erase(lease);
    return are_free;
  }
  void destroy(ExtentId id) {
    GPUMEM_CHECK(has_handle(id), "only what exists can be destroyed");
    Physical& extent = extents_.at(id);
    extent.handle = false;
    devices_[extent.device].proofs.note_destroyed(extent.size);
    if (extent.is_private) devices_[extent.device].used -= std::exchange(extent.size, {});
    drop_if_unused(id);
  }
  void drop_if_unused(ExtentId id) {
    const Physical& extent = extents_.at(id);
    if (extent.handle || extent.users != 0) return;
    devices_[extent.device].used -= extent.size;
    extents_.erase(id);
  }

  std::vector<Device> devices_;
  std::map<ExtentId, Physical> extents_;
  std::map<LeaseId, std::vector<ExtentId>> returned_files_;  ///< by lease: not free yet
  std::uint64_t creations_ = 0;
};

}  // namespace gpumem::core
