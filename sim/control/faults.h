#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "gpumem/result.h"
#include "sim/control/control_layout.h"
#include "sim/machine/machine.h"

namespace gpumem::sim {

/// How some of a machine's driver calls go wrong. At least one of `error`, `delay` and `kill` is set.
struct Fault {
  static constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();

  std::string call;        ///< as call_matches takes it
  pid_t pid = 0;           ///< the only process it hits; 0: any
  std::uint64_t from = 1;  ///< the first matching call that it may hit, all processes counted together
  std::uint64_t until = kForever;  ///< and the last
  std::uint64_t times = kForever;  ///< how many it hits at most
  double probability = 1;  ///< of a hit; which calls it hits follows from `seed` and their count alone
  std::uint64_t seed = 0;
  int error = 0;                     ///< the driver's own number of the result
  std::chrono::nanoseconds delay{};  ///< waited before the call does anything
  bool kill = false;                 ///< the caller ends with SIGKILL, before the call does anything

  bool operator==(const Fault&) const = default;
};

/// A fault in force, and what it did so far.
struct ActiveFault {
  Fault fault;
  std::uint64_t matches = 0;  ///< calls of that name, in that process
  std::uint64_t hits = 0;
};

/// Reads `CALL [fail RESULT] [delay TIME] [kill] [nth N | from N] [times N] [probability P] [seed N] [pid
/// N]`, the parts after CALL in any order: `cuMemCreate fail OUT_OF_MEMORY nth 3`, `cuMemMap delay 5ms
/// probability 0.1`. RESULT is one of the library's (cuda or nvml) names, with or without CUDA_ERROR_ or
/// NVML_ERROR_, or a number. Errors  kInvalidArgument: not of that form; the message says which part and what
/// is wanted.
Result<Fault> parse_fault(std::string_view text);

/// The text that parse_fault reads as `fault`.
std::string to_string(const Fault& fault);

/// Puts `fault` in force for every process of the machine, those that run too.
/// Errors  kInvalidArgument: a name that is too long; kResourceExhausted: 64 are there; as ControlFile::open.
Result<void> add_fault(const Machine& machine, const Fault& fault);
/// Adds the fault that `text` describes.
Result<void> add_fault(const Machine& machine, std::string_view text);

/// Takes all faults away. Errors  as ControlFile::open.
Result<void> clear_faults(const Machine& machine);

/// The faults in force, oldest first. Errors  as ControlFile::open.
Result<std::vector<ActiveFault>> faults(const Machine& machine);

/// Whether the driver call `name` is one that `pattern` means: that very name, or `pattern` followed by a
/// version
/// (_v2) or the mark of the per-thread default stream (_ptsz, _ptds), or, if `pattern` ends with a star, any
/// name that begins like it.
bool call_matches(std::string_view pattern, std::string_view name);

/// Whether `rule`, whose counter this is, hits the next matching call; counts it. Threads: any, any process.
bool count_and_decide(const layout::Rule& rule, layout::Counter& counter);

}  // namespace gpumem::sim
