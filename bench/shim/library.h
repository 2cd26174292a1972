#pragma once
#include <dlfcn.h>

#include <string>

#include "bench/must.h"

namespace gpumem::bench {

/// An opened library, such as a libcuda.so.1. It stays open.
class Library {
 public:
  /// `more`  flags of dlopen.
  explicit Library(const std::string& file, int more = 0)
      : handle_(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | more)) {
    require(handle_ != nullptr, "dlopen", handle_ != nullptr ? file : ::dlerror());
  }

  /// The function `name`, which has the type of `Function`.
  template <class Function>
  Function* find(const char* name) const {
    auto* const found = find_if_there<Function>(name);
    require(found != nullptr, "dlsym", name);
    return found;
  }
  /// Null: it has none.
  template <class Function>
  Function* find_if_there(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(handle_, name));
  }

 private:
  void* handle_;
};

}  // namespace gpumem::bench
