#pragma once
#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpumem/result.h"
#include "sim/contexts.h"
#include "sim/handles.h"
#include "sim/machine.h"
#include "sim/table.h"
#include "sim/va_space.h"

namespace gpumem::sim {

/// The simulated driver as one process sees it: what cuInit brings up and every other call works on.
/// One for the process, never destroyed: other threads may be in it while the process ends.
/// In a forked child everything answers CUDA_ERROR_NOT_INITIALIZED, as on the real driver.
class Driver {
 public:
  static Driver& get();

  /// Errors  CUDA_ERROR_NO_DEVICE: no machine (a line on stderr says how to make one) or none of it visible.
  CUresult init();

  int device_count() const { return static_cast<int>(visible_.size()); }
  bool has_device(int ordinal) const { return ordinal >= 0 && ordinal < device_count(); }
  /// The index in the machine of a device of this process.
  std::uint32_t device(int ordinal) const { return visible_[static_cast<std::size_t>(ordinal)]; }
  /// The device of this process that is device `index` of the machine, or -1 if it is hidden.
  int ordinal(std::uint32_t index) const;

  /// The calling thread's context. Errors  CUDA_ERROR_INVALID_CONTEXT (none),
  /// CUDA_ERROR_CONTEXT_IS_DESTROYED.
  CUresult current(Context** out);
  /// Charges the context's memory and makes it active; it must not be.
  CUresult activate(Context& context);
  /// Frees the context's own memory and all that cuMemAlloc made in it.
  void deactivate(Context& context);

  /// Creates an extent with one handle. On failure nothing has changed.
  CUresult create_extent(const Table::Request& request, Extent** out);
  /// cuMemAlloc and cuMemFree.
  CUresult allocate(Context& context, std::uint64_t size, CUdeviceptr* out);
  CUresult free(CUdeviceptr address);
  /// Unmaps the range and drops extents that nothing holds any more.
  CUresult unmap(CUdeviceptr address, std::uint64_t size);

  std::mutex mutex;
  std::unique_ptr<Table> table;
  std::optional<Handles> handles;
  VaSpace space;
  Contexts contexts;
  /// Streams and events that exist, by number; an event holds its time in nanoseconds (0: not recorded).
  std::unordered_map<std::uint64_t, std::uint64_t> streams, events;
  std::uint64_t last_object = 0xd0'0000'0000;

 private:
  friend class Call;
  enum class State { kNew, kReady, kForked };

  Driver() = default;
  CUresult bring_up();

  State state_ = State::kNew;
  std::vector<std::uint32_t> visible_;
};

/// One call into the driver: holds its lock. Usable only if it is ready.
///   Call driver;
///   if (!driver) return driver.error();
class Call {
 public:
  Call() : driver_(Driver::get()), lock_(driver_.mutex) {}

  explicit operator bool() const { return driver_.state_ == Driver::State::kReady; }
  CUresult error() const { return CUDA_ERROR_NOT_INITIALIZED; }
  Driver* operator->() { return &driver_; }
  /// Lets other threads in while this one copies memory.
  void unlock() { lock_.unlock(); }

 private:
  Driver& driver_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace gpumem::sim
