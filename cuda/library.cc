#include "cuda/library.h"

#include <dlfcn.h>

namespace gpumem::cuda {

Result<Library> Library::open(const std::filesystem::path& folder, const std::string& name) {
  const std::string path = folder.empty() ? name : (folder / name).string();
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
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
