#include "sim/tool/control_commands.h"

#include <charconv>
#include <cstdio>

#include "base/text/device_name.h"
#include "sim/control/costs.h"
#include "sim/control/faults.h"
#include "sim/machine/table.h"

namespace gpumem::sim {
namespace {

int answer(const Result<void>& result) {
  if (result) return 0;
  std::fprintf(stderr, "gpumem-sim: %s\n", result.error().message.c_str());
  return 1;
}

/// Does `what` to the machine in the folder that the words name.
template <class Act>
int on_machine(const Words& words, Act what) {
  const auto machine = load_machine(words[1]);
  return answer(machine ? what(*machine) : Result<void>(machine.error()));
}

Result<void> print_faults(const Machine& machine) {
  const auto active = faults(machine);
  if (!active) return active.error();
  for (const ActiveFault& fault : *active) {
    std::printf("%s: %llu calls matched, %llu hit\n", to_string(fault.fault).c_str(),
                static_cast<unsigned long long>(fault.matches), static_cast<unsigned long long>(fault.hits));
  }
  return {};
}

Result<void> print_costs(const Machine& machine) {
  const auto profile = costs(machine);
  if (!profile) return profile.error();
  for (const Cost& cost : *profile) {
    std::printf("%-24s %s", cost.call.c_str(), to_string(cost.base).c_str());
    if (cost.per_mib.count() != 0) std::printf(" and %s for each MiB", to_string(cost.per_mib).c_str());
    std::printf("\n");
  }
  return {};
}

Result<void> load_and_set(const Machine& machine, const std::string& name) {
  if (name == "none") return clear_costs(machine);
  const auto profile = load_costs(name);
  return profile ? set_costs(machine, *profile) : Result<void>(profile.error());
}

/// The device of that index, `gpu0` or UUID.
Result<std::uint32_t> find_device(const Table& table, const std::string& name) {
  const auto place = device_place(name);
  const std::string digits = place ? std::to_string(*place) : name;
  std::uint32_t index = 0;
  const char* const last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, index);
  if (error == std::errc() && end == last && index < table.device_count()) return index;
  for (index = 0; index < table.device_count(); ++index) {
    if (to_string(table.uuid(index)) == name) return index;
  }
  return Error{Code::kNotFound, "no device '" + name + "'; wanted is 0 to " +
                                    std::to_string(table.device_count() - 1) +
                                    " or a UUID as `show` prints it"};
}

Result<void> shrink(const Machine& machine, const std::string& device, const std::string& size) {
  const auto bytes = parse_bytes(size);
  if (!bytes) return bytes.error();
  const auto table = Table::open(machine);
  if (!table) return table.error();
  const auto index = find_device(**table, device);
  return index ? (*table)->withhold(*index, bytes->count) : Result<void>(index.error());
}

}  // namespace

int add_fault_command(const Words& words) {
  std::string text;
  for (std::size_t i = 2; i < words.size(); ++i) text += words[i] + " ";
  return on_machine(words, [&](const Machine& machine) { return add_fault(machine, text); });
}

int faults_command(const Words& words) { return on_machine(words, print_faults); }

int heal_command(const Words& words) { return on_machine(words, clear_faults); }

int costs_command(const Words& words) {
  if (words.size() == 2) return on_machine(words, print_costs);
  return on_machine(words, [&](const Machine& machine) { return load_and_set(machine, words[2]); });
}

int shrink_command(const Words& words) {
  return on_machine(words, [&](const Machine& machine) { return shrink(machine, words[2], words[3]); });
}

}  // namespace gpumem::sim
