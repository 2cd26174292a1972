#pragma once
#include <chrono>
#include <cstdint>
#include <string_view>

#include "sim/machine/machine.h"

namespace gpumem::sim {

/// The calls that the library (libcuda.so.1 or libnvidia-ml.so.1) exports, by their dense numbers, as its
/// generated entries count them. nullptr ends them.
extern const char* const kCallNames[];

/// The entry of every exported call of a library. Applies the machine's faults and costs
/// (sim/control/control.h). Costs almost nothing while the machine has neither.
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
  bool is_closed() const { return result_ != 0; }
  /// As a number of the library's own results (CUresult, nvmlReturn_t), of which 0 is success.
  int result() const { return result_; }

  /// Takes over the cost of the bytes of the calling thread's call, for work that is done later: the caller
  /// of this function waits that long in place of the call.
  static std::chrono::nanoseconds take_cost_of_bytes();
  /// The calling thread's call costs as much more as these bytes cost a call of this name.
  static void add_cost_of(std::string_view name, std::uint64_t bytes);
  /// The cost of these bytes for a call of this name, which may have been made long ago.
  static std::chrono::nanoseconds cost_of(std::string_view name, std::uint64_t bytes);

  /// From now on faults and costs of calls of this library are those of this machine.
  static void attach(const Machine& machine);

 private:
  void pass_slowly(int call, std::uint64_t bytes);

  int result_ = 0;
};

/// Says on stderr, once, that the call is not simulated.
void say_not_simulated(const char* name);

}  // namespace gpumem::sim
