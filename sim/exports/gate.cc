#include "sim/exports/gate.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/control/control.h"
#include "sim/machine/machine.h"

namespace gpumem::sim {
namespace {

/// Never destroyed: other threads may be in a call while the process ends.
std::atomic<Control*> control = nullptr;
std::once_flag first_call;

/// The time that the calling thread's call has still to wait.
thread_local std::chrono::nanoseconds cost_of_bytes{};

/// A control page that is replaced is kept: threads may be looking at it.
void open(const Machine& machine) {
  static std::mutex mutex;
  static auto* const known = new std::string();
  static auto* const kept = new std::vector<std::unique_ptr<Control>>();
  const std::lock_guard lock(mutex);
  if (machine.id == *known) return;
  *known = machine.id;
  auto opened = Control::open(machine);
  if (!opened) {
    std::fprintf(stderr, "gpumem-sim: faults and costs are off: %s\n", opened.error().message.c_str());
    return;
  }
  kept->push_back(std::move(*opened));
  control.store(kept->back().get(), std::memory_order_release);
}

/// The machine is known from the first call on, so that cuInit too can fail.
void open_if_there_is_a_machine() {
  if (const auto machine = locate_machine(); machine) open(*machine);
}

}  // namespace

Gate::Gate(int call, std::uint64_t bytes) {
  std::call_once(first_call, open_if_there_is_a_machine);
  const Control* const known = control.load(std::memory_order_acquire);
  if (known != nullptr && !known->is_idle()) pass_slowly(call, bytes);
}

Gate::~Gate() {
  if (cost_of_bytes.count() > 0) spend(take_cost_of_bytes());
}

std::chrono::nanoseconds Gate::take_cost_of_bytes() { return std::exchange(cost_of_bytes, {}); }

std::chrono::nanoseconds Gate::cost_of(std::string_view name, std::uint64_t bytes) {
  Control* const known = control.load(std::memory_order_acquire);
  if (known == nullptr || known->is_idle()) return {};
  int call = 0;
  while (kCallNames[call] != nullptr && kCallNames[call] != name) ++call;
  return kCallNames[call] == nullptr ? std::chrono::nanoseconds() : known->cost_of_bytes(name, call, bytes);
}

void Gate::add_cost_of(std::string_view name, std::uint64_t bytes) { cost_of_bytes += cost_of(name, bytes); }

void Gate::attach(const Machine& machine) {
  std::call_once(first_call, [] {});
  open(machine);
}

void Gate::pass_slowly(int call, std::uint64_t bytes) {
  Control& known = *control.load(std::memory_order_acquire);
  const Verdict verdict = known.consult(kCallNames[call], call);
  if (verdict.kill) ::kill(::getpid(), SIGKILL);
  spend(verdict.delay + known.base_cost(call));
  result_ = verdict.error;
  if (result_ == 0 && bytes > 0) cost_of_bytes = known.cost_of_bytes(call, bytes);
}

void say_not_simulated(const char* name) {
  static std::mutex mutex;
  static auto* const said = new std::set<std::string_view>();
  const std::lock_guard lock(mutex);
  if (said->insert(name).second) std::fprintf(stderr, "gpumem-sim: %s is not simulated\n", name);
}

}  // namespace gpumem::sim
