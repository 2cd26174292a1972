// Contexts, and code that is loaded into them, take memory that the driver alone can allocate, and how much
// is known afterwards only. The broker charges it: an estimate with a process's first slice on the device,
// and then what the driver says. So that nothing is counted twice, nothing is charged here; but no context is
// made before that estimate is charged, and nothing more is taken while the tenant is above its limit. Each
// context is announced, so that the broker can leave memory of its pool to the driver.
#include "client/shim/calls.h"
#include "client/shim/calls/charged.h"
#include "client/shim/memory/blocks/context.h"
#include "client/shim/memory/process.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuDevicePrimaryCtxRetain)> real_retain_primary("cuDevicePrimaryCtxRetain");
constinit RealCall<decltype(::cuCtxCreate)> real_create_context("cuCtxCreate");
constinit RealCall<decltype(::cuCtxCreate_v2)> real_create_context_v2("cuCtxCreate_v2");
constinit RealCall<decltype(::cuCtxCreate_v3)> real_create_context_v3("cuCtxCreate_v3");
constinit RealCall<decltype(::cuCtxSetLimit)> real_set_limit("cuCtxSetLimit");
constinit RealCall<decltype(::cuCtxGetLimit)> real_get_limit("cuCtxGetLimit");

/// Makes a context by `forward`, or by `make` where the process has memory of the device. The broker charges
/// it with the process's slice of the device, which is opened before.
template <class Forward, class Make>
CUresult forward_context(const char* call, CUdevice device, const Forward& forward, const Make& make) {
  return guarded([&] {
    Process& process = Process::current();
    if (!process.is_brokered() || !is_device(device)) return forward();  // the driver's to answer
    const auto found = process.memory_of(device);
    if (found.memory == nullptr) return found.result == CUDA_SUCCESS ? forward() : found.result;
    const CUresult fits = found.memory->check_context(call, {});
    return fits == CUDA_SUCCESS ? make(*found.memory) : fits;
  });
}
template <class Forward>
CUresult forward_context(const char* call, CUdevice device, const Forward& forward) {
  return forward_context(call, device, forward,
                         [&](DeviceMemory& memory) { return memory.make_context(call, forward); });
}

/// The additional memory that the driver takes for a limit of this size; zero where that is not known.
Bytes more_for(CUlimit limit, std::size_t value) {
  std::size_t now = 0;
  const bool is_size = limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE;
  if (!is_size || real_get_limit(&now, limit) != CUDA_SUCCESS) return {};
  return Bytes{value}.minus({now});
}

/// Makes by `make` what retains the primary context of `device`, or by `forward` if that is there.
template <class Forward, class Make>
CUresult retain_primary(CUdevice device, const Forward& forward, const Make& make) {
  const MutexLock lock(Process::current().primary_context(device));
  return is_primary_active(device) ? forward() : make();
}

}  // namespace

CUresult calls::cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  constexpr auto kCall = "cuDevicePrimaryCtxRetain";
  const auto forward = [&] { return real_retain_primary(pctx, dev); };
  if (is_primary_active(dev)) return guarded([&] { return retain_primary(dev, forward, forward); });
  return forward_context(kCall, dev, forward, [&](DeviceMemory& memory) {
    return retain_primary(dev, forward, [&] { return memory.make_context(kCall, forward); });
  });
}

CUresult calls::cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return forward_context("cuCtxCreate", dev, [&] { return real_create_context(pctx, flags, dev); });
}
CUresult calls::cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return forward_context("cuCtxCreate", dev, [&] { return real_create_context_v2(pctx, flags, dev); });
}
CUresult calls::cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                               unsigned int flags, CUdevice dev) {
  return forward_context("cuCtxCreate", dev,
                         [&] { return real_create_context_v3(pctx, paramsArray, numParams, flags, dev); });
}
#if CUDA_VERSION >= 12050
namespace {
constinit RealCall<decltype(::cuCtxCreate_v4)> real_create_context_v4("cuCtxCreate_v4");
}  // namespace
CUresult calls::cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                               CUdevice dev) {
  return forward_context("cuCtxCreate", dev,
                         [&] { return real_create_context_v4(pctx, ctxCreateParams, flags, dev); });
}
#endif
#if CUDA_VERSION >= 12040
namespace {
constinit RealCall<decltype(::cuGreenCtxCreate)> real_create_green("cuGreenCtxCreate");
}  // namespace
CUresult calls::cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                                 unsigned int flags) {
  constexpr auto kCall = "cuGreenCtxCreate";
  const auto forward = [&] { return real_create_green(phCtx, desc, dev, flags); };
  // Beside the primary context, it takes no memory.
  return forward_context(kCall, dev, forward, [&](DeviceMemory& memory) {
    return retain_primary(dev, forward, [&] { return memory.make_context(kCall, forward); });
  });
}
#endif

CUresult calls::cuCtxSetLimit(CUlimit limit, size_t value) {
  return guarded([&] {
    const Bytes more = more_for(limit, value);
    const CUresult fits = more.is_zero() ? CUDA_SUCCESS : check_current_context("cuCtxSetLimit", more);
    return fits == CUDA_SUCCESS ? real_set_limit(limit, value) : fits;
  });
}

}  // namespace gpumem::shim
