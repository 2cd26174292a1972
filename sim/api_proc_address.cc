// Look-up of the driver's functions by base name and version.
#include <cuda.h>
#include <dlfcn.h>

#include <cstring>
#include <string>

#include "sim/api_alias.h"

namespace {

/// A base name stands for `base + suffix` from CUDA version `since` on. The newest first within a name.
struct Version {
  const char* base;
  const char* suffix;
  int since;
};

constexpr Version kVersions[] = {
    {"cuCtxCreate", "_v4", 12050},
    {"cuCtxCreate", "_v3", 11040},
    {"cuCtxCreate", "_v2", 3020},
    {"cuCtxDestroy", "_v2", 4000},
    {"cuCtxPushCurrent", "_v2", 4000},
    {"cuCtxPopCurrent", "_v2", 4000},
    {"cuStreamDestroy", "_v2", 4000},
    {"cuEventDestroy", "_v2", 4000},
    {"cuEventElapsedTime", "_v2", 12080},
    {"cuDevicePrimaryCtxRelease", "_v2", 11000},
    {"cuDevicePrimaryCtxReset", "_v2", 11000},
    {"cuDevicePrimaryCtxSetFlags", "_v2", 11000},
    {"cuDeviceGetUuid", "_v2", 11040},
    {"cuDeviceTotalMem", "_v2", 3020},
    {"cuGetProcAddress", "_v2", 12000},
    {"cuMemGetInfo", "_v2", 3020},
    {"cuMemAlloc", "_v2", 3020},
    {"cuMemFree", "_v2", 3020},
    {"cuMemGetAddressRange", "_v2", 3020},
    {"cuMemAllocHost", "_v2", 3020},
    {"cuMemHostGetDevicePointer", "_v2", 3020},
    {"cuMemHostRegister", "_v2", 6050},
    {"cuMemcpyHtoD", "_v2", 3020},
    {"cuMemcpyDtoH", "_v2", 3020},
    {"cuMemcpyDtoD", "_v2", 3020},
    {"cuMemcpyHtoDAsync", "_v2", 3020},
    {"cuMemcpyDtoHAsync", "_v2", 3020},
    {"cuMemcpyDtoDAsync", "_v2", 3020},
    {"cuMemAllocPitch", "_v2", 3020},
    {"cuMemsetD8", "_v2", 3020},
    {"cuMemsetD16", "_v2", 3020},
    {"cuMemsetD32", "_v2", 3020},
};

/// This very library, whatever other libcuda.so.1 is loaded.
void* own_library() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<void*>(&cuGetErrorName), &self) == 0) return nullptr;
  return ::dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

void* own_symbol(const std::string& name, cuuint64_t flags) {
  static void* const library = own_library();
  if (library == nullptr || !name.starts_with("cu")) return nullptr;
  void* found = nullptr;
  if ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0) {
    found = ::dlsym(library, (name + "_ptsz").c_str());
    if (found == nullptr) found = ::dlsym(library, (name + "_ptds").c_str());
  }
  return found != nullptr ? found : ::dlsym(library, name.c_str());
}

/// The symbol that `base` stands for at `version`; `is_known` tells an old version from an unknown name.
void* resolve(const char* base, int version, cuuint64_t flags, bool& is_known) {
  bool has_versions = false;
  for (const Version& entry : kVersions) {
    if (std::strcmp(entry.base, base) != 0) continue;
    has_versions = true;
    if (entry.since <= version) return own_symbol(std::string(base) + entry.suffix, flags);
  }
  void* const found = own_symbol(base, flags);
  is_known = has_versions || found != nullptr;
  return found;
}

}  // namespace

#undef cuGetProcAddress
extern "C" CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** pfn, int version, cuuint64_t flags,
                                                CUdriverProcAddressQueryResult* status) {
  int newest = 0;
  cuDriverGetVersion(&newest);
  if (symbol == nullptr || pfn == nullptr || version > newest || (flags & ~cuuint64_t{3}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  bool is_known = true;
  *pfn = resolve(symbol, version, flags, is_known);
  if (status != nullptr) {
    *status = *pfn != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : is_known      ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                              : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return CUDA_SUCCESS;
}

extern "C" CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** pfn, int version, cuuint64_t flags) {
  CUdriverProcAddressQueryResult status{};
  const CUresult result = cuGetProcAddress_v2(symbol, pfn, version, flags, &status);
  if (result != CUDA_SUCCESS) return result;
  return *pfn != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/// No such table is simulated: the CUDA runtime checks their integrity and refuses a stand-in.
CUresult cuGetExportTable(const void** table, const CUuuid* /*id*/) {
  if (table == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
