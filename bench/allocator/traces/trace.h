#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::bench {

/// One call of a program that allocates device memory.
struct AllocatorCall {
  enum class Kind : std::uint8_t { kAllocate, kFree };
  Kind kind = Kind::kAllocate;
  std::uint32_t stream = 0;  ///< 0: the default stream
  std::uint32_t block = 0;   ///< counted from 0 in the order of allocation
  std::uint64_t bytes = 0;   ///< as asked for; also of the block that is freed
  bool operator==(const AllocatorCall&) const = default;
};

/// A program's allocator calls, in order.
/// Invariant  every block is allocated once, of more than zero bytes, and freed at most once, later.
struct AllocationTrace {
  std::string name;
  std::vector<AllocatorCall> calls;
  std::uint32_t blocks = 0;
};

struct TraceFigures {
  Bytes peak;     ///< in use at once, as asked for
  Bytes left;     ///< in use at the end
  Bytes largest;  ///< block
  std::uint32_t streams = 0;
};
TraceFigures figures_of(const AllocationTrace& trace);

/// Several programs, or threads, at once: each call comes from the one that is least far through its calls.
/// The streams of the parts stay apart.
AllocationTrace interleaved(std::string name, const std::vector<AllocationTrace>& parts);

/// The traces' file format, a line for each call, with what else follows on the line left aside:
///   a ID BYTES STREAM     allocates block ID, any number that is not in use
///   f ID STREAM           frees it
/// Empty lines and those that begin with # say nothing.
/// Errors  kNotFound, kInvalidArgument with the line: not of this form, ID in use or not, zero bytes.
Result<AllocationTrace> read_trace(const std::filesystem::path& file);
Result<void> write_trace(const AllocationTrace& trace, const std::filesystem::path& file);

}  // namespace gpumem::bench
