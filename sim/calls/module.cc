// Modules and libraries: their variables take memory. Nothing of them can be run, or found by its name.
#include <cuda.h>

#include <fstream>
#include <iterator>

#include "calls.h"
#include "sim/calls/find_object.h"

namespace gpumem::sim {
namespace {

template <class Handle>
constexpr bool kIsLibrary = false;
#if CUDA_VERSION >= 12000
template <>
constexpr bool kIsLibrary<CUlibrary> = true;
#endif

template <class Handle>
CUresult load(Handle* out, const void* image) {
  return with_current([&](Call& driver, const Context& context) {
    if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t number = 0;
    const CUresult loaded = driver->modules.load(context.id, image_at(image), kIsLibrary<Handle>, &number);
    if (loaded == CUDA_SUCCESS) *out = handle<Handle>(number);
    return loaded;
  });
}

template <class Handle>
CUresult load_file(Handle* out, const char* name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(name, std::ios::binary);
  const std::string code{std::istreambuf_iterator<char>(file), {}};
  return file ? load(out, code.c_str()) : CUDA_ERROR_FILE_NOT_FOUND;
}

template <class Handle>
CUresult unload(Handle named) {
  Call driver;
  if (!driver) return driver.error();
  Module* const module = driver->modules.find(number(named), kIsLibrary<Handle>);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  driver->modules.unload(*module);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuModuleLoad(CUmodule* out, const char* file) { return load_file(out, file); }
CUresult api::cuModuleLoadData(CUmodule* out, const void* image) { return load(out, image); }
CUresult api::cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned int, CUjit_option*, void**) {
  return load(out, image);
}
CUresult api::cuModuleLoadFatBinary(CUmodule* out, const void* image) { return load(out, image); }
CUresult api::cuModuleUnload(CUmodule named) { return unload(named); }

#if CUDA_VERSION >= 12000
CUresult api::cuLibraryLoadData(CUlibrary* out, const void* code, CUjit_option*, void**, unsigned int,
                                CUlibraryOption*, void**, unsigned int) {
  return load(out, code);
}
CUresult api::cuLibraryLoadFromFile(CUlibrary* out, const char* file, CUjit_option*, void**, unsigned int,
                                    CUlibraryOption*, void**, unsigned int) {
  return load_file(out, file);
}
CUresult api::cuLibraryUnload(CUlibrary named) { return unload(named); }
#endif

}  // namespace gpumem::sim
