#pragma once
#include <filesystem>
#include <initializer_list>
#include <string>

#include "bench/must.h"

namespace gpumem::bench {

/// Finds a file that was built or installed with this program: the first of `places` that exists, each
/// relative to the program's folder.
inline std::string find_beside(std::initializer_list<const char*> places) {
  const auto own = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const char* const place : places) {
    if (std::filesystem::exists(own / place)) return (own / place).lexically_normal().string();
  }
  give_up(*places.begin(), "is neither beside this program nor in its build folder");
}

}  // namespace gpumem::bench
