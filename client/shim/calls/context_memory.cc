// Contexts, and what is loaded into them, take memory that the driver alone can allocate, and how much is
// known afterwards only. The broker charges it: an estimate with a process's first slice on the device, and
// then what the driver says. So that nothing is counted twice, nothing is charged here; but no context is
// made before that estimate is charged, and nothing more is taken while the tenant is above its limit.
#include "client/shim/calls.h"
#include "client/shim/calls/guarded.h"
#include "client/shim/memory/context.h"
#include "client/shim/memory/process.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuDevicePrimaryCtxRetain)> real_retain("cuDevicePrimaryCtxRetain");
constinit RealCall<decltype(::cuCtxCreate)> real_create("cuCtxCreate");
constinit RealCall<decltype(::cuCtxCreate_v2)> real_create_v2("cuCtxCreate_v2");
constinit RealCall<decltype(::cuCtxCreate_v3)> real_create_v3("cuCtxCreate_v3");
constinit RealCall<decltype(::cuCtxSetLimit)> real_set_limit("cuCtxSetLimit");
constinit RealCall<decltype(::cuCtxGetLimit)> real_get_limit("cuCtxGetLimit");
constinit RealCall<decltype(::cuModuleLoad)> real_load("cuModuleLoad");
constinit RealCall<decltype(::cuModuleLoadData)> real_load_data("cuModuleLoadData");
constinit RealCall<decltype(::cuModuleLoadDataEx)> real_load_data_ex("cuModuleLoadDataEx");
constinit RealCall<decltype(::cuModuleLoadFatBinary)> real_load_fat_binary("cuModuleLoadFatBinary");

/// Opens the process's slice of the device, with which the broker charges a context there.
CUresult charge_context(const char* call, CUdevice device) {
  Process& process = Process::current();
  if (!process.is_brokered() || !is_device(device)) return CUDA_SUCCESS;  // the driver's to answer
  const auto found = process.memory_of(device);
  return found.memory != nullptr ? found.memory->check_context(call, {}) : found.result;
}

/// Whether the current context may take `more`.
CUresult check_current(const char* call, Bytes more) {
  const Process& process = Process::current();
  if (!process.is_brokered()) return CUDA_SUCCESS;
  const CurrentContext current = CurrentContext::get();
  DeviceMemory* const memory =
      current.result == CUDA_SUCCESS ? process.open_memory_of(current.device) : nullptr;
  return memory != nullptr ? memory->check_context(call, more) : CUDA_SUCCESS;
}

template <class Forward>
CUresult forward_context(const char* call, CUdevice device, const Forward& forward) {
  return guarded([&] {
    const CUresult charged = charge_context(call, device);
    return charged == CUDA_SUCCESS ? forward() : charged;
  });
}

template <class Forward>
CUresult forward_load(const char* call, const Forward& forward) {
  return guarded([&] {
    const CUresult fits = check_current(call, {});
    return fits == CUDA_SUCCESS ? forward() : fits;
  });
}

/// What a limit of this size takes beyond what it is now; nothing where that cannot be told.
Bytes more_for(CUlimit limit, std::size_t value) {
  std::size_t now = 0;
  const bool is_size = limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE;
  if (!is_size || real_get_limit(&now, limit) != CUDA_SUCCESS) return {};
  return Bytes{value}.minus({now});
}

}  // namespace

CUresult calls::cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  const auto forward = [&] { return real_retain(pctx, dev); };
  return is_primary_active(dev) ? forward() : forward_context("cuDevicePrimaryCtxRetain", dev, forward);
}

CUresult calls::cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return forward_context("cuCtxCreate", dev, [&] { return real_create(pctx, flags, dev); });
}
CUresult calls::cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return forward_context("cuCtxCreate", dev, [&] { return real_create_v2(pctx, flags, dev); });
}
CUresult calls::cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                               unsigned int flags, CUdevice dev) {
  return forward_context("cuCtxCreate", dev,
                         [&] { return real_create_v3(pctx, paramsArray, numParams, flags, dev); });
}
#if CUDA_VERSION >= 12050
namespace {
constinit RealCall<decltype(::cuCtxCreate_v4)> real_create_v4("cuCtxCreate_v4");
}  // namespace
CUresult calls::cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                               CUdevice dev) {
  return forward_context("cuCtxCreate", dev,
                         [&] { return real_create_v4(pctx, ctxCreateParams, flags, dev); });
}
#endif
#if CUDA_VERSION >= 12040
namespace {
constinit RealCall<decltype(::cuGreenCtxCreate)> real_create_green("cuGreenCtxCreate");
}  // namespace
CUresult calls::cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                                 unsigned int flags) {
  return forward_context("cuGreenCtxCreate", dev, [&] { return real_create_green(phCtx, desc, dev, flags); });
}
#endif

CUresult calls::cuCtxSetLimit(CUlimit limit, size_t value) {
  return guarded([&] {
    const Bytes more = more_for(limit, value);
    const CUresult fits = more.is_zero() ? CUDA_SUCCESS : check_current("cuCtxSetLimit", more);
    return fits == CUDA_SUCCESS ? real_set_limit(limit, value) : fits;
  });
}

CUresult calls::cuModuleLoad(CUmodule* module, const char* fname) {
  return forward_load("cuModuleLoad", [&] { return real_load(module, fname); });
}
CUresult calls::cuModuleLoadData(CUmodule* module, const void* image) {
  return forward_load("cuModuleLoadData", [&] { return real_load_data(module, image); });
}
CUresult calls::cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                                   CUjit_option* options, void** optionValues) {
  return forward_load("cuModuleLoadDataEx",
                      [&] { return real_load_data_ex(module, image, numOptions, options, optionValues); });
}
CUresult calls::cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return forward_load("cuModuleLoadFatBinary", [&] { return real_load_fat_binary(module, fatCubin); });
}
#if CUDA_VERSION >= 12000
namespace {
constinit RealCall<decltype(::cuLibraryLoadData)> real_load_library("cuLibraryLoadData");
constinit RealCall<decltype(::cuLibraryLoadFromFile)> real_load_library_file("cuLibraryLoadFromFile");
}  // namespace
CUresult calls::cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                                  void** jitOptionsValues, unsigned int numJitOptions,
                                  CUlibraryOption* libraryOptions, void** libraryOptionValues,
                                  unsigned int numLibraryOptions) {
  return forward_load("cuLibraryLoadData", [&] {
    return real_load_library(library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
                             libraryOptionValues, numLibraryOptions);
  });
}
CUresult calls::cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                                      void** jitOptionsValues, unsigned int numJitOptions,
                                      CUlibraryOption* libraryOptions, void** libraryOptionValues,
                                      unsigned int numLibraryOptions) {
  return forward_load("cuLibraryLoadFromFile", [&] {
    return real_load_library_file(library, fileName, jitOptions, jitOptionsValues, numJitOptions,
                                  libraryOptions, libraryOptionValues, numLibraryOptions);
  });
}
#endif

}  // namespace gpumem::shim
