#include "daemon/host/driver/device_worker.h"

#include <utility>

#include "base/crash_point.h"
#include "base/log.h"

namespace gpumem::host {

DeviceWorker::DeviceWorker(Options options) : options_(std::move(options)), thread_([this] { work(); }) {}

DeviceWorker::~DeviceWorker() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void DeviceWorker::queue(std::vector<DriverJob> jobs) {
  const MutexLock lock(mutex_);
  for (DriverJob& job : jobs) {
    const core::Job::Turn turn = job.job.turn;
    tasks_.push(turn, std::move(job));
  }
}

void DeviceWorker::hurry(core::JobId job) {
  const MutexLock lock(mutex_);
  tasks_.hurry([job](const Task& task) {
    const auto* const one = std::get_if<DriverJob>(&task);
    return one != nullptr && one->job.id == job;
  });
}

void DeviceWorker::keep(LeaseId lease, UniqueFd descriptor) {
  add(core::Job::Turn::kInOrder, Keep{lease, std::move(descriptor)});
}

void DeviceWorker::forget(std::vector<LeaseId> leases) { add(core::Job::Turn::kInOrder, std::move(leases)); }

void DeviceWorker::adopt(const core::Extent& extent, int descriptor) {
  add(core::Job::Turn::kNow, Adopted{extent, descriptor});
}

void DeviceWorker::note_holder(LeaseId lease, ProcessHandle process) {
  add(core::Job::Turn::kNow, Holder{lease, std::move(process)});
}

void DeviceWorker::add(core::Job::Turn turn, Task task) {
  {
    const MutexLock lock(mutex_);
    tasks_.push(turn, std::move(task));
  }
  wake_.notify_one();
}

void DeviceWorker::work() {
  while (auto task = next_task()) std::visit([this](auto& one) { carry_out(std::move(one)); }, *task);
}

// Waits for it; nothing, once the worker is to stop.
std::optional<DeviceWorker::Task> DeviceWorker::next_task() {
  const MutexLock lock(mutex_);
  while (!stopping_ && tasks_.empty()) wake_.wait(mutex_);
  if (stopping_) return std::nullopt;
  return tasks_.pop();
}

void DeviceWorker::carry_out(const Keep& keep) const {
  if (fails_at(CrashPoint::kStoreKeep)) return;
  options_.store->keep(keep.lease, keep.descriptor.get());
  crash_at(CrashPoint::kStoreKept);
}

void DeviceWorker::carry_out(std::vector<LeaseId> leases) {
  const bool told = !fails_at(CrashPoint::kStoreForget) && options_.store->forget(leases);
  if (told) return crash_at(CrashPoint::kStoreForgotten);
  spdlog::warn("the service manager could not be told to let go of {} descriptors; it is told again",
               leases.size());
  unforgotten_.insert(unforgotten_.end(), leases.begin(), leases.end());
}

// Memory stays allocated while the store keeps a descriptor of it, so the store forgets first. Leases that it
// could not be told of earlier are sent again.
void DeviceWorker::forget_stored(const DriverJob& job) {
  std::vector<LeaseId> stored = std::move(unforgotten_);
  for (const std::vector<HeldExtent>& step : job.destroy)
    for (const HeldExtent& extent : step)
      if (extent.stored) stored.push_back(extent.lease);
  unforgotten_.clear();
  if (!stored.empty()) carry_out(std::move(stored));
}

// Runs between two steps of an ordered job. Each unordered job has one step.
void DeviceWorker::do_what_cannot_wait() {
  const auto next = [this]() -> std::optional<Task> {
    const MutexLock lock(mutex_);
    return stopping_ ? std::nullopt : tasks_.pop_before_those_in_order();
  };
  while (auto task = next()) carry_out(std::move(std::get<DriverJob>(*task)));
}

void DeviceWorker::carry_out(DriverJob job) {
  forget_stored(job);
  DriverResult result;
  result.result.id = job.job.id;
  result.result.device = job.job.device;
  for (std::size_t i = 0; i < job.job.steps.size(); ++i) {
    if (i != 0) do_what_cannot_wait();
    carry_out(job.job.steps[i], std::move(job.destroy[i]), result);
  }
  options_.done(std::move(result));
}

void DeviceWorker::carry_out(const core::Job::Step& step, std::vector<HeldExtent> destroy,
                             DriverResult& result) {
  if (!destroy.empty()) crash_at(CrashPoint::kExtentDestroy);
  const bool is_back = options_.source->destroy(std::move(destroy), step.proof);
  if (!step.destroy.empty()) crash_at(CrashPoint::kExtentDestroyed);
  if (!is_back) {
    result.result.unproved.push_back(step.proof->lease);
    for (const core::Extent& extent : step.create) result.result.failed.push_back(extent.id);
    return;
  }
  if (step.proof) result.destroyed.push_back(step.proof->lease);
  for (const auto& member : step.group) result.destroyed.push_back(member.lease);
  const std::size_t failed = result.result.failed.size();
  create_all(step, result);
  const bool all = result.result.failed.size() == failed;
  options_.source->note_created(step.proof, all);
  for (const auto& [lease, alone] : step.group) {
    const bool is_proved = all || create(alone, result);
    options_.source->note_created(core::Job::Step::Proof{lease, alone.size}, is_proved);
  }
}

void DeviceWorker::create_all(const core::Job::Step& step, DriverResult& result) {
  std::optional<Bytes>& room = result.result.room;
  if (step.keep_free && step.create.empty()) room = room_beside(*step.keep_free);
  for (const core::Extent& extent : step.create) {
    if (step.keep_free) room = room_beside(*step.keep_free);
    if (step.keep_free && room && *room < extent.size) {  // without a last_error: the driver was not asked
      result.result.failed.push_back(extent.id);
      continue;
    }
    if (create(extent, result) && step.keep_free && room) *room -= extent.size;
  }
}

bool DeviceWorker::create(const core::Extent& extent, DriverResult& result) {
  auto created = options_.source->create(extent);
  if (created) crash_at(CrashPoint::kExtentCreated);
  if (created && budget_.is_reserved_from_extents(created->descriptor.get())) {
    std::vector<HeldExtent> unwanted;
    unwanted.push_back(std::move(*created));
    static_cast<void>(options_.source->destroy(std::move(unwanted), {}));
    created = Error{Code::kResourceExhausted, "the broker has no descriptors left for extents"};
    result.result.lacks_files = true;
  }
  if (!created) {
    result.result.failed.push_back(extent.id);
    result.last_error = created.error().message;
    return false;
  }
  result.created.push_back(std::move(*created));
  return true;
}

std::optional<Bytes> DeviceWorker::room_beside(Bytes kept_free) {
  const auto memory = options_.source->memory();
  return memory ? std::optional(memory->free.minus(kept_free)) : std::nullopt;
}

}  // namespace gpumem::host
