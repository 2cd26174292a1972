#pragma once
#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/core/broker/broker.h"
#include "daemon/core/memory/job.h"
#include "tests/support/fake_driver.h"

namespace gpumem::core {

/// The bytes of each device that `policy` names.
inline std::vector<Bytes> totals_of(const Policy& policy, Bytes DevicePolicy::*bytes = &DevicePolicy::total) {
  std::vector<Bytes> totals;
  for (const DevicePolicy& one : policy.devices) totals.push_back(one.*bytes);
  return totals;
}

/// A broker with a driver that only counts, in virtual time: the host that every test of the whole core
/// builds on. Jobs wait in the queue of their device until they are run.
template <class AnyBroker = Broker>
class CoreWorld {
 public:
  explicit CoreWorld(const Policy& policy) : CoreWorld(policy, totals_of(policy), {}) {}
  CoreWorld(const Policy& policy, std::vector<Bytes> totals, TimePoint start)
      : broker(policy), driver(std::move(totals)), now(start), jobs(policy.devices.size()) {
    for (DeviceIndex device = 0; device < policy.devices.size(); ++device)
      if (policy.devices[device].is_host()) driver.host = device;
  }
  CoreWorld(const CoreWorld&) = delete;
  CoreWorld& operator=(const CoreWorld&) = delete;

  AnyBroker broker;
  FakeDriver driver;
  TimePoint now;
  std::vector<JobQueue<Job>> jobs;  ///< by device

  bool has_jobs() const {
    return std::ranges::any_of(jobs, [](const auto& queue) { return !queue.empty(); });
  }
  /// What the driver answers to the device's next job. There is one.
  JobResult run_next_job(DeviceIndex device) { return driver.run(jobs[device].pop()); }
  Duration until_next_deadline() const {
    const auto next = broker.next_deadline();
    return next ? std::max(*next - now, Duration::zero()) : Duration::zero();
  }

 protected:
  /// Takes the broker's effects in their order. Jobs are queued, each after `host.before_queueing(job)`
  /// if the host has that. All other effects are told to `host.take(effect)`.
  template <class Host>
  void take_effects(Host& host) {
    for (Effect& effect : broker.outbox().take_effects())
      std::visit([&]<class One>(One& one) { deliver(host, one); }, effect);
  }

 private:
  template <class Host, class One>
  void deliver(Host& host, One& one) {
    if constexpr (std::is_same_v<One, RunJobs>) {
      for (Job& job : one.jobs) {
        if constexpr (requires { host.before_queueing(job); }) host.before_queueing(job);
        jobs[one.device].push(job.turn, std::move(job));
      }
    } else if constexpr (std::is_same_v<One, HurryJob>) {
      jobs[one.device].hurry([&one](const Job& job) { return job.id == one.job; });
    } else {
      host.take(one);
    }
  }
};

}  // namespace gpumem::core
