#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "client/allocator/thread_cache.h"
#include "client/shim/calls.h"
#include "client/shim/memory/blocks/context.h"
#include "client/shim/memory/process.h"
#include "client/shim/real.h"

// The first call of a process, its figures for others, and the end of contexts, with which the memory that
// was allocated in them ends, too.

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuCtxDestroy_v2)> real_destroy("cuCtxDestroy_v2");
constinit RealCall<decltype(::cuCtxDetach)> real_detach("cuCtxDetach");
constinit RealCall<decltype(::cuDevicePrimaryCtxRelease_v2)> real_release_context(
    "cuDevicePrimaryCtxRelease_v2");
constinit RealCall<decltype(::cuDevicePrimaryCtxReset_v2)> real_reset("cuDevicePrimaryCtxReset_v2");
constinit RealCall<decltype(::cuCtxEnablePeerAccess)> real_enable_peer("cuCtxEnablePeerAccess");
constinit RealCall<decltype(::cuDevicePrimaryCtxRetain)> real_retain_context("cuDevicePrimaryCtxRetain");
#if CUDA_VERSION >= 12040
constinit RealCall<decltype(::cuGreenCtxDestroy)> real_destroy_green("cuGreenCtxDestroy");
constinit RealCall<decltype(::cuCtxFromGreenCtx)> real_from_green("cuCtxFromGreenCtx");
#endif

/// What ends with a context. It is taken from the books before the driver ends the context: another thread
/// may be given the context's handle, and the addresses of its memory, at once.
class Contents {
 public:
  explicit Contents(CUcontext context)
      : context_(context), blocks_(Process::current().blocks().take_of(context)) {
    move(context_, own_name());
  }
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;

  /// The driver has not ended the context.
  void put_back() {
    for (const Block& block : blocks_) Process::current().blocks().put_back(block);
    move(own_name(), context_);
  }
  /// Frees them. Idle memory of `device` goes back to the broker, as the driver's own would to the device.
  void free(CUdevice device) {
    Process& process = Process::current();
    for (const Block& block : blocks_) {
      process.exports().end(block);
      (void)block.memory->free_idle(block);
    }
    process.outside().ended(own_name());
    process.imports().ended(own_name());
    process.captures().ended_with(own_name());
    if (DeviceMemory* const memory = process.open_memory_of(device); memory != nullptr) memory->trim({});
  }

 private:
  /// Stands for the context where it is only compared.
  CUcontext own_name() { return reinterpret_cast<CUcontext>(this); }
  static void move(CUcontext from, CUcontext to) {
    Process::current().outside().move(from, to);
    Process::current().imports().move(from, to);
    Process::current().captures().move(from, to);
  }

  const CUcontext context_;
  const std::vector<Block> blocks_;
};

/// The primary context of `device` if it is there, else null.
CUcontext primary_of(CUdevice device) {
  CUcontext context = nullptr;
  if (!is_primary_active(device) || real_retain_context(&context, device) != CUDA_SUCCESS) return nullptr;
  real_release_context(device);
  return context;
}

/// `end`  of the primary context, or of one of its uses: whether it was the last one is known afterwards.
/// Meanwhile nobody makes the next context.
template <class End>
CUresult end_primary(CUdevice device, const End& end) {
  return guarded([&] {
    Process& process = Process::current();
    CurrentPool::forget();
    const bool may_take_along = process.open_memory_of(device) != nullptr || process.captures().any();
    std::optional<Contents> gone;
    CUresult ended = CUDA_SUCCESS;
    {
      const MutexLock lock(process.primary_context(device));
      const CUcontext context = may_take_along ? primary_of(device) : nullptr;
      ended = end();
      if (ended == CUDA_SUCCESS && context != nullptr && !is_primary_active(device)) gone.emplace(context);
    }
    if (gone) gone->free(device);
    return ended;
  });
}

/// `end`  of a context that the program has made. `may_stay`  it ends one of its uses.
template <class End>
CUresult end_made(CUcontext context, End& end, bool may_stay) {
  if (context == nullptr) return end(context);
  return guarded([&] {
    CUdevice device = -1;
    if (Process::current().is_brokered()) (void)device_of(context, &device);
    CurrentPool::forget();
    Contents contents(context);
    const CUresult ended = end(context);
    if (ended == CUDA_SUCCESS && !(may_stay && is_there(context)))
      contents.free(device);
    else
      contents.put_back();
    return ended;
  });
}

constinit RealCall<decltype(::cuInit)> real_init("cuInit");

std::optional<MemoryFigures> memory_figures(const unsigned char* named) {
  DeviceMemory::Uuid uuid;
  std::copy_n(named, uuid.size(), uuid.begin());
  return Process::current().figures(uuid);
}

}  // namespace

CUresult calls::cuCtxDestroy_v2(CUcontext ctx) { return end_made(ctx, real_destroy, false); }
CUresult calls::cuCtxDestroy(CUcontext ctx) { return calls::cuCtxDestroy_v2(ctx); }
CUresult calls::cuCtxDetach(CUcontext ctx) { return end_made(ctx, real_detach, true); }

CUresult calls::cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return end_primary(dev, [dev] { return real_release_context(dev); });
}
CUresult calls::cuDevicePrimaryCtxRelease(CUdevice dev) { return calls::cuDevicePrimaryCtxRelease_v2(dev); }

CUresult calls::cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return end_primary(dev, [dev] { return real_reset(dev); });
}
CUresult calls::cuDevicePrimaryCtxReset(CUdevice dev) { return calls::cuDevicePrimaryCtxReset_v2(dev); }

#if CUDA_VERSION >= 12040
// A green context is the primary one with less of the device, and retains it: what was allocated there is the
// primary context's, and stays until that ends.
CUresult calls::cuGreenCtxDestroy(CUgreenCtx hCtx) {
  CUcontext green = nullptr;
  CUdevice device = -1;
  const bool is_known =
      real_from_green(&green, hCtx) == CUDA_SUCCESS && device_of(green, &device) == CUDA_SUCCESS;
  if (!is_known) return real_destroy_green(hCtx);
  if (CUcontext const primary = primary_of(device); primary != nullptr) {
    Process::current().blocks().move(green, primary);
    Process::current().outside().move(green, primary);
    Process::current().imports().move(green, primary);
  }
  // Its streams stay, but no mark can be set in them any more.
  if (DeviceMemory* const memory = Process::current().open_memory_of(device); memory != nullptr)
    memory->mark_streams();
  return end_primary(device, [hCtx] { return real_destroy_green(hCtx); });
}
#endif

// The driver's own call reaches what cuMemAlloc gives; borrowed memory has each device's access of its own.
CUresult calls::cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  return guarded([&] {
    const CUresult enabled = real_enable_peer(peerContext, Flags);
    if (enabled != CUDA_SUCCESS || !Process::current().is_brokered()) return enabled;
    CUdevice owner = -1;
    const CUresult known = device_of(peerContext, &owner);
    return known == CUDA_SUCCESS ? Process::current().allow_peer(owner, CurrentContext::get().device) : known;
  });
}

CUresult calls::cuInit(unsigned int flags) {
  // The kernel takes its time for it in a program with threads, which goes on meanwhile.
  (void)guarded([] {
    allocator::ThreadCache::prepare();
    return CUDA_SUCCESS;
  });
  const CUresult started = real_init(flags);
  if (started != CUDA_SUCCESS) return started;
  return guarded([] { return Process::current().start(); });
}

}  // namespace gpumem::shim

extern "C" bool gpumem_shim_figures(const unsigned char uuid[16], std::uint64_t* total, std::uint64_t* used,
                                    std::uint64_t* free) {
  std::optional<gpumem::shim::MemoryFigures> figures;
  (void)gpumem::shim::guarded([&] {
    figures = gpumem::shim::memory_figures(uuid);
    return CUDA_SUCCESS;
  });
  if (!figures) return false;
  *total = figures->total.count;
  *used = figures->used.count;
  *free = figures->free.count;
  return true;
}

extern "C" bool gpumem_shim_captures() { return gpumem::shim::Process::current().captures().any(); }
