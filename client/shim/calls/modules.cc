// Modules and libraries. Their code, and variables of less than a unit of the device's memory, are a part of
// the context, which the broker measures. Larger variables are charged before they are there: their size is
// known.
#include <fcntl.h>
#include <unistd.h>

#include "base/device_code.h"
#include "base/system/unique_fd.h"
#include "client/shim/calls.h"
#include "client/shim/calls/charged.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuDeviceGetAttribute)> real_device_attribute("cuDeviceGetAttribute");
constinit RealCall<decltype(::cuModuleLoad)> real_load("cuModuleLoad");
constinit RealCall<decltype(::cuModuleLoadData)> real_load_data("cuModuleLoadData");
constinit RealCall<decltype(::cuModuleLoadDataEx)> real_load_data_ex("cuModuleLoadDataEx");
constinit RealCall<decltype(::cuModuleLoadFatBinary)> real_load_fat_binary("cuModuleLoadFatBinary");
constinit RealCall<decltype(::cuModuleUnload)> real_unload("cuModuleUnload");

/// 90 for sm_90; 0 if the driver does not tell.
unsigned architecture_of(CUdevice device) {
  int major = 0, minor = 0;
  const bool is_told =
      real_device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) == CUDA_SUCCESS &&
      real_device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) == CUDA_SUCCESS;
  return is_told ? static_cast<unsigned>(major * 10 + minor) : 0;
}

/// The charge for `image` in the current context, in whole units.
Bytes charge_for(const ReadImage& image) {
  if (!Process::current().is_brokered()) return {};
  const CurrentContext current = CurrentContext::get();
  if (current.result != CUDA_SUCCESS) return {};
  const DeviceMemory* const memory = Process::current().memory_of(current.device).memory;
  if (memory == nullptr) return {};
  const Bytes variables = variables_of(image, architecture_of(current.device));
  return variables < memory->granularity() ? Bytes{} : variables;
}

template <class Handle, class Forward>
CUresult forward_load(const char* call, const ReadImage& image, const Handle* out, const Forward& forward) {
  return guarded([&] {
    const CUresult fits = check_current_context(call, {});
    if (fits != CUDA_SUCCESS) return fits;
    const Bytes bytes = out != nullptr ? charge_for(image) : Bytes{};
    if (bytes.is_zero()) return forward();
    return forward_charged(
        call, [&](CUdevice) { return bytes; }, forward, [&] { return Outside::Name(*out); });
  });
}

template <class Handle, class Forward>
CUresult forward_load_file(const char* call, const char* name, const Handle* out, const Forward& forward) {
  const UniqueFd file(name != nullptr ? ::open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1);
  const auto image = [&file](std::uint64_t offset, void* to, std::size_t size) {
    return ::pread(file.get(), to, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
  };
  return forward_load(call, image, out, forward);
}

template <class Handle, class Forward>
CUresult forward_unload(Handle handle, const Forward& forward) {
  return guarded([&] { return Process::current().outside().free(Outside::Name(handle), forward); });
}

}  // namespace

CUresult calls::cuModuleLoad(CUmodule* module, const char* fname) {
  return forward_load_file("cuModuleLoad", fname, module, [&] { return real_load(module, fname); });
}
CUresult calls::cuModuleLoadData(CUmodule* module, const void* image) {
  return forward_load("cuModuleLoadData", image_at(image), module,
                      [&] { return real_load_data(module, image); });
}
CUresult calls::cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                                   CUjit_option* options, void** optionValues) {
  return forward_load("cuModuleLoadDataEx", image_at(image), module,
                      [&] { return real_load_data_ex(module, image, numOptions, options, optionValues); });
}
CUresult calls::cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return forward_load("cuModuleLoadFatBinary", image_at(fatCubin), module,
                      [&] { return real_load_fat_binary(module, fatCubin); });
}
CUresult calls::cuModuleUnload(CUmodule hmod) {
  return forward_unload(hmod, [hmod] { return real_unload(hmod); });
}
#if CUDA_VERSION >= 12000
namespace {
constinit RealCall<decltype(::cuLibraryLoadData)> real_load_library("cuLibraryLoadData");
constinit RealCall<decltype(::cuLibraryLoadFromFile)> real_load_library_file("cuLibraryLoadFromFile");
constinit RealCall<decltype(::cuLibraryUnload)> real_unload_library("cuLibraryUnload");
}  // namespace
CUresult calls::cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                                  void** jitOptionsValues, unsigned int numJitOptions,
                                  CUlibraryOption* libraryOptions, void** libraryOptionValues,
                                  unsigned int numLibraryOptions) {
  return forward_load("cuLibraryLoadData", image_at(code), library, [&] {
    return real_load_library(library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
                             libraryOptionValues, numLibraryOptions);
  });
}
CUresult calls::cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                                      void** jitOptionsValues, unsigned int numJitOptions,
                                      CUlibraryOption* libraryOptions, void** libraryOptionValues,
                                      unsigned int numLibraryOptions) {
  return forward_load_file("cuLibraryLoadFromFile", fileName, library, [&] {
    return real_load_library_file(library, fileName, jitOptions, jitOptionsValues, numJitOptions,
                                  libraryOptions, libraryOptionValues, numLibraryOptions);
  });
}
CUresult calls::cuLibraryUnload(CUlibrary library) {
  return forward_unload(library, [library] { return real_unload_library(library); });
}
#endif

}  // namespace gpumem::shim
