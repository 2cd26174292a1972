// Look-up of the driver's functions by base name and version.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "calls.h"
#include "sim/exports/per_thread_default.h"

namespace gpumem::sim {
namespace {

/// A base name stands for `name` from CUDA version `since` on. The newest first within a base name.
struct Version {
  std::string_view base;
  int since;
  const char* name;
};

constexpr Version kVersions[] = {
#include "versions.inc"
};

/// This very library, whatever other libcuda.so.1 is loaded.
void* own_library() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<void*>(&own_library), &self) == 0) return nullptr;
  return ::dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

/// Since then there are functions for the stream of a thread's own.
constexpr int kPerThreadSince = 7000;

void* own_symbol(const std::string& name, int version, cuuint64_t flags) {
  static void* const library = own_library();
  if (library == nullptr || !name.starts_with("cu")) return nullptr;
  void* found = nullptr;
  if ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0) {
    found = ::dlsym(library, (name + "_ptsz").c_str());
    if (found == nullptr) found = ::dlsym(library, (name + "_ptds").c_str());
    if (found != nullptr && version < kPerThreadSince) return nullptr;
  }
  return found != nullptr ? found : ::dlsym(library, name.c_str());
}

struct ByBase {
  bool operator()(const Version& version, std::string_view base) const { return version.base < base; }
  bool operator()(std::string_view base, const Version& version) const { return base < version.base; }
};

/// The symbol that `base` stands for at `version`; `is_known` tells an old version from an unknown name.
void* resolve(std::string_view base, int version, cuuint64_t flags, bool& is_known) {
  const auto [begin, end] = std::equal_range(std::begin(kVersions), std::end(kVersions), base, ByBase());
  is_known = begin != end;
  const auto* const found =
      std::find_if(begin, end, [=](const Version& entry) { return entry.since <= version; });
  return found == end ? nullptr : own_symbol(found->name, version, flags);
}

/// The common part of both forms of the look-up. `*found` becomes nullptr if there is no such function.
CUresult look_up(const char* symbol, void** found, int version, cuuint64_t flags, bool& is_known) {
  constexpr cuuint64_t kKnown =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  int newest = 0;
  api::cuDriverGetVersion(&newest);
  if (symbol == nullptr || found == nullptr || version > newest || (flags & ~kKnown) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (flags == 0 && PerThreadDefault::is_on()) flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  *found = resolve(symbol, version, flags, is_known);
  return CUDA_SUCCESS;
}

}  // namespace

#if CUDA_VERSION >= 12000
CUresult api::cuGetProcAddress_v2(const char* symbol, void** pfn, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult* status) {
  bool is_known = true;
  const CUresult result = look_up(symbol, pfn, version, flags, is_known);
  if (result != CUDA_SUCCESS || status == nullptr) return result;
  *status = *pfn != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
            : is_known      ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                            : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}
#endif

CUresult api::cuGetProcAddress(const char* symbol, void** pfn, int version, cuuint64_t flags) {
  bool is_known = true;
  const CUresult result = look_up(symbol, pfn, version, flags, is_known);
  if (result != CUDA_SUCCESS) return result;
  return *pfn != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/// No such table is simulated: the CUDA runtime checks their integrity and refuses a stand-in.
CUresult api::cuGetExportTable(const void** table, const CUuuid* /*id*/) {
  if (table == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace gpumem::sim
