#pragma once
#include <nlohmann/json.hpp>

#include "bench/driver/call_times.h"
#include "bench/must.h"
#include "bench/samples.h"
#include "cuda/memory.h"

namespace gpumem::bench {

/// Calls that are about no memory: versions, devices, error texts.
void time_device_calls(CallTimes& times, const cuda::Driver& driver, const cuda::Device& device);

/// Calls about contexts; one is current.
void time_context_calls(CallTimes& times, const cuda::Driver& driver, const cuda::Device& device);

/// The life of extents, call by call: create, export, import, reserve, map, set access, copy (with a
/// context), unmap, free, release. A call that fails ends its round, is noted in `failed`, and nothing stays
/// behind.
class MemoryCalls {
 public:
  MemoryCalls(const cuda::Driver& driver, const cuda::Device& device, CallTimes& times,
              nlohmann::json& failed, bool with_context)
      : driver_(driver), device_(device), times_(times), failed_(failed), with_context_(with_context) {}

  struct Shape {
    Bytes extent;
    std::size_t extents = 1;  ///< mapped side by side, with one set-access and one unmap
    Bytes total() const { return {extent.count * extents}; }
  };
  /// Repeats rounds of `shape` for `patience`, 3 at least, 300 at most; stops at the first that fails.
  void run(const Shape& shape, Clock::duration patience);
  bool with_context() const { return with_context_; }

 private:
  Result<void> round(const Shape& shape);
  Result<std::vector<cuda::Allocation>> create(const Shape& shape);
  Result<void> pass_on(const Shape& shape, const cuda::Allocation& allocation);
  Result<void> map(const Shape& shape, const std::vector<cuda::Allocation>& allocations);
  Result<void> use(const Shape& shape, cuda::Address at);
  /// Times one raw call; its failure is the round's.
  template <class Work>
  Result<void> call(const char* name, const Shape& shape, Work&& work);

  const cuda::Driver& driver_;
  const cuda::Device& device_;
  CallTimes& times_;
  nlohmann::json& failed_;
  const bool with_context_;
};

}  // namespace gpumem::bench
