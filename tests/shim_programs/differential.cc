// Random calls, which the drop-in driver must answer as the driver does. A line for each step names the
// calls, their objects and their results. Addresses, handles and figures of free memory may differ, and are
// left out.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "tests/shim_programs/program.h"

namespace gpumem::shim_programs {
namespace {

constexpr std::uint64_t kMostBytes = 64 * kMiB;  ///< live at a time: never more than there is
constexpr std::size_t kMostObjects = 24;         ///< of each kind
constexpr std::uint64_t kUnit = 2 * kMiB;        ///< of cuMemCreate

struct Memory {
  CUdeviceptr at;
  std::uint64_t bytes;
};

struct Mapping {
  CUdeviceptr at;
  std::uint64_t bytes;
  CUmemGenericAllocationHandle handle;
  bool is_mapped = false;
  bool is_released = false;
};

/// The state of one run.
class Calls {
 public:
  explicit Calls(unsigned seed) : random_(seed) {
    contexts_.push_back(start());
    for (CUstream& one : streams_) OK(cuStreamCreate(&one, CU_STREAM_DEFAULT));
  }
  void step(unsigned number) {
    using Step = void (Calls::*)();
    static constexpr Step kSteps[] = {
        &Calls::allocate,      &Calls::allocate,      &Calls::allocate,       &Calls::allocate,
        &Calls::allocate,      &Calls::read,          &Calls::free,           &Calls::free,
        &Calls::fill,          &Calls::fill,          &Calls::copy,           &Calls::copy,
        &Calls::read,          &Calls::ask_range,     &Calls::ask_attributes, &Calls::create_pool,
        &Calls::destroy_pool,  &Calls::ask_pool,      &Calls::trim_pool,      &Calls::create_array,
        &Calls::destroy_array, &Calls::create_handle, &Calls::map_handle,     &Calls::unmap_handle,
        &Calls::end_handle,    &Calls::ask_handle,    &Calls::share,          &Calls::create_context,
        &Calls::end_context,   &Calls::set_context,   &Calls::free_wrongly};
    std::printf("%u ", number);
    (this->*kSteps[random_() % std::size(kSteps)])();
    std::printf("\n");
  }

 private:
  /// Says what `call` has answered.
  CUresult say(const char* call, std::size_t of, CUresult answered) {
    const char* name = "?";
    (void)cuGetErrorName(answered, &name);
    std::printf(" %s(%zu)=%s", call, of, name);
    return answered;
  }
  void say(const char* what, unsigned long long value) { std::printf(" %s=%llu", what, value); }
  std::uint64_t below(std::uint64_t end) { return end == 0 ? 0 : random_() % end; }
  template <class Objects>
  std::size_t any(const Objects& objects) {
    return below(objects.size());
  }
  CUstream stream() { return random_() % 3 == 0 ? nullptr : streams_[random_() % streams_.size()]; }
  /// Steps do not race: each has ended when the next one begins. The streams are of the first context.
  void settle() {
    say("cuCtxSynchronize", 0, cuCtxSynchronize());
    for (CUstream const one : streams_) OK(cuStreamSynchronize(one));
  }

  // ---- Memory ----

  CUresult allocate(Memory& made) {
    std::size_t pitch = 0;
    const std::size_t bytes = made.bytes;
    switch (below(5)) {
      case 0: return say("cuMemAlloc", bytes, cuMemAlloc(&made.at, bytes));
      case 1: return say("cuMemAllocAsync", bytes, cuMemAllocAsync(&made.at, bytes, stream()));
      case 2:
        return say("cuMemAllocManaged", bytes,
                   cuMemAllocManaged(&made.at, bytes, CU_MEM_ATTACH_GLOBAL << below(2)));
      case 3: {
        const unsigned element = 1U << below(6);
        const CUresult answered = cuMemAllocPitch(&made.at, &pitch, 1 + bytes / 7, 7, element);
        made.bytes = pitch * 7;
        say("pitch", pitch);
        return say("cuMemAllocPitch", bytes, answered);
      }
      default:
        if (pools_.empty() || pools_.back() == nullptr) return CUDA_ERROR_NOT_FOUND;
        return say("cuMemAllocFromPoolAsync", bytes,
                   cuMemAllocFromPoolAsync(&made.at, bytes, pools_.back(), stream()));
    }
  }
  // What it reads as is defined from the fill on.
  void allocate() {
    const std::uint64_t most = random_() % 4 == 0 ? 8 * kMiB : 300'000;
    Memory made{0, random_() % 20 == 0 ? 0 : 1 + below(most)};
    if (live_ + made.bytes > kMostBytes || memory_.size() >= kMostObjects) return say("enough", live_);
    if (allocate(made) != CUDA_SUCCESS) return;
    settle();
    say("cuMemsetD8", memory_.size(), cuMemsetD8(made.at, static_cast<unsigned char>(random_()), made.bytes));
    live_ += made.bytes;
    memory_.push_back(made);
  }

  void free() {
    if (memory_.empty()) return say("nothing", 0);
    const std::size_t which = any(memory_);
    const Memory gone = memory_[which];
    CUresult answered = CUDA_SUCCESS;
    if (random_() % 3 == 0)
      answered = say("cuMemFreeAsync", which, cuMemFreeAsync(gone.at, stream()));
    else
      answered = say("cuMemFree", which, cuMemFree(gone.at));
    settle();
    if (answered == CUDA_SUCCESS) forget(which);
  }
  void forget(std::size_t which) {
    live_ -= memory_[which].bytes;
    memory_.erase(memory_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  void free_wrongly() {
    if (random_() % 4 == 0) say("cuMemFree of null", 0, cuMemFree(0));
    if (random_() % 4 == 0) say("cuMemFree of no address", 1, cuMemFree(4096));
    if (memory_.empty()) return;
    const Memory& one = memory_[any(memory_)];
    if (one.bytes > 1) say("cuMemFree inside", any(memory_), cuMemFree(one.at + 1 + below(one.bytes - 1)));
  }

  void fill() {
    if (memory_.empty()) return say("nothing", 0);
    const std::size_t which = any(memory_);
    const Memory& to = memory_[which];
    const std::uint64_t begin = below(to.bytes);
    const std::uint64_t bytes = below(to.bytes - begin + 1);
    const auto value = static_cast<unsigned>(random_());
    switch (below(3)) {
      case 0:
        say("cuMemsetD8", which, cuMemsetD8(to.at + begin, static_cast<unsigned char>(value), bytes));
        break;
      case 1: say("cuMemsetD32", which, cuMemsetD32(to.at + begin, value, bytes / 4)); break;
      default:
        say("cuMemsetD16Async", which,
            cuMemsetD16Async(to.at + begin, static_cast<unsigned short>(value), bytes / 2, stream()));
    }
    settle();
  }
  void copy() {
    if (memory_.empty()) return say("nothing", 0);
    const std::size_t source = any(memory_), target = any(memory_);
    const Memory &from = memory_[source], &to = memory_[target];
    if (source == target) return say("itself", source);
    const std::uint64_t bytes = below(std::min(from.bytes, to.bytes) + 1);
    if (random_() % 2 == 0)
      say("cuMemcpyDtoD", target, cuMemcpyDtoD(to.at + to.bytes - bytes, from.at, bytes));
    else
      say("cuMemcpyAsync", target, cuMemcpyAsync(to.at, from.at + from.bytes - bytes, bytes, stream()));
    settle();
  }
  void read() {
    if (memory_.empty()) return say("nothing", 0);
    const std::size_t which = any(memory_);
    std::vector<unsigned char> bytes(memory_[which].bytes);
    const CUresult answered =
        say("cuMemcpyDtoH", which, cuMemcpyDtoH(bytes.data(), memory_[which].at, bytes.size()));
    unsigned long long sum = 14695981039346656037ULL;  // FNV-1a
    for (const unsigned char one : bytes) sum = (sum ^ one) * 1099511628211ULL;
    if (answered == CUDA_SUCCESS) say("content", sum);
  }

  // A driver may round sizes; the drop-in driver tells them as they were asked for.
  void ask_range() {
    if (memory_.empty()) return say("nothing", 0);
    const std::size_t which = any(memory_);
    const Memory& of = memory_[which];
    CUdeviceptr base = 0;
    std::size_t size = 0;
    const CUresult answered =
        say("cuMemGetAddressRange", which, cuMemGetAddressRange(&base, &size, of.at + below(of.bytes)));
    if (answered != CUDA_SUCCESS) return;
    say("offset", of.at - base);
    say("is whole", size >= of.bytes);
  }
  void ask_attributes() {
    static constexpr CUpointer_attribute kAsked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                     CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                                     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,

                                                     CU_POINTER_ATTRIBUTE_MAPPED,
                                                     CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                                     CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
    if (memory_.empty()) return say("nothing", 0);
    const std::size_t which = any(memory_);
    for (const CUpointer_attribute asked : kAsked) {
      unsigned long long value = 0;
      if (say("cuPointerGetAttribute", asked, cuPointerGetAttribute(&value, asked, memory_[which].at)) ==
          CUDA_SUCCESS)
        say("value", value);
    }
  }

  // ---- Pools and arrays ----

  void create_pool() {
    if (pools_.size() >= kMostObjects) return say("enough", 0);
    CUmemPoolProps wanted{};
    wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = {random_() % 8 == 0 ? CU_MEM_LOCATION_TYPE_INVALID : CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemoryPool pool = nullptr;
    if (say("cuMemPoolCreate", pools_.size(), cuMemPoolCreate(&pool, &wanted)) == CUDA_SUCCESS)
      pools_.push_back(pool);
  }
  void destroy_pool() {
    if (pools_.empty()) return say("nothing", 0);
    const std::size_t which = any(pools_);
    if (pools_[which] == nullptr) return say("ended", which);
    say("cuMemPoolDestroy", which, cuMemPoolDestroy(pools_[which]));
    pools_[which] = nullptr;
  }
  void ask_pool() {
    if (pools_.empty()) return say("nothing", 0);
    const std::size_t which = any(pools_);
    if (pools_[which] == nullptr) return say("ended", which);
    cuuint64_t used = 0, threshold = 0;
    say("cuMemPoolGetAttribute", which,
        cuMemPoolGetAttribute(pools_[which], CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    say("is used", used != 0);
    say("cuMemPoolGetAttribute", which,
        cuMemPoolGetAttribute(pools_[which], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    say("threshold", threshold);
  }
  void trim_pool() {
    if (pools_.empty()) return say("nothing", 0);
    const std::size_t which = any(pools_);
    if (pools_[which] == nullptr) return say("ended", which);
    cuuint64_t threshold = below(8 * kMiB);
    say("cuMemPoolSetAttribute", which,
        cuMemPoolSetAttribute(pools_[which], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    say("cuMemPoolTrimTo", which, cuMemPoolTrimTo(pools_[which], below(kMiB)));
  }

  void create_array() {
    if (arrays_.size() >= kMostObjects) return say("enough", 0);
    CUDA_ARRAY3D_DESCRIPTOR wanted{};
    wanted.Width = below(300);
    wanted.Height = below(300);
    wanted.Depth = random_() % 4 == 0 ? below(4) : 0;
    wanted.Format = random_() % 2 == 0 ? CU_AD_FORMAT_FLOAT : CU_AD_FORMAT_UNSIGNED_INT8;
    wanted.NumChannels = 1U << below(4);
    CUarray array = nullptr;
    if (say("cuArray3DCreate", arrays_.size(), cuArray3DCreate(&array, &wanted)) == CUDA_SUCCESS)
      arrays_.push_back(array);
  }
  void destroy_array() {
    if (arrays_.empty()) return say("nothing", 0);
    const std::size_t which = any(arrays_);
    CUDA_ARRAY3D_DESCRIPTOR found{};
    if (say("cuArray3DGetDescriptor", which, cuArray3DGetDescriptor(&found, arrays_[which])) == CUDA_SUCCESS)
      say("width", found.Width);
    say("cuArrayDestroy", which, cuArrayDestroy(arrays_[which]));
    arrays_.erase(arrays_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  // ---- Memory that the program maps itself, and legacy IPC ----

  void create_handle() {
    const std::uint64_t bytes = random_() % 6 == 0 ? below(2 * kUnit) : kUnit * (1 + below(3));
    if (mappings_.size() >= kMostObjects || live_ + bytes > kMostBytes) return say("enough", live_);
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, static_cast<int>(below(16) == 0 ? 7 : 0)};
    if (random_() % 2 == 0) wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    Mapping made{0, bytes, 0};
    if (say("cuMemCreate", bytes, cuMemCreate(&made.handle, bytes, &wanted, 0)) != CUDA_SUCCESS) return;
    say("cuMemAddressReserve", bytes, cuMemAddressReserve(&made.at, bytes, 0, 0, 0));
    live_ += bytes;
    mappings_.push_back(made);
  }
  void map_handle() {
    if (mappings_.empty()) return say("nothing", 0);
    const std::size_t which = any(mappings_);
    Mapping& of = mappings_[which];
    if (of.is_released) return say("released", which);
    if (say("cuMemMap", which, cuMemMap(of.at, of.bytes, random_() % 8 == 0 ? kUnit : 0, of.handle, 0)) ==
        CUDA_SUCCESS)
      of.is_mapped = true;
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (say("cuMemSetAccess", which, cuMemSetAccess(of.at, of.bytes, &access, 1)) != CUDA_SUCCESS) return;
    say("cuMemsetD8", which, cuMemsetD8(of.at, 5, of.bytes));
    unsigned char last = 0;
    say("cuMemcpyDtoH", which, cuMemcpyDtoH(&last, of.at + of.bytes - 1, 1));
    say("last", last);
  }
  void unmap_handle() {
    if (mappings_.empty()) return say("nothing", 0);
    const std::size_t which = any(mappings_);
    Mapping& of = mappings_[which];
    if (!of.is_mapped) return say("unmapped", which);
    say("cuMemUnmap", which, cuMemUnmap(of.at, of.bytes));
    of.is_mapped = false;
  }
  void end_handle() {
    if (mappings_.empty()) return say("nothing", 0);
    const std::size_t which = any(mappings_);
    Mapping& of = mappings_[which];
    if (!of.is_released) {
      say("cuMemRelease", which, cuMemRelease(of.handle));
      of.is_released = true;
      return;
    }
    if (say("cuMemAddressFree", which, cuMemAddressFree(of.at, of.bytes)) != CUDA_SUCCESS) return;
    live_ -= of.bytes;
    mappings_.erase(mappings_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  void ask_handle() {
    if (mappings_.empty()) return say("nothing", 0);
    const std::size_t which = any(mappings_);
    const Mapping& of = mappings_[which];
    CUmemGenericAllocationHandle again = 0;
    const CUresult retained = say(
        "cuMemRetainAllocationHandle", which,
        cuMemRetainAllocationHandle(
            &again, reinterpret_cast<void*>(of.at + below(of.bytes))));  // NOLINT(performance-no-int-to-ptr)
    if (retained != CUDA_SUCCESS) return;
    CUmemAllocationProp found{};
    say("cuMemGetAllocationPropertiesFromHandle", which,
        cuMemGetAllocationPropertiesFromHandle(&found, again));
    say("types", found.requestedHandleTypes);
    say("is the same", !of.is_released && again == of.handle);
    say("cuMemRelease", which, cuMemRelease(again));
  }
  void share() {
    if (memory_.empty()) return say("nothing", 0);
    const std::size_t which = any(memory_);
    std::array<CUipcMemHandle, 2> handles{};
    bool are_there = true;
    for (CUipcMemHandle& one : handles)
      are_there =
          say("cuIpcGetMemHandle", which, cuIpcGetMemHandle(&one, memory_[which].at)) == CUDA_SUCCESS &&
          are_there;
    if (are_there) say("are equal", std::memcmp(&handles[0], &handles[1], sizeof handles[0]) == 0);
  }

  // ---- Contexts ----

  void create_context() {
    if (contexts_.size() >= 4) return say("enough", 0);
    CUcontext made = nullptr;
    if (say("cuCtxCreate", contexts_.size(), new_context(&made)) != CUDA_SUCCESS) return;
    CUcontext popped = nullptr;
    say("cuCtxPopCurrent", 0, cuCtxPopCurrent(&popped));
    contexts_.push_back(made);
  }
  // The blocks that were allocated in the context end with it, as the driver's answer about each shows.
  void end_context() {
    if (contexts_.size() < 2 || random_() % 4 != 0) return say("nothing", 0);
    const std::size_t which = 1 + below(contexts_.size() - 1);
    say("cuCtxDestroy", which, cuCtxDestroy(contexts_[which]));
    contexts_.erase(contexts_.begin() + static_cast<std::ptrdiff_t>(which));
    say("cuCtxSetCurrent", 0, cuCtxSetCurrent(contexts_[0]));
    current_ = 0;
    for (std::size_t i = memory_.size(); i-- > 0;) {
      CUdeviceptr base = 0;
      if (say("cuMemGetAddressRange", i, cuMemGetAddressRange(&base, nullptr, memory_[i].at)) != CUDA_SUCCESS)
        forget(i);
    }
  }
  void set_context() {
    current_ = any(contexts_);
    say("cuCtxSetCurrent", current_, cuCtxSetCurrent(contexts_[current_]));
  }

  std::mt19937 random_;
  std::uint64_t live_ = 0;
  std::size_t current_ = 0;
  std::vector<Memory> memory_;
  std::vector<Mapping> mappings_;
  std::vector<CUmemoryPool> pools_;
  std::vector<CUarray> arrays_;
  std::vector<CUcontext> contexts_;
  std::array<CUstream, 2> streams_{};
};

}  // namespace

// SEED STEPS
TASK(makes_random_calls) {
  Calls calls(static_cast<unsigned>(std::atoi(arguments[0])));
  const auto steps = static_cast<unsigned>(std::atoi(arguments[1]));
  for (unsigned step = 0; step < steps; ++step) calls.step(step);
}

}  // namespace gpumem::shim_programs
