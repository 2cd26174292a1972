#include "daemon/host/driver/reconciler.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/log.h"
#include "base/system/subordinate_ids.h"
#include "daemon/core/words/refusals.h"
#include "daemon/host/system/displays.h"
#include "daemon/host/system/process.h"

namespace gpumem::host {

Result<void> LookQueue::add(core::Asker asker, Then then, Clock::time_point now) {
  if (waiting_ >= kMost)
    return core::refusal(core::Bound::kLooks, "too many wait for a look at the devices; try again later");
  User& user = users_.try_emplace(asker.account, User{now, {}}).first->second;
  if (user.waiting.size() >= kMostOfAUser) {
    return core::refusal(core::Bound::kLooks,
                         "this user has " + std::to_string(user.waiting.size()) +
                             " calls that wait for a look at the devices; wait for their answers");
  }
  if (asker.admin) user.turn = std::min(user.turn, now);
  user.waiting.push_back(std::move(then));
  ++waiting_;
  return {};
}

std::optional<LookQueue::Clock::time_point> LookQueue::next() const {
  std::optional<Clock::time_point> first;
  for (const auto& [account, user] : users_) {
    if (!user.waiting.empty() && (!first || user.turn < *first)) first = user.turn;
  }
  return first;
}

std::vector<LookQueue::Then> LookQueue::take_due(Clock::time_point now) {
  std::vector<Then> due;
  for (auto entry = users_.begin(); entry != users_.end();) {
    User& user = entry->second;
    if (user.turn <= now && user.waiting.empty()) {
      entry = users_.erase(entry);
      continue;
    }
    if (user.turn <= now) {
      waiting_ -= user.waiting.size();
      std::move(user.waiting.begin(), user.waiting.end(), std::back_inserter(due));
      user.waiting.clear();
      user.turn = now + kPause;
    }
    ++entry;
  }
  return due;
}

Reconciler::Reconciler(core::Executor& executor, Options options)
    : executor_(executor),
      driver_folder_(std::move(options.driver_folder)),
      devices_(std::move(options.devices)),
      pods_(std::move(options.pods)),
      subordinates_(options.subordinates),
      runtime_folder_(std::move(options.runtime_folder)),
      display_folder_(std::move(options.display_folder)),
      pci_addresses_(std::move(options.pci_addresses)),
      started_(start_time(::getpid()).value_or(0)),
      problems_(devices_.size()),
      period_(options.period),
      last_(Clock::now() - kLeastPause) {
  static_cast<void>(open());  // by now, so that what the process uses does not grow once it serves
  thread_ = std::thread([this] { work(); });
}

Reconciler::~Reconciler() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

Result<void> Reconciler::look(core::Asker asker, Then then) {
  {
    const MutexLock lock(mutex_);
    if (auto added = asked_.add(asker, std::move(then), Clock::now()); !added) return added;
  }
  wake_.notify_one();
  return {};
}

void Reconciler::set_period(std::chrono::seconds period) {
  {
    const MutexLock lock(mutex_);
    period_ = period;
  }
  wake_.notify_one();
}

void Reconciler::work() {
  while (auto turn = await_turn()) look_at_all(std::move(*turn));
}

std::optional<Reconciler::Clock::time_point> Reconciler::next_regular() const {
  if (period_ == std::chrono::seconds::zero()) return std::nullopt;
  return last_regular_ ? *last_regular_ + period_ : last_;
}

std::optional<Reconciler::Clock::time_point> Reconciler::next_asked() const {
  const auto due = asked_.next();
  return due ? std::optional(std::max(*due, last_ + kLeastPause)) : std::nullopt;
}

// Waits until it is time to look; nothing if it is time to stop.
std::optional<Reconciler::Turn> Reconciler::await_turn() {
  const MutexLock lock(mutex_);
  while (!stopping_) {
    const Clock::time_point now = Clock::now();
    const auto regular = next_regular(), asked = next_asked();
    Turn turn{.regular = regular && *regular <= now, .asked = {}};
    if (turn.regular || (asked && *asked <= now)) {
      turn.asked = asked_.take_due(now);
      last_ = now;
      if (turn.regular) last_regular_ = now;
      return turn;
    }
    if (regular || asked)
      wake_.wait_until(mutex_, std::min(regular.value_or(Clock::time_point::max()),
                                        asked.value_or(Clock::time_point::max())));
    else
      wake_.wait(mutex_);
  }
  return std::nullopt;
}

void Reconciler::look_at_all(Turn turn) {
  // The core has to know what is lent before the driver is asked.
  executor_.post_and_wait([&](core::Broker& broker, core::TimePoint) {
    for (core::DeviceIndex i = 0; i < devices_.size(); ++i) broker.begin_observation(i);
  });
  left_to_driver_ = LeftToDriver::read(runtime_folder_);
  std::vector<core::Observation> observations;
  for (core::DeviceIndex i = 0; i < devices_.size(); ++i) observations.push_back(observe(i, turn.regular));
  executor_.post([observations = std::move(observations), asked = std::move(turn.asked)](
                     core::Broker& broker, core::TimePoint now) {
    for (const core::Observation& one : observations) broker.observe(one, now);
    for (const Then& then : asked) then(broker, now);
  });
  look_for_displays();
}

void Reconciler::look_for_displays() {
  const auto now = Clock::now();
  if (pci_addresses_.empty() || now < next_displays_) return;
  next_displays_ = now + kDisplayPause;
  const std::set<std::string> cards = cards_with_display(display_folder_);
  std::vector<bool> has_display;
  for (const std::string& address : pci_addresses_) has_display.push_back(cards.contains(address));
  executor_.post([has_display = std::move(has_display)](core::Broker& broker, core::TimePoint at) {
    for (core::DeviceIndex i = 0; i < has_display.size(); ++i) {
      if (!broker.set_display(i, has_display[i], at)) continue;
      spdlog::info("{}: {}", broker.policy().devices[i].uuid,
                   has_display[i] ? "a display is connected; its pool is created on demand from now on"
                                  : "no display is connected any more; its pool is created whole");
    }
  });
}

// The library may be installed, or the driver loaded, while the broker runs.
bool Reconciler::open() {
  if (nvml_) return true;
  auto opened = cuda::Nvml::open(driver_folder_);
  if (opened)
    nvml_ = std::move(*opened);
  else
    no_library_ = opened.error().message + "; it comes with NVIDIA's driver (Debian: libnvidia-ml1)";
  return nvml_ != nullptr;
}

core::Observation Reconciler::observe(core::DeviceIndex device, bool regular) {
  core::Observation observation;
  observation.regular = regular;
  observation.device = device;
  observation.broker_started = started_;
  if (!open()) {
    observation.problem = no_library_;
  } else if (auto asked = ask(devices_[device], observation); !asked) {
    observation.problem = asked.error().message + "; nvidia-smi may tell more";
    nvml_.reset();  // a driver that was loaded anew is found only by a library that is, too
  }
  note_problem(device, observation.problem);
  return observation;
}

// Memory that is allocated or freed between the calls must not look like memory that is booked twice: the
// larger figure counts.
Result<void> Reconciler::ask(const cuda::DeviceUuid& uuid, core::Observation& observation) const {
  const auto before = nvml_->memory(uuid);
  if (!before) return before.error();
  const auto processes = nvml_->processes(uuid);
  if (!processes) return processes.error();
  const auto after = nvml_->memory(uuid);
  if (!after) return after.error();
  const cuda::DeviceMemory& larger = after->used > before->used ? *after : *before;
  observation.used = larger.used;
  observation.total = larger.total;
  observation.free = larger.free;
  for (const cuda::ProcessMemory& one : *processes) add(one, observation);
  return {};
}

void Reconciler::add(const cuda::ProcessMemory& process, core::Observation& observation) const {
  if (process.pid == static_cast<unsigned>(::getpid())) {
    observation.broker = process.used;
    return;
  }
  core::Observation::Process seen;
  seen.used = process.used;
  const bool is_pid = process.pid <= static_cast<unsigned>(std::numeric_limits<pid_t>::max());
  if (is_pid && process.pid != 0) {
    auto found = find_process(process.pid, pods_);
    if (found || found.error().code != Code::kNotFound) seen.pid = process.pid;
    if (found) {
      seen.started = found->started;
      seen.uid = found->uid;
      seen.left_to_driver = left_to_driver_.contains(*found);
      seen.gids = std::move(found->gids);
      seen.command = std::move(found->command);
      seen.pod = std::move(found->in.pod);
      if (subordinates_ != nullptr) seen.owner = subordinates_->owner_of(seen.uid);
    }
  }
  observation.processes.push_back(std::move(seen));
}

void Reconciler::note_problem(core::DeviceIndex device, const std::string& problem) {
  if (std::exchange(problems_[device], problem) == problem) return;
  const std::string uuid = to_string(devices_[device]);
  if (problem.empty())
    spdlog::info("{}: what the driver says is used can be seen again", uuid);
  else
    spdlog::warn("{}: what others use of it is not known: {}", uuid, problem);
}

}  // namespace gpumem::host
