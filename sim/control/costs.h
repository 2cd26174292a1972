#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpumem/result.h"
#include "sim/control/control_layout.h"
#include "sim/control/control_time.h"
#include "sim/machine/machine.h"

namespace gpumem::sim {

/// The cost of the calls of one name: their caller waits that long.
struct Cost {
  std::string call;  ///< as call_matches (sim/control/faults.h) takes it
  Picoseconds base{};
  Picoseconds per_mib{};  ///< of the bytes that the call is about

  bool operator==(const Cost&) const = default;
};
using CostProfile = std::vector<Cost>;

/// Reads lines of `CALL BASE [PER_MIB]`, for example `cuMemCreate 193us 10us`; empty lines and what follows a
/// `#` say nothing. Errors  kInvalidArgument, with the number of the line: not of that form; a call twice.
Result<CostProfile> parse_costs(std::string_view text);

/// Reads the profile in file `name`; if that is no path (has no slash), the one of this name that belongs to
/// the simulated libraries, such as h200. Errors  kNotFound: says which there are; as parse_costs.
Result<CostProfile> load_costs(const std::string& name);

/// Makes the machine's calls cost this and no more, in every process, those that run too.
/// Errors  kResourceExhausted: over 1024 calls; as ControlFile::open.
Result<void> set_costs(const Machine& machine, const CostProfile& profile);

/// Makes the machine's calls cost nothing. Errors  as ControlFile::open.
Result<void> clear_costs(const Machine& machine);

/// The costs in force. Errors  as ControlFile::open.
Result<CostProfile> costs(const Machine& machine);

/// The cost of driver call `name`: the one of that very name; else the one with the longest name that means
/// it.
const layout::Cost* find_cost(std::span<const layout::Cost> costs, std::string_view name);

}  // namespace gpumem::sim
