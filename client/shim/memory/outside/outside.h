#pragma once

#include <cuda.h>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "client/shim/memory/blocks/device_memory.h"

namespace gpumem::shim {

/// Memory that the driver itself allocated for the program, and that the broker was told of.
/// Threads  any.
class Outside {
 public:
  enum class Kind { kAddress, kArray, kMipmappedArray, kExternal, kModule, kLibrary, kHandle, kHost };
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
    static Name of_host(const void* address) { return {Kind::kHost, address}; }

   private:
    Name(Kind its_kind, const void* pointer)
        : kind(its_kind), number(reinterpret_cast<std::uint64_t>(pointer)) {}
  };
  struct Piece {
    Dischargeable* memory = nullptr;  ///< that it is charged to
    Bytes bytes;
    CUcontext context = nullptr;  ///< the piece ends with this context; null: with none
    unsigned uses = 1;            ///< number of frees until it is gone
  };
  /// If another piece has the name, the driver has freed that one: its charge ends.
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
      put_back(name, *piece);
    return freed;
  }
  /// Ends the charges of what ends with `context`.
  void ended(CUcontext context);
  /// What ends with `from` ends with `to` instead.
  void move(CUcontext from, CUcontext to);

 private:
  std::optional<Piece> take(const Name& name);
  void put_back(const Name& name, const Piece& piece);

  Mutex mutex_;
  std::map<Name, Piece> pieces_ GPUMEM_GUARDED_BY(mutex_);
};

/// The charge for memory that the driver keeps in whole chunks and hands out in parts: a pool's, or that of a
/// device's graphs. A chunk is charged before the driver may take it; afterwards what the driver says that it
/// keeps.
/// Threads  any.
class MeasuredCharge {
 public:
  explicit MeasuredCharge(Chargeable& memory) : memory_(memory) {}

  Chargeable& memory() const { return memory_; }

  struct Need {
    Bytes kept;    ///< by the driver now; zero: nothing needs to be charged for it
    Bytes growth;  ///< that the driver may take besides
  };
  /// Charges what `measure` answers, a Need. settle() of the growth follows, whatever becomes of it.
  /// `growth`  set to that of the Need.
  /// Errors  OUT_OF_MEMORY: as Chargeable::charge_outside; then no settle() follows.
  template <class Measure>
  CUresult reserve(const char* call, const Measure& measure, Bytes* growth) {
    std::optional<Bytes> missing;
    {
      const MutexLock lock(settling_);
      const Need need = measure();
      *growth = need.growth;
      missing = begin(need);
    }
    return missing ? charge(call, *growth, *missing) : CUDA_ERROR_OUT_OF_MEMORY;
  }
  /// Charges what `measure` answers: all that the driver keeps. False: a limit has no room for a part of it,
  /// and the rest is charged. `reserved`  by reserve(), and in use or given up by now.
  template <class Measure>
  bool settle(Bytes reserved, const Measure& measure) {
    const MutexLock lock(settling_);
    const Bytes kept = measure();
    unreserve(reserved);
    return change_to(kept);
  }

 private:
  std::optional<Bytes> begin(const Need& need) GPUMEM_REQUIRES(settling_);
  CUresult charge(const char* call, Bytes growth, Bytes missing);
  void unreserve(Bytes reserved);
  bool change_to(Bytes kept) GPUMEM_REQUIRES(settling_);

  Chargeable& memory_;
  Mutex settling_;  ///< held for the driver's and the broker's answers: older figures do not overtake newer
  Mutex mutex_;
  Bytes charged_ GPUMEM_GUARDED_BY(mutex_);
  Bytes reserved_ GPUMEM_GUARDED_BY(mutex_);  ///< for calls under way
  Bytes asked_ GPUMEM_GUARDED_BY(mutex_);     ///< about to be charged for them
};

}  // namespace gpumem::shim
