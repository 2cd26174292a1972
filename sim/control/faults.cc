#include "sim/control/faults.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "sim/control/control_file.h"

namespace gpumem::sim {
namespace {

constexpr double kThresholds = 4294967296.0;  // 2^32, the unit of Rule::threshold

/// splitmix64.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

bool eat(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// Takes one more of at most `times` hits, if one is left.
bool take_hit(std::uint64_t& hits, std::uint64_t times) {
  std::atomic_ref count(hits);
  std::uint64_t seen = count.load(std::memory_order_relaxed);
  while (seen < times) {
    if (count.compare_exchange_weak(seen, seen + 1, std::memory_order_relaxed)) return true;
  }
  return false;
}

layout::Rule to_rule(const Fault& fault, std::uint32_t counter) {
  layout::Rule rule{};
  fault.call.copy(rule.call, sizeof rule.call - 1);
  rule.pid = fault.pid;
  rule.error = fault.error;
  rule.delay_ns = static_cast<std::uint64_t>(fault.delay.count());
  rule.from = fault.from;
  rule.until = fault.until;
  rule.times = fault.times;
  rule.threshold = static_cast<std::uint64_t>(std::llround(fault.probability * kThresholds));
  rule.seed = fault.seed;
  rule.counter = counter;
  rule.flags = fault.kill ? layout::kKill : 0;
  return rule;
}

Fault to_fault(const layout::Rule& rule) {
  return {.call = rule.call,
          .pid = rule.pid,
          .from = rule.from,
          .until = rule.until,
          .times = rule.times,
          .probability = static_cast<double>(rule.threshold) / kThresholds,
          .seed = rule.seed,
          .error = rule.error,
          .delay = std::chrono::nanoseconds(rule.delay_ns),
          .kill = (rule.flags & layout::kKill) != 0};
}

}  // namespace

Result<void> add_fault(const Machine& machine, const Fault& fault) {
  if (fault.call.empty() || fault.call.size() >= layout::kCallLength) {
    return Error{Code::kInvalidArgument, "'" + fault.call + "': a call's name has 1 to " +
                                             std::to_string(layout::kCallLength - 1) + " characters"};
  }
  auto file = ControlFile::open(machine);
  if (!file) return file.error();
  return (*file)->edit([&](ControlContents& contents) -> Result<void> {
    contents.rules.push_back(to_rule(fault, (*file)->take_counter(contents)));
    return {};
  });
}

Result<void> add_fault(const Machine& machine, std::string_view text) {
  const auto fault = parse_fault(text);
  return fault ? add_fault(machine, *fault) : Result<void>(fault.error());
}

Result<void> clear_faults(const Machine& machine) {
  auto file = ControlFile::open(machine);
  if (!file) return file.error();
  return (*file)->edit([](ControlContents& contents) -> Result<void> {
    contents.rules.clear();
    return {};
  });
}

Result<std::vector<ActiveFault>> faults(const Machine& machine) {
  auto file = ControlFile::open(machine);
  if (!file) return file.error();
  std::vector<ActiveFault> found;
  for (const layout::Rule& rule : (*file)->read().rules) {
    layout::Counter& counter = (*file)->counter(rule.counter);
    found.push_back(
        {to_fault(rule), std::atomic_ref(counter.matches).load(), std::atomic_ref(counter.hits).load()});
  }
  return found;
}

bool call_matches(std::string_view pattern, std::string_view name) {
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  if (!eat(name, pattern)) return false;
  if (eat(name, "_v")) name.remove_prefix(std::min(name.find_first_not_of("0123456789"), name.size()));
  return name.empty() || name == "_ptsz" || name == "_ptds";
}

bool count_and_decide(const layout::Rule& rule, layout::Counter& counter) {
  const std::uint64_t match = std::atomic_ref(counter.matches).fetch_add(1, std::memory_order_relaxed) + 1;
  if (match < rule.from || match > rule.until) return false;
  // A rule draws equally on every run. Another seed, or another place in the sequence, gives another draw.
  const std::uint64_t draw = mix(mix(rule.seed) ^ match) >> 32;
  return draw < rule.threshold && take_hit(counter.hits, rule.times);
}

}  // namespace gpumem::sim
