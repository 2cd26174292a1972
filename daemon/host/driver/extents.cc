#include "daemon/host/driver/extents.h"

#include <algorithm>
#include <bit>
#include <boost/asio/post.hpp>

#include "base/check.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "daemon/host/driver/driver_source.h"
#include "daemon/host/driver/host_driver_source.h"
#include "daemon/host/driver/host_source.h"

namespace gpumem::host {
namespace {

constexpr auto kUntilKept = std::chrono::seconds(1);

Result<std::unique_ptr<ExtentSource>> make_source(const core::DevicePolicy& policy,
                                                  const Extents::Options& options) {
  using Source = std::unique_ptr<ExtentSource>;
  if (policy.is_host() && options.host_nodes)
    return Source(std::make_unique<HostDriverSource>(*options.driver, *options.host_nodes));
  if (policy.is_host()) return Source(std::make_unique<HostSource>());
  auto uuid = cuda::parse_device_uuid(policy.uuid);
  if (!uuid) return uuid.error();
  auto device = options.driver->find(*uuid);
  if (!device) return device.error();
  const auto types =
      policy.no_fabric.empty() ? cuda::HandleTypes::kDescriptorAndFabric : cuda::HandleTypes::kDescriptor;
  return Source(std::make_unique<DriverSource>(*options.driver, **device, types, options.nvml));
}

// Processes that have ended go whenever the list has doubled.
void add_holder(std::vector<ProcessHandle>& holders, ProcessHandle process) {
  if (std::ranges::find(holders, process) != holders.end()) return;
  constexpr std::size_t kFew = 8;
  if (holders.size() >= kFew && std::has_single_bit(holders.size()))
    std::erase_if(holders, [](const ProcessHandle& one) { return has_ended(one->get()); });
  holders.push_back(std::move(process));
}

}  // namespace

Result<std::unique_ptr<Extents>> Extents::create(boost::asio::io_context& loop, Options options) {
  std::unique_ptr<Extents> extents(new Extents(loop, options));
  for (const core::DevicePolicy& policy : options.devices) {
    auto source = make_source(policy, options);
    if (!source) return source.error();
    DeviceWorker::Options of_worker{.source = std::move(*source), .store = options.store, .done = {}};
    of_worker.done = [self = extents.get()](DriverResult result) {
      auto shared = std::make_shared<DriverResult>(std::move(result));
      boost::asio::post(self->loop_, [self, shared] { self->take_in(std::move(*shared)); });
    };
    extents->workers_.push_back(std::make_unique<DeviceWorker>(std::move(of_worker)));
    const Kind host = options.host_nodes ? Kind::kHostOfDriver : Kind::kHostFiles;
    extents->kinds_.push_back(policy.is_host() ? host : Kind::kGpu);
  }
  return extents;
}

void Extents::run(core::DeviceIndex device, std::vector<core::Job> jobs) {
  std::vector<DriverJob> work;
  work.reserve(jobs.size());
  for (core::Job& job : jobs) work.push_back(with_extents(std::move(job)));
  workers_[device]->queue(std::move(work));
  to_wake_.push_back(device);
}

void Extents::begin_jobs() {
  for (const core::DeviceIndex device : to_wake_) workers_[device]->wake();
  to_wake_.clear();
}

DriverJob Extents::with_extents(core::Job job) {
  DriverJob work{std::move(job), {}};
  for (const core::Job::Step& step : work.job.steps) work.destroy.push_back(take_out(step, work.job.device));
  return work;
}

// The extents that the step destroys; of returned files of the host store the names alone.
std::vector<HeldExtent> Extents::take_out(const core::Job::Step& step, core::DeviceIndex device) {
  std::vector<HeldExtent> taken;
  for (const ExtentId id : step.destroy) {
    const auto held = held_.find(id);
    GPUMEM_CHECK(held != held_.end(), "only what is held is destroyed");
    if (kinds_[device] == Kind::kHostFiles && step.proof) {
      held->second.lease = step.proof->lease;
      held->second.is_returned = true;
      returned_files_.emplace(step.proof->lease, id);
      continue;
    }
    stored_.erase(id);
    places_.free(id);
    taken.push_back(std::move(held->second));
    held_.erase(held);
  }
  const auto file = step.proof ? returned_files_.find(step.proof->lease) : returned_files_.end();
  if (file != returned_files_.end()) taken.push_back({held_.at(file->second).extent, {}, {}});
  return taken;
}

// The file is proved free, and has no bytes any more.
void Extents::drop_file(LeaseId lease, core::DeviceIndex device) {
  const auto file = returned_files_.extract(lease);
  if (file.empty()) return;
  const auto held = held_.extract(file.mapped());
  stored_.erase(file.mapped());
  places_.free(file.mapped());
  if (held.mapped().stored) workers_[device]->forget({lease});
}

void Extents::lent(ExtentId id, LeaseId lease, core::DeviceIndex device, bool is_private) {
  const auto held = held_.find(id);
  if (held == held_.end() || held->second.is_returned) return;  // the extent was returned at once
  held->second.lease = lease;
  held->second.is_of_host_driver = kinds_[device] == Kind::kHostOfDriver;
  if (kinds_[device] == Kind::kHostFiles) {
    held->second.is_shared_file = seal_host_file(held->second.descriptor.get(), is_private);
  }
  keep_soon(id, device);
}

void Extents::region_kept(ExtentId id, core::DeviceIndex device) { keep_soon(id, device); }

void Extents::keep_soon(ExtentId id, core::DeviceIndex device) {
  if (store_ == nullptr) return;
  recent_.push_back({std::chrono::steady_clock::now(), id, device});
  if (recent_.size() == 1) keep_next();
}

void Extents::adopt(core::Extent extent, LeaseId lease, core::DeviceIndex device, KeptDescriptor descriptor) {
  HeldExtent held{extent, {}, std::move(descriptor.fd)};
  held.lease = lease;
  held.is_of_host_driver = kinds_[device] == Kind::kHostOfDriver;
  held.is_shared_file = kinds_[device] == Kind::kHostFiles && is_shared_host_file(held.descriptor.get());
  held.stored = descriptor.stored && store_ != nullptr;
  const bool is_stored = held.stored;
  const auto adopted = held_.emplace(extent.id, std::move(held)).first;
  workers_[device]->adopt(extent, adopted->second.descriptor.get());
  if (!is_stored) return keep_soon(extent.id, device);
  stored_.emplace(extent.id, device);
  static_cast<void>(take_place(adopted->second));
}

void Extents::forget(std::map<LeaseId, KeptDescriptor> descriptors) {
  std::vector<LeaseId> leases;
  for (const auto& [lease, descriptor] : descriptors)
    if (descriptor.stored) leases.push_back(lease);
  if (store_ != nullptr && !leases.empty() && !workers_.empty()) workers_.front()->forget(std::move(leases));
}

NamedDescriptors Extents::all_lent() const {
  NamedDescriptors all;
  for (const auto& [id, held] : held_)
    if (held.lease) all.push_back({name_of(held.lease), duplicate_of(held.descriptor.get()), held.stored});
  return all;
}

void Extents::keep_next() {
  if (recent_.empty()) return;
  keeping_.expires_at(recent_.front().since + kUntilKept);
  keeping_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    const auto now = std::chrono::steady_clock::now();
    while (!recent_.empty() && recent_.front().since + kUntilKept <= now) {
      keep(recent_.front());
      recent_.pop_front();
    }
    keep_next();
  });
}

void Extents::keep(const Recent& one) {
  const auto held = held_.find(one.extent);
  if (held == held_.end() || !held->second.lease) return;
  UniqueFd duplicate = duplicate_of(held->second.descriptor.get());
  if (!duplicate.valid() || !take_place(held->second) || held->second.stored) return;
  held->second.stored = true;
  stored_.emplace(one.extent, one.device);
  workers_[one.device]->keep(held->second.lease, std::move(duplicate));
}

// Whether it has a place; who loses one for it is forgotten.
bool Extents::take_place(const HeldExtent& held) {
  const auto standing = standing_of_(held.lease);
  if (!standing) return held.stored;
  const StorePlaces::Outcome outcome = places_.take(held.extent.id, *standing);
  if (!outcome.loser) return outcome.has_place;
  const auto stored = stored_.extract(*outcome.loser);
  HeldExtent& loser = held_.at(*outcome.loser);
  loser.stored = false;
  workers_[stored.mapped()]->forget({loser.lease});
  return true;
}

void Extents::note_holder(LeaseId lease, std::optional<ExtentId> extent, core::DeviceIndex device,
                          ProcessHandle process) {
  if (kinds_[device] != Kind::kHostOfDriver) return;
  if (!process) process = std::make_shared<const UniqueFd>();  // no descriptor is left to watch it
  const auto held = extent ? held_.find(*extent) : held_.end();
  if (held == held_.end()) return workers_[device]->note_holder(lease, std::move(process));
  add_holder(held->second.holders, std::move(process));
}

SentDescriptor Extents::descriptor(ExtentId id, bool read_only, ProcessWatch& client) {
  const auto held = held_.find(id);
  if (held == held_.end() || held->second.is_returned) return {};
  const int own = held->second.descriptor.get();
  if (held->second.is_of_host_driver) {
    ProcessHandle process = client.handle();
    if (!process) return {.is_held = true};
    add_holder(held->second.holders, std::move(process));
  }
  if (!held->second.is_shared_file) return {.is_held = true, .number = own};
  UniqueFd opened = open_again(own, read_only);
  const int number = opened.get();
  return {true, number, std::move(opened)};
}

std::optional<cuda::FabricHandle> Extents::fabric_handle(ExtentId id) const {
  const auto held = held_.find(id);
  GPUMEM_CHECK(held != held_.end(), "only what is held is given out");
  return held->second.fabric;
}

// A GPU's driver often lacks memory. A file of memory is refused for another reason.
void Extents::note_failure(const DriverResult& result) {
  spdlog::debug("device {}: {} extents could not be created, the last because {}", result.result.device,
                result.result.failed.size(), result.last_error);
  if (kinds_[result.result.device] == Kind::kGpu || result.last_error == last_refusal_) return;
  last_refusal_ = result.last_error;
  spdlog::warn("the host store gets no memory: {}", last_refusal_);
}

void Extents::take_in(DriverResult result) {
  crash_at(CrashPoint::kExtentKnown);
  for (HeldExtent& extent : result.created) held_.emplace(extent.extent.id, std::move(extent));
  for (const LeaseId lease : result.destroyed) drop_file(lease, result.result.device);
  if (result.result.lacks_files && !std::exchange(has_warned_, true)) {
    spdlog::warn(
        "extents cannot be made, because the broker has no descriptors left for them: raise its limit of "
        "open "
        "files (LimitNOFILE=)");
  }
  if (!result.last_error.empty()) note_failure(result);
  done_(result.result);
}

}  // namespace gpumem::host
