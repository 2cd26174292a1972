#include <algorithm>
#include <cstdint>
#include <optional>

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
constinit RealCall<decltype(::cuDevicePrimaryCtxRelease_v2)> real_release_context(
    "cuDevicePrimaryCtxRelease_v2");
constinit RealCall<decltype(::cuDevicePrimaryCtxReset_v2)> real_reset("cuDevicePrimaryCtxReset_v2");
constinit RealCall<decltype(::cuCtxEnablePeerAccess)> real_enable_peer("cuCtxEnablePeerAccess");
constinit RealCall<decltype(::cuDevicePrimaryCtxRetain)> real_retain_context("cuDevicePrimaryCtxRetain");
#if CUDA_VERSION >= 12040
constinit RealCall<decltype(::cuGreenCtxDestroy)> real_destroy_green("cuGreenCtxDestroy");
constinit RealCall<decltype(::cuCtxFromGreenCtx)> real_from_green("cuCtxFromGreenCtx");
#endif

/// Frees what the context of `device` has taken along, of which `blocks` were allocated in it. Idle memory of
/// the device goes back to the broker, as the driver's own would to the device.
void clean_up_after(CUcontext context, CUdevice device, const std::vector<Block>& blocks) {
  for (const Block& block : blocks) {
    Process::current().exports().end(block);
    (void)block.memory->free_idle(block);
  }
  Process::current().outside().ended(context);
  Process::current().imports().ended(context);
  Process::current().captures().ended_with(context);
  if (DeviceMemory* const memory = Process::current().open_memory_of(device); memory != nullptr)
    memory->trim({});
}

/// The primary context of `device` if it is there, else null.
CUcontext primary_of(CUdevice device) {
  CUcontext context = nullptr;
  if (!is_primary_active(device) || real_retain_context(&context, device) != CUDA_SUCCESS) return nullptr;
  real_release_context(device);
  return context;
}

/// `end`  of the primary context, or of one of its uses.
template <class End>
CUresult end_primary(CUdevice device, const End& end) {
  return guarded([&] {
    const Process& process = Process::current();
    const bool may_take_along = process.open_memory_of(device) != nullptr || process.captures().any();
    const CUcontext context = may_take_along ? primary_of(device) : nullptr;
    const CUresult ended = end();
    if (ended == CUDA_SUCCESS && context != nullptr && !is_primary_active(device))
      clean_up_after(context, device, Process::current().blocks().take_of(context));
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

CUresult calls::cuCtxDestroy_v2(CUcontext ctx) {
  return guarded([&] {
    // Before: the next context may have its handle at once.
    Blocks& all = Process::current().blocks();
    const std::vector<Block> blocks = all.take_of(ctx);
    CUdevice device = -1;
    if (Process::current().is_brokered()) (void)device_of(ctx, &device);
    const CUresult ended = real_destroy(ctx);
    if (ended == CUDA_SUCCESS)
      clean_up_after(ctx, device, blocks);
    else
      for (const Block& block : blocks) all.put_back(block);
    return ended;
  });
}
CUresult calls::cuCtxDestroy(CUcontext ctx) { return calls::cuCtxDestroy_v2(ctx); }

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
