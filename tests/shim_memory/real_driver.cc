// The real driver of these tests: the library that GPUMEM_REAL_LIBCUDA names, a simulated machine's.
#include "client/shim/real.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>

#include <map>
#include <string>

#include "tests/shim_memory/scene.h"

namespace gpumem::shim {
namespace {

std::map<std::string, void*>& stand_ins() {
  static auto* const kStandIns = new std::map<std::string, void*>;
  return *kStandIns;
}

const std::filesystem::path& library() {
  static const auto* const kLibrary = [] {
    const char* named = std::getenv("GPUMEM_REAL_LIBCUDA");
    return new std::filesystem::path(named != nullptr ? named : "");
  }();
  return *kLibrary;
}

}  // namespace

void test::stand_in(const char* name, void* function) { stand_ins()[name] = function; }

void* real_symbol(const char* name) noexcept {
  if (const auto found = stand_ins().find(name); found != stand_ins().end()) return found->second;
  static void* const kHandle = ::dlopen(library().c_str(), RTLD_NOW | RTLD_LOCAL);
  return kHandle != nullptr ? ::dlsym(kHandle, name) : nullptr;
}

const std::filesystem::path& real_folder() {
  static const auto* const kFolder = new std::filesystem::path(library().parent_path());
  return *kFolder;
}

int answer_without_real() noexcept { return CUDA_ERROR_NOT_FOUND; }

}  // namespace gpumem::shim
