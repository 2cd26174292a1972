#include "sim/control/control.h"

#include <unistd.h>

#include <limits>

#include "sim/control/costs.h"
#include "sim/control/faults.h"

namespace gpumem::sim {

Result<std::unique_ptr<Control>> Control::open(const Machine& machine) {
  auto file = ControlFile::open(machine);
  if (!file) return file.error();
  return std::unique_ptr<Control>(new Control(std::move(*file)));
}

Verdict Control::consult(std::string_view name, int call) {
  const Resolved* known = resolved_[static_cast<std::size_t>(call)].load(std::memory_order_acquire);
  if (known == nullptr || known->state != file_->state()) known = &resolve(name, call);
  Verdict verdict;
  for (const layout::Rule& rule : known->rules) {
    if (rule.pid != 0 && rule.pid != ::getpid()) continue;
    if (!count_and_decide(rule, file_->counter(rule.counter))) continue;
    if (verdict.error == 0) verdict.error = rule.error;
    verdict.delay += std::chrono::nanoseconds(rule.delay_ns);
    verdict.kill |= (rule.flags & layout::kKill) != 0;
  }
  return verdict;
}

const Control::Resolved& Control::resolve(std::string_view name, int call) {
  const ControlContents contents = file_->read();
  auto fresh = std::make_unique<Resolved>();
  fresh->state = contents.state;
  for (const layout::Rule& rule : contents.rules) {
    if (call_matches(rule.call, name)) fresh->rules.push_back(rule);
  }
  if (const layout::Cost* cost = find_cost(contents.costs, name); cost != nullptr) {
    fresh->base = Picoseconds(cost->base_ps);
    fresh->per_mib = Picoseconds(cost->per_mib_ps);
  }
  const MutexLock lock(mutex_);
  const Resolved& kept = *kept_.emplace_back(std::move(fresh));
  resolved_[static_cast<std::size_t>(call)].store(&kept, std::memory_order_release);
  return kept;
}

std::chrono::nanoseconds Control::base_cost(int call) const {
  const Resolved* const known = resolved_[static_cast<std::size_t>(call)].load(std::memory_order_acquire);
  if (known == nullptr) return {};
  return std::chrono::duration_cast<std::chrono::nanoseconds>(known->base);
}

std::chrono::nanoseconds Control::cost_of_bytes(int call, std::uint64_t bytes) const {
  const Resolved* const known = resolved_[static_cast<std::size_t>(call)].load(std::memory_order_acquire);
  if (known == nullptr) return {};
  // A day at most for each MiB and 2^44 of them: only a floating-point number holds all of that.
  const double mib = static_cast<double>(bytes) / (1 << 20);
  const double nanoseconds = static_cast<double>(known->per_mib.count()) * mib / 1000;
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max() / 4;
  return std::chrono::nanoseconds(
      nanoseconds < static_cast<double>(kMost) ? static_cast<std::int64_t>(nanoseconds) : kMost);
}

std::chrono::nanoseconds Control::cost_of_bytes(std::string_view name, int call, std::uint64_t bytes) {
  resolve(name, call);
  return cost_of_bytes(call, bytes);
}

}  // namespace gpumem::sim
