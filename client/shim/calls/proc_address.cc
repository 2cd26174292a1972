// Look-up of driver functions: the real driver's answer, with the shim's functions in place of those that it
// replaces. By address and not by name, so that version and flags mean exactly what they mean to the driver.
#include <dlfcn.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "client/shim/calls.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuGetProcAddress)> real_look_up("cuGetProcAddress");
constinit RealCall<decltype(::cuGetProcAddress_ptsz)> real_look_up_per_thread("cuGetProcAddress_ptsz");

constinit Published<void*> published_own;

/// The driver's answer. Without a driver, it is the shim's own function of that name, which says so: programs
/// that find no function at all take the driver for broken.
CUresult look_up(const char* symbol, void** pfn, int version, cuuint64_t flags) {
  const bool is_there = real_look_up.get() != nullptr || answer_without_real() != kOwnLibrary.without_driver;
  if (is_there) return real_look_up(symbol, pfn, version, flags);
  if (symbol == nullptr || pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  void* const own = published_own.get([] {
    Dl_info file{};
    const bool is_known = ::dladdr(&real_look_up, &file) != 0;
    return is_known ? ::dlopen(file.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  });
  *pfn = own != nullptr ? ::dlsym(own, symbol) : nullptr;
  return *pfn != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/// Without flags, a program for the per-thread default stream means the functions of that stream.
cuuint64_t per_thread(cuuint64_t flags) {
  return flags != CU_GET_PROC_ADDRESS_DEFAULT ? flags
                                              : cuuint64_t{CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};
}

/// The look-up's own function of that version and these flags: the driver may know it by an address that it
/// does not export.
void* own_look_up(int version, cuuint64_t flags) {
  const bool is_per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
#if CUDA_VERSION >= 12000
  if (version >= 12000) {
    return is_per_thread ? reinterpret_cast<void*>(&::cuGetProcAddress_v2_ptsz)
                         : reinterpret_cast<void*>(&::cuGetProcAddress_v2);
  }
#endif
  return is_per_thread ? reinterpret_cast<void*>(&::cuGetProcAddress_ptsz)
                       : reinterpret_cast<void*>(&::cuGetProcAddress);
}

/// The real address of a call and the exported function of the shim, ordered by the former.
using Replacements = std::vector<std::pair<void*, void*>>;

Replacements look_up_all() {
  const std::pair<const char*, void*> replaced[] = {
#define GPUMEM_SHIM_CALL(name, treatment, why) {#name, reinterpret_cast<void*>(&::name)},
#include "client/shim/calls.def"
#undef GPUMEM_SHIM_CALL
  };
  Replacements found;
  for (const auto& [name, ours] : replaced) {
    if (void* const address = real_symbol(name); address != nullptr) found.emplace_back(address, ours);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return std::less<void*>()(a.first, b.first); });
  return found;
}

constinit Published<Replacements> published_replacements;

/// The shim's function in place of the real driver's at `address`; `address` itself if that one is not
/// replaced. The first use looks up the real address of every replaced call; later ones take no lock.
void* replacement_of(void* address) {
  const Replacements& all = published_replacements.get(look_up_all);
  const auto found = std::lower_bound(all.begin(), all.end(), address, [](const auto& entry, void* wanted) {
    return std::less<void*>()(entry.first, wanted);
  });
  return found != all.end() && found->first == address ? found->second : address;
}

/// The driver's answer. If the shim replaces that function, `*pfn` becomes the shim's.
CUresult replaced(CUresult result, const char* symbol, void** pfn, int version, cuuint64_t flags) {
  if (result != CUDA_SUCCESS || pfn == nullptr || *pfn == nullptr) return result;
  void* const real = *pfn;
  *pfn = replacement_of(real);
  if (*pfn == real && std::string_view(symbol) == "cuGetProcAddress") *pfn = own_look_up(version, flags);
  return result;
}

}  // namespace

CUresult calls::cuGetProcAddress(const char* symbol, void** pfn, int version, cuuint64_t flags) {
  return replaced(look_up(symbol, pfn, version, flags), symbol, pfn, version, flags);
}

CUresult calls::cuGetProcAddress_ptsz(const char* symbol, void** pfn, int version, cuuint64_t flags) {
  if (real_look_up_per_thread.get() == nullptr) {
    return calls::cuGetProcAddress(symbol, pfn, version, per_thread(flags));
  }
  return replaced(real_look_up_per_thread(symbol, pfn, version, flags), symbol, pfn, version,
                  per_thread(flags));
}

#if CUDA_VERSION >= 12000
namespace {

using Status = CUdriverProcAddressQueryResult;

constinit RealCall<decltype(::cuGetProcAddress_v2)> real_look_up_v2("cuGetProcAddress_v2");
constinit RealCall<decltype(::cuGetProcAddress_v2_ptsz)> real_look_up_v2_per_thread(
    "cuGetProcAddress_v2_ptsz");

/// By the form of CUDA 11, where there is no driver or that has no other: it tells by its result what the
/// newer one tells by `status`.
CUresult look_up_by_v1(const char* symbol, void** pfn, int version, cuuint64_t flags, Status* status) {
  const CUresult result = look_up(symbol, pfn, version, flags);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_FOUND) return result;
  if (status != nullptr) {
    *status = result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  if (result == CUDA_ERROR_NOT_FOUND) *pfn = nullptr;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult calls::cuGetProcAddress_v2(const char* symbol, void** pfn, int version, cuuint64_t flags,
                                    Status* status) {
  const CUresult result = real_look_up_v2.get() != nullptr
                              ? real_look_up_v2(symbol, pfn, version, flags, status)
                              : look_up_by_v1(symbol, pfn, version, flags, status);
  return replaced(result, symbol, pfn, version, flags);
}

CUresult calls::cuGetProcAddress_v2_ptsz(const char* symbol, void** pfn, int version, cuuint64_t flags,
                                         Status* status) {
  if (real_look_up_v2_per_thread.get() == nullptr) {
    return calls::cuGetProcAddress_v2(symbol, pfn, version, per_thread(flags), status);
  }
  return replaced(real_look_up_v2_per_thread(symbol, pfn, version, flags, status), symbol, pfn, version,
                  per_thread(flags));
}
#endif

// Without a driver every call says that there is no GPU. Programs that can do without one then do, as they do
// where no libcuda.so.1 is installed; CUDA_ERROR_STUB_LIBRARY would tell them of a broken installation.
//
// 36 is CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, which older headers lack. With an older driver alone the call
// would be a missing symbol.
constinit const OwnLibrary kOwnLibrary{.file = "libcuda.so.1",
                                       .without_driver = CUDA_ERROR_NO_DEVICE,
                                       .without_call = 36,
                                       .in_words = nullptr,
                                       .words = nullptr};

}  // namespace gpumem::shim
