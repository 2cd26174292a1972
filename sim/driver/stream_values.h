#pragma once
#include <cuda.h>

#include <cstdint>
#include <vector>

namespace gpumem::sim {

class Call;

/// One operation of a stream on a word of memory.
struct ValueOperation {
  enum class Kind : std::uint8_t { kWait, kWrite };

  Kind kind = Kind::kWait;
  std::uint64_t address = 0;
  unsigned bytes = 4;  ///< 4 or 8
  std::uint64_t value = 0;
  unsigned condition = 0;    ///< of kWait: CUstreamWaitValue_flags without the flush
  std::uint32_t device = 0;  ///< the device that accesses it: index in the machine
};

/// Success if the device may do it now. Errors  CUDA_ERROR_INVALID_VALUE: not aligned, no memory of the
/// device and no pinned memory of the host, or managed; CUDA_ERROR_ILLEGAL_ADDRESS: access is lacking.
CUresult check(Call& driver, const ValueOperation& operation);

/// Does it. Blocks while a condition does not hold: it looks again after pauses that grow from 10 us to 1 ms,
/// since anyone may write the word by any means. Errors  as check, as soon as the memory is gone.
CUresult perform(const ValueOperation& operation);
/// One after the other, up to the first that fails.
CUresult perform(const std::vector<ValueOperation>& operations);

}  // namespace gpumem::sim
