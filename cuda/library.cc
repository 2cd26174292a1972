#include "cuda/library.h"

#include <dlfcn.h>

#include <atomic>

#include "base/system/system_mode.h"

namespace gpumem::cuda {
namespace {

std::atomic<bool> passes_by_drop_in = false;

void* open_library(const std::string& path) { return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); }

}  // namespace

void Library::pass_by_drop_in() { passes_by_drop_in = true; }

Result<Library> Library::open(const std::filesystem::path& folder, const std::string& name) {
  const std::string path = folder.empty() ? name : (folder / name).string();
  void* handle = open_library(path);
  if (handle != nullptr && folder.empty() && passes_by_drop_in &&
      ::dlsym(handle, "gpumem_shim_version") != nullptr) {
    if (const std::string real = system_mode::real_library(name).string(); !real.empty())
      handle = open_library(real);
  }
  if (handle == nullptr) {
    const char* words = ::dlerror();
    return Error{Code::kNotFound, words != nullptr ? words : path + " cannot be loaded"};
  }
  return Library(handle, path);
}

void* Library::find(const char* symbol) const { return ::dlsym(handle_, symbol); }

Error Library::missing(const char* symbol) const {
  return {Code::kFailedPrecondition,
          name_ + " has no " + symbol + "; the NVIDIA driver is too old (520 or newer is needed)"};
}

}  // namespace gpumem::cuda
