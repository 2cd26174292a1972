#pragma once
#include <cuda.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "client/shim/memory/device_memory.h"

namespace gpumem::shim {

/// Memory that the driver itself allocated for the program, and that the broker was told of.
/// Threads  any.
class Outside {
 public:
  enum class Kind { kAddress, kArray, kMipmappedArray, kExternal, kModule, kLibrary, kHandle };
  /// What the program calls it by.
  struct Name {
    Kind kind = Kind::kAddress;
    std::uint64_t number = 0;
    auto operator<=>(const Name&) const = default;

    explicit Name(CUdeviceptr at) : number(at) {}
    explicit Name(CUarray array) : Name(Kind::kArray, array) {}
    explicit Name(CUmipmappedArray array) : Name(Kind::kMipmappedArray, array) {}
    explicit Name(CUexternalMemory memory) : Name(Kind::kExternal, memory) {}
    explicit Name(CUmodule module) : Name(Kind::kModule, module) {}
#if CUDA_VERSION >= 12000
    explicit Name(CUlibrary library) : Name(Kind::kLibrary, library) {}
#endif
    static Name of_handle(CUmemGenericAllocationHandle handle) {
      Name name(handle);
      name.kind = Kind::kHandle;
      return name;
    }

   private:
    Name(Kind its_kind, const void* pointer)
        : kind(its_kind), number(reinterpret_cast<std::uint64_t>(pointer)) {}
  };
  struct Piece {
    DeviceMemory* memory = nullptr;
    Bytes bytes;
    CUcontext context = nullptr;  ///< the piece ends with this context; null: with none
    unsigned uses = 1;            ///< number of frees until it is gone
  };
  void add(const Name& name, const Piece& piece);
  /// Adds a use: the piece must be freed once more.
  void use_again(const Name& name);
  /// Has `real_call` free what is called `name`, which may be memory that was not told of. Meanwhile it is
  /// not known here: as soon as it is free, its name may be another's.
  template <class Call>
  CUresult free(const Name& name, const Call& real_call) {
    std::optional<Piece> piece = take(name);
    const CUresult freed = real_call();
    if (!piece) return freed;
    if (freed == CUDA_SUCCESS && --piece->uses == 0)
      piece->memory->discharge_outside(piece->bytes);
    else
      add(name, *piece);
    return freed;
  }
  void ended(CUcontext context);
  /// What ends with `from` ends with `to` instead.
  void move(CUcontext from, CUcontext to);

 private:
  std::optional<Piece> take(const Name& name);

  Mutex mutex_;
  std::map<Name, Piece> pieces_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::shim
