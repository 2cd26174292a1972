#pragma once
#include <cuda.h>

#include <chrono>
#include <cstdint>

#include "sim/machine.h"

namespace gpumem::sim {

/// The exported driver calls by their dense numbers, as the generated entries count them.
extern const char* const kCallNames[];

/// What every exported call passes first: here the machine's faults and costs happen to it (sim/control.h).
/// Costs almost nothing while the machine has neither.
class Gate {
 public:
  /// The calling thread enters call number `call`, which is about `bytes` bytes (0: about none). Waits as the
  /// faults and the call's base cost say; does not return if the process is to end here.
  Gate(int call, std::uint64_t bytes);
  /// Waits as the call's bytes cost, unless the call took that upon itself.
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// The call fails here, with this result.
  bool is_closed() const { return result_ != CUDA_SUCCESS; }
  CUresult result() const { return result_; }

  /// What the bytes of the calling thread's call cost, for work that is done later and elsewhere: whoever
  /// takes it waits that long in place of the call.
  static std::chrono::nanoseconds take_cost_of_bytes();

  /// From now on faults and costs are those of this machine.
  static void attach(const Machine& machine);

 private:
  void pass_slowly(int call, std::uint64_t bytes);

  CUresult result_ = CUDA_SUCCESS;
};

/// The answer of a call that is not simulated; says on stderr which, once.
CUresult not_supported(const char* name);

}  // namespace gpumem::sim
