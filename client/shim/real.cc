#include "client/shim/real.h"

#include <dlfcn.h>

#include "base/system/large_stack.h"

namespace gpumem::shim {
namespace {

constinit Published<RealLibrary> published_library;

const RealLibrary& real_library() {
  return published_library.get(
      [] { return on_large_stack([] { return find_real_library(kOwnLibrary.file); }); });
}

}  // namespace

void* real_symbol(const char* name) noexcept {
  void* const handle = real_library().handle;
  return handle != nullptr ? ::dlsym(handle, name) : nullptr;
}

const std::filesystem::path& real_folder() { return real_library().folder; }

int answer_without_real() noexcept {
  return real_library().handle != nullptr ? kOwnLibrary.without_call : kOwnLibrary.without_driver;
}

}  // namespace gpumem::shim
