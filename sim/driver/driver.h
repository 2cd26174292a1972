#pragma once
#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "gpumem/result.h"
#include "sim/driver/contexts.h"
#include "sim/driver/events.h"
#include "sim/driver/graphs/captures.h"
#include "sim/driver/graphs/graph_execs.h"
#include "sim/driver/graphs/graph_memory.h"
#include "sim/driver/graphs/user_objects.h"
#include "sim/driver/handles.h"
#include "sim/driver/memory/arrays.h"
#include "sim/driver/memory/host_memory.h"
#include "sim/driver/memory/managed_advice.h"
#include "sim/driver/memory/pools.h"
#include "sim/driver/memory/va_space.h"
#include "sim/driver/modules.h"
#include "sim/driver/streams.h"
#include "sim/machine/machine.h"
#include "sim/machine/table.h"

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
  /// CUDA_ERROR_CONTEXT_IS_DESTROYED; the context's own, if work in it has failed.
  CUresult current(Context** out);
  /// The stream that `handle` names; the default one of the current context for 0. Errors  as current(), and
  /// CUDA_ERROR_INVALID_HANDLE.
  CUresult stream(CUstream handle, StreamRef* out);
  /// Finds the stream for work that is submitted to it, or to the capture that it is in. Errors  also those
  /// of Captures::check_use.
  CUresult queue(CUstream handle, StreamRef* out);
  /// Finds the stream for work that cannot be captured. Errors  also those of Captures::check_no_capture.
  CUresult queue_uncaptured(CUstream handle, StreamRef* out);
  /// Whether the program made the stream, and so may destroy it.
  static bool is_created(const Stream& stream);
  /// Work in `context` has failed: from now on its calls do.
  void fail(std::uint64_t context, CUresult error);
  /// The result of a call that waited for work in `context`.
  CUresult after_wait(std::uint64_t context);
  /// Whether the bytes are host memory that devices reach: pinned or registered.
  bool is_host_memory(std::uint64_t address, std::uint64_t size) const;
  /// Charges the context's memory and makes it active; it must not be.
  CUresult activate(Context& context);
  /// Frees the context's own memory and all that cuMemAlloc made in it.
  void deactivate(Context& context);

  /// Creates an extent with one handle. On failure nothing has changed.
  CUresult create_extent(const Table::Request& request, Extent** out);
  /// cuMemAlloc, or cuMemAllocManaged, and cuMemFree.
  CUresult allocate(Context& context, std::uint64_t size, CUdeviceptr* out, Use use = Use::kAllocation);
  CUresult free(CUdeviceptr address);
  /// Maps `extent`, which has one handle, for its device at an address that belongs to context `owner`; the
  /// mapping takes the handle's place. On failure the extent is dropped.
  CUresult map_whole(std::uint64_t owner, Extent& extent, Use use, CUdeviceptr* out);
  /// Takes a range away with all that is mapped there.
  void end_range(CUdeviceptr address, Reservation range);
  /// Unmaps the range and drops extents that nothing holds any more.
  CUresult unmap(CUdeviceptr address, std::uint64_t size);

  std::mutex mutex;
  /// Held shared while bytes move, alone while mappings change; taken with `mutex` held, which may then go.
  std::shared_mutex in_use;
  bool fabric = false;  ///< the machine's devices offer fabric handles
  std::unique_ptr<Table> table;
  std::optional<Handles> handles;
  VaSpace space;
  Contexts contexts;
  Streams streams;
  Events events;
  Graphs graphs;
  Captures captures{graphs};
  GraphExecs execs;
  UserObjects user_objects;
  HostMemory host;
  ManagedAdvice advice;
  Pools pools{*this};
  GraphMemory graph_memory{*this};
  Arrays arrays{*this};
  Modules modules{*this};
  /// Descriptors passed to cuImportExternalMemory, by handle.
  std::map<std::uint64_t, UniqueFd> external;
  /// How often each range of Use::kOpened was opened.
  std::map<CUdeviceptr, unsigned> opened;
  /// Ids of memory for which CU_POINTER_ATTRIBUTE_SYNC_MEMOPS was set. Ids are never given out again.
  std::set<std::uint64_t> synchronous;

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
  /// Lets other threads in, for good.
  void unlock() { lock_.unlock(); }
  /// Lets other threads in while `wait` blocks. What was looked up before may be gone afterwards.
  void run_unlocked(const Work& wait);
  void wait(const std::vector<Ticket>& tickets);

 private:
  Driver& driver_;
  std::unique_lock<std::mutex> lock_;
};

/// Handles are numbers.
template <class Handle>
Handle handle(std::uint64_t number) {
  return reinterpret_cast<Handle>(number);  // NOLINT(performance-no-int-to-ptr)
}
template <class Handle>
std::uint64_t number(Handle handle) {
  return reinterpret_cast<std::uint64_t>(handle);
}

}  // namespace gpumem::sim
