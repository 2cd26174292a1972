#pragma once
#include <cstdint>
#include <map>

#include "base/device_code.h"
#include "sim/driver/handles.h"

namespace gpumem::sim {

class Driver;

/// Device code that was loaded, as a module or as a library. It is not run: it takes memory for its
/// variables.
struct Module {
  std::uint64_t number = 0;  ///< the handle
  std::uint64_t context = 0;
  bool is_library = false;
  Extent* memory = nullptr;  ///< nullptr: it has no variables
};

/// The modules of one process. Handles are numbers that are never given out again.
/// Threads: the caller holds the driver's lock.
class Modules {
 public:
  explicit Modules(Driver& driver) : driver_(driver) {}

  /// Errors  CUDA_ERROR_OUT_OF_MEMORY; CUDA_ERROR_NOT_SUPPORTED: PTX, which nothing here compiles.
  CUresult load(std::uint64_t context, const ReadImage& image, bool is_library, std::uint64_t* out);
  /// nullptr: there is none; or it is the other one of a module and a library.
  Module* find(std::uint64_t number, bool is_library);
  void unload(Module& module);
  /// Their memory. A library stays without.
  void end_all_of(std::uint64_t context);

 private:
  void free(Module& module);

  Driver& driver_;
  std::map<std::uint64_t, Module> modules_;
  std::uint64_t last_ = 0xb0'0000'0000;  // looks like no host pointer and no small number
};

}  // namespace gpumem::sim
