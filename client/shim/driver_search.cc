#include "client/shim/real.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/system/absolute_path.h"
#include "base/system/loader_cache.h"
#include "base/thread_guards.h"
#include "client/shim/system_mode.h"

namespace gpumem::shim {
namespace {

using Path = std::filesystem::path;

constexpr const char* kInstalled[] = {"/usr/lib/x86_64-linux-gnu",  "/usr/lib64",
                                      "/usr/lib/aarch64-linux-gnu", "/usr/local/nvidia/lib64",
                                      "/usr/local/cuda/compat",     "/usr/lib/wsl/lib"};

/// Nothing where the program has more rights than its user, who sets the environment.
std::string_view environment(const char* name) {
  const char* const value = ::secure_getenv(name);
  return value != nullptr ? value : std::string_view();
}

/// The folder that $GPUMEM_REAL_LIBCUDA names, by itself or by the file in it; empty if it is not set.
Path named_folder() {
  const Path named = environment("GPUMEM_REAL_LIBCUDA");
  return named.filename().string().starts_with("libcuda.so") ? named.parent_path() : named;
}

/// Folders in the order in which `file` is looked for. Only absolute ones: the loader takes a path without a
/// slash for a name, and finds the shim by it. In system mode the loader has looked through LD_LIBRARY_PATH
/// in vain when the program started; what the program has set since is for its children.
std::vector<Path> folders(const std::string& file) {
  std::vector<Path> all;
  if (const Path named = named_folder(); !named.empty()) all.push_back(absolute_or_same(named));
  std::string_view rest = is_system_mode() ? std::string_view() : environment("LD_LIBRARY_PATH");
  while (!rest.empty()) {
    const std::size_t end = rest.find_first_of(":;");
    const Path folder = rest.substr(0, end);
    if (folder.is_absolute()) all.push_back(folder);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  for (const Path& cached : libraries_in_cache(file)) all.push_back(cached.parent_path());
  all.insert(all.end(), std::begin(kInstalled), std::end(kInstalled));
  return all;
}

bool is_this_file(const struct stat& info) {
  Dl_info self{};
  struct stat own {};
  return ::dladdr(reinterpret_cast<const void*>(&find_real_library), &self) != 0 &&
         ::stat(self.dli_fname, &own) == 0 && own.st_dev == info.st_dev && own.st_ino == info.st_ino;
}

/// Null if there is no such file, if it is a shim, or if it cannot be loaded: then `why` says it.
void* load(const Path& path, std::string& why) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return nullptr;
  if (is_this_file(info)) return nullptr;
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const words = ::dlerror();
    why = words != nullptr ? words : path.string() + " cannot be loaded";
    return nullptr;
  }
  if (::dlsym(handle, "gpumem_shim_version") == nullptr) return handle;
  ::dlclose(handle);
  return nullptr;
}

/// Says what to do; once in a process, though several threads may find out at the same time. Says nothing in
/// system mode: the program has not asked for gpumem.
void say_missing(const std::string& what) {
  static std::atomic<bool> said = false;
  if (is_system_mode() || said.exchange(true)) return;
  const NoPipeSignal no_signal;
  std::fprintf(stderr, "gpumem: no NVIDIA driver: %s\n", what.c_str());
}

}  // namespace

RealLibrary find_real_library(const std::string& file) {
  std::string why;
  const Path named = named_folder();
  if (!named.empty() && file == "libcuda.so.1" && !is_system_mode()) {
    // If the user names a driver, no other one is searched for.
    const Path path = absolute_or_same(named) / file;
    if (void* const handle = load(path, why); handle != nullptr) return {handle, path.parent_path()};
    say_missing("GPUMEM_REAL_LIBCUDA should be the path of the driver's libcuda.so.1: " +
                (why.empty() ? path.string() + " is none" : why));
    return {};
  }
  for (const Path& folder : folders(file)) {
    if (void* const handle = load(folder / file, why); handle != nullptr) return {handle, folder};
  }
  say_missing("no " + file + " in LD_LIBRARY_PATH or the system's folders" + (why.empty() ? "" : ": " + why) +
              "; install the driver, or set GPUMEM_REAL_LIBCUDA to the path of its libcuda.so.1");
  return {};
}

}  // namespace gpumem::shim
