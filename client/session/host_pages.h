#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "cuda/memory.h"
#include "gpumem/bytes.h"
#include "gpumem/result.h"

// Maps files of the host store, faults their pages in, and pins them for the devices.

namespace gpumem::client {

/// The bytes that this process may still touch before its cgroup, or one above, reaches its memory.max. The
/// kernel kills a process that goes beyond. Page cache counts as room. Nothing: no limit is known.
/// `folder`  where cgroups are mounted. `own`  the text of /proc/self/cgroup.
std::optional<Bytes> cgroup_room(const std::filesystem::path& folder, std::string_view own);

/// Maps `file` over [at, at + size), which is reserved, with huge pages as far as the machine has them.
/// Errors  the kernel's.
Result<void> map_host_file(char* at, int file, Bytes size, cuda::Access access = cuda::Access::kReadWrite);

/// Faults [at, at + size) in for writing, by several threads if it is large.
/// Errors  kResourceExhausted: a cgroup has no room, or the machine no memory. What was faulted in stays.
Result<void> fault_in(char* at, Bytes size);

/// Registers memory with the driver (cuMemHostRegister), in pieces: one call for very much fails.
/// Threads  one at a time.
class HostPins {
 public:
  static constexpr Bytes kPiece{1ULL << 30};

  /// `driver`  null: nothing is pinned, and all calls succeed.
  explicit HostPins(const cuda::Driver* driver) : driver_(driver) {}

  /// Pins [at, at + size), which is mapped with `access`, for all contexts of the process. All or nothing.
  /// Errors  kFailedPrecondition: the process has no context; the driver's.
  Result<void> pin(char* at, Bytes size, cuda::Access access = cuda::Access::kReadWrite);
  /// Ends all pins in [at, at + size).
  void unpin(char* at, Bytes size);

 private:
  const cuda::Driver* const driver_;
  std::map<char*, Bytes> pieces_;
};

}  // namespace gpumem::client
