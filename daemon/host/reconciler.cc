#include "daemon/host/reconciler.h"

#include <unistd.h>

#include <algorithm>
#include <future>
#include <limits>
#include <utility>

#include "base/log.h"
#include "daemon/host/process.h"
#include "daemon/host/process_signal.h"

namespace gpumem::host {

Reconciler::Reconciler(core::Gate& gate, Options options)
    : gate_(gate),
      driver_folder_(std::move(options.driver_folder)),
      devices_(std::move(options.devices)),
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

void Reconciler::look(Then then) {
  {
    const MutexLock lock(mutex_);
    asked_.push_back(std::move(then));
  }
  wake_.notify_one();
}

void Reconciler::set_period(std::chrono::seconds period) {
  {
    const MutexLock lock(mutex_);
    period_ = period;
  }
  wake_.notify_one();
}

void Reconciler::work() {
  for (std::vector<Then> asked; await_turn(asked); asked.clear()) look_at_all(std::move(asked));
}

// Waits until it is time to look; false if it is time to stop.
bool Reconciler::await_turn(std::vector<Then>& asked) {
  const MutexLock lock(mutex_);
  while (!stopping_) {
    const bool wanted = !asked_.empty();
    const bool regular = period_ > std::chrono::seconds::zero();
    const Clock::time_point next = last_ + (wanted ? Clock::duration(kLeastPause) : Clock::duration(period_));
    if ((wanted || regular) && Clock::now() >= next) {
      asked = std::exchange(asked_, {});
      last_ = Clock::now();
      return true;
    }
    if (wanted || regular)
      wake_.wait_until(mutex_, next);
    else
      wake_.wait(mutex_);
  }
  return false;
}

void Reconciler::look_at_all(std::vector<Then> asked) {
  // The core has to know what is lent before the driver is asked; if it has stopped, it drops the work, and
  // with that the promise.
  auto begun = std::make_shared<std::promise<void>>();
  const std::future<void> begin = begun->get_future();
  gate_.post([begun = std::move(begun), count = devices_.size()](core::Broker& broker, core::TimePoint) {
    for (core::DeviceIndex i = 0; i < count; ++i) broker.begin_observation(i);
    begun->set_value();
  });
  begin.wait();
  std::vector<core::Observation> observations;
  for (core::DeviceIndex i = 0; i < devices_.size(); ++i) observations.push_back(observe(i));
  gate_.post([observations = std::move(observations), asked = std::move(asked)](core::Broker& broker,
                                                                                core::TimePoint now) {
    for (const core::Observation& one : observations) broker.observe(one, now);
    for (const Then& then : asked) then(broker, now);
  });
}

// It may be installed, or the driver loaded, while we run.
bool Reconciler::open() {
  if (nvml_) return true;
  auto opened = cuda::Nvml::open(driver_folder_);
  if (opened)
    nvml_ = std::move(*opened);
  else
    no_library_ = opened.error().message + "; it comes with NVIDIA's driver (Debian: libnvidia-ml1)";
  return nvml_ != nullptr;
}

core::Observation Reconciler::observe(core::DeviceIndex device) {
  core::Observation observation;
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

// What is allocated or freed meanwhile must not look like memory that is booked twice: the larger figure
// counts.
Result<void> Reconciler::ask(const cuda::DeviceUuid& uuid, core::Observation& observation) const {
  const auto before = nvml_->memory(uuid);
  if (!before) return before.error();
  const auto processes = nvml_->processes(uuid);
  if (!processes) return processes.error();
  const auto after = nvml_->memory(uuid);
  if (!after) return after.error();
  observation.used = std::max(before->used, after->used);
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
    auto found = find_process(process.pid);
    if (found || found.error().code != Code::kNotFound) seen.pid = process.pid;
    if (found) {
      seen.started = found->started;
      seen.uid = found->uid;
      seen.gids = std::move(found->gids);
      seen.command = std::move(found->command);
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
