#pragma once
#include <cuda.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "sim/driver/handles.h"
#include "sim/driver/reused_handles.h"
#include "sim/machine/machine.h"

namespace gpumem::sim {

struct Context {
  std::uint64_t id = 0;      ///< its handle; a later context may have the same
  std::uint64_t number = 0;  ///< never given out again; a primary context that begins anew has another one
  int ordinal = 0;           ///< of the device in this process
  unsigned flags = 0;
  Extent* memory = nullptr;  ///< the context's own memory; nullptr: not active
  unsigned retained = 0;     ///< primary contexts only
  unsigned attached = 0;     ///< uses beside the creator's
  bool is_primary = false;
  CUresult error = CUDA_SUCCESS;  ///< once work in it has failed
  std::set<std::uint64_t> peers;  ///< contexts whose memory it may reach
  CUfunc_cache cache = CU_FUNC_CACHE_PREFER_NONE;
  std::array<std::size_t, CU_LIMIT_MAX> limits = default_limits();

  /// The initial limits of a context on an H200, as far as they are documented.
  static std::array<std::size_t, CU_LIMIT_MAX> default_limits();
};

/// The contexts of one process and each thread's stack of current ones. A stale handle is known as such until
/// a new context has it. Threads: the caller holds the driver's lock; the stack is the calling thread's.
class Contexts {
 public:
  /// The device memory that one context takes.
  static std::uint64_t cost(std::uint64_t device_total);

  Context& create(int ordinal, unsigned flags, bool is_primary);
  std::uint64_t next_number() { return ++last_number_; }
  void erase(Context& context);
  Context* find(CUcontext handle);
  /// The device of a context, also of one that was erased.
  std::optional<int> ordinal_of(CUcontext handle) const;
  /// The device's primary context, made (not active) when first asked for.
  Context& primary(int ordinal);

  static CUcontext handle_of(const Context& context);

  // The calling thread's stack.
  static void push(CUcontext handle);
  static std::optional<CUcontext> pop();
  static CUcontext top();

 private:
  std::map<std::uint64_t, Context> contexts_;
  std::map<std::uint64_t, int> erased_;  ///< their devices
  std::array<std::uint64_t, kMaxDevices> primaries_{};
  ReusedHandles handles_{0xc0'0000'0000};
  std::uint64_t last_number_ = 0;
};

}  // namespace gpumem::sim
