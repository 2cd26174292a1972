#include <cstdlib>

#include "daemon/core/sessions/reconcile.h"
#include "tests/model/world.h"

// Looks at the driver: the broker's account of the used bytes, against what the world knows of them.

namespace gpumem::core::model {

Observation World::ask_driver(DeviceIndex device) const {
  Observation seen;
  seen.device = device;
  seen.used = *driver.used(device);
  seen.broker = driver.handled(device);
  for (const Process& process : processes_) {
    const auto taken = process.taken.find(device);
    if (taken == process.taken.end() || taken->second.is_zero()) continue;
    Observation::Process& one = seen.processes.emplace_back();
    one.pid = process.pid;
    one.used = taken->second;
  }
  return seen;
}

Number World::past_broker(DeviceIndex device) const {
  std::set<ExtentId> lent;
  for (const auto& lease : reference_.leases) lent.insert(lease.extent.id);
  Number sum = number(stolen_[device]);
  for (const Process& process : processes_) {
    for (const ExtentId id : process.held) {
      const auto& [of, size] = offered_.at(id);
      sum += of == device && !lent.contains(id) ? number(size) : 0;
    }
  }
  return sum;
}

Number World::not_proved_yet(DeviceIndex device) const {
  std::set<ExtentId> held;
  for (const Process& process : processes_) held.insert(process.held.begin(), process.held.end());
  Number sum = 0;
  for (const auto& lease : reference_.leases) {
    const bool is_back = destroyed_.contains(lease.extent.id) && !held.contains(lease.extent.id);
    sum += lease.device == device && is_back ? lease.bytes() : 0;
  }
  return sum;
}

void World::look(DeviceIndex device) {
  broker.begin_observation(device);
  const Observation seen = ask_driver(device);
  broker.observe(seen, now);
  reference_.hindrance[device] = number(broker.hindrance(device));
  const Accounting& account = broker.reconciliation(device).accounting;
  Number named = 0;
  for (const Observation::Process& one : seen.processes) named += number(one.used);
  // Declarations are taken at their word where the figures of processes may contain lent memory
  // (own_memory()), and where the broker cannot know whether the driver tells them.
  const Bytes besides = seen.used - seen.broker - Bytes{static_cast<std::uint64_t>(named)};
  const bool is_named = account.tells_processes && !seen.broker.is_zero() && besides <= kDriversOwn;
  const Number on_its_way = number(account.moving) + not_proved_yet(device) +
                            (is_named ? 0 : named + number(broker.reconciliation(device).declared));
  const Number expected = past_broker(device);
  const Number difference = std::abs(Number{account.unexplained()} - expected);
  require(difference <= on_its_way, "unexplained bytes" + in_words(expected, account.unexplained()) + ", " +
                                        std::to_string(on_its_way) + " are on their way");
  if (on_its_way != 0)
    ++seen_.other_looks;
  else if (expected != 0)
    ++seen_.past_broker_looks;
  else
    ++seen_.quiet_looks;
  compare();
}

}  // namespace gpumem::core::model
