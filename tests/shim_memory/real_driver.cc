// The real driver of these tests: the library that GPUMEM_REAL_LIBCUDA names, a simulated machine's.
#include "client/shim/real.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>

namespace gpumem::shim {
namespace {

const std::filesystem::path& library() {
  static const auto* const kLibrary = [] {
    const char* named = std::getenv("GPUMEM_REAL_LIBCUDA");
    return new std::filesystem::path(named != nullptr ? named : "");
  }();
  return *kLibrary;
}

}  // namespace

void* real_symbol(const char* name) noexcept {
  static void* const kHandle = ::dlopen(library().c_str(), RTLD_NOW | RTLD_LOCAL);
  return kHandle != nullptr ? ::dlsym(kHandle, name) : nullptr;
}

const std::filesystem::path& real_folder() {
  static const auto* const kFolder = new std::filesystem::path(library().parent_path());
  return *kFolder;
}

int answer_without_real() noexcept { return CUDA_ERROR_NOT_FOUND; }

}  // namespace gpumem::shim
