#pragma once
#include <filesystem>
#include <string>

namespace gpumem::shim {

/// A library of the real driver, loaded for good. No handle: none was found.
struct RealLibrary {
  void* handle = nullptr;
  std::filesystem::path folder;  ///< the one that it was loaded from
};

/// Loads the real driver's library `file` by its path. If $GPUMEM_REAL_LIBCUDA names a libcuda.so.1 or a
/// folder, that folder is the first, and for libcuda.so.1 the only one; then come those of LD_LIBRARY_PATH
/// and where drivers are installed. A shim is never taken for the driver: neither this file under any name
/// nor another one of the kind. If there is none, one line on stderr says what to do.
RealLibrary find_real_library(const std::string& file);

}  // namespace gpumem::shim
