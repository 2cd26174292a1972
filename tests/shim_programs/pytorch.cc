// How PyTorch 2.9 takes a GPU: through the CUDA runtime, which asks the driver for each call by
// cuGetProcAddress (c10/cuda/driver_api.h, c10/cuda/CUDACachingAllocator.cpp).
#include <deque>
#include <vector>

#include "tests/shim_programs/program.h"

#define CU(call) gpumem::shim_programs::by_entry_point<decltype(&::call)>(#call)

namespace gpumem::shim_programs {
namespace {

using Handle = CUmemGenericAllocationHandle;

constexpr CUresult kOutOfMemory = CUDA_ERROR_OUT_OF_MEMORY;
constexpr std::uint64_t kSmallBuffer = 2 * kMiB;
constexpr std::uint64_t kLargeBuffer = 20 * kMiB;
constexpr std::uint64_t kMinLargeAlloc = 10 * kMiB;

void make_device() {
  CUcontext context = nullptr;
  OK(CU(cuInit)(0));
  OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
  OK(CU(cuCtxSetCurrent)(context));
}

/// The driver's memory as torch.cuda.mem_get_info has it.
struct Info {
  std::size_t free = 0;
  std::size_t total = 0;
};
Info info() {
  Info known;
  OK(CU(cuMemGetInfo)(&known.free, &known.total));
  MUST(known.free <= known.total);
  return known;
}

// DeviceCachingAllocator::get_allocation_size.
std::uint64_t allocation_size(std::uint64_t bytes) {
  if (bytes <= kMiB) return kSmallBuffer;
  return bytes < kMinLargeAlloc ? kLargeBuffer : (bytes + kSmallBuffer - 1) / kSmallBuffer * kSmallBuffer;
}

/// ExpandableSegment: addresses for more than the device, and memory in pieces of one size.
class ExpandableSegment {
 public:
  explicit ExpandableSegment(std::uint64_t piece) : piece_(piece), total_(info().total) {
    // "we allocate enough address space for 1 1/8 the total memory on the GPU"
    most_ = (total_ + total_ / 8 + piece_ - 1) / piece_;
    OK(CU(cuMemAddressReserve)(&at_, most_ * piece_, 0, 0, 0));
  }
  ~ExpandableSegment() {
    unmap(0, handles_.size());
    OK(CU(cuMemAddressFree)(at_, most_ * piece_));
  }
  ExpandableSegment(const ExpandableSegment&) = delete;
  ExpandableSegment& operator=(const ExpandableSegment&) = delete;

  /// Maps `count` more pieces: all, or, without memory for them, none.
  bool map(std::size_t count) {
    const std::size_t begin = handles_.size();
    for (std::size_t i = 0; i < count; ++i) {
      Handle handle = 0;
      const CUresult created = CU(cuMemCreate)(&handle, piece_, &properties(), 0);
      if (created == kOutOfMemory) {
        for (; handles_.size() > begin; handles_.pop_back()) OK(CU(cuMemRelease)(handles_.back()));
        return false;
      }
      OK(created);
      handles_.push_back(handle);
    }
    for (std::size_t i = begin; i < handles_.size(); ++i)
      OK(CU(cuMemMap)(at_ + i * piece_, piece_, 0, handles_[i], 0));
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(CU(cuMemSetAccess)(at_ + begin * piece_, count * piece_, &access, 1));
    return true;
  }
  void unmap(std::size_t begin, std::size_t end) {
    OK(CU(cuStreamSynchronize)(nullptr));
    for (std::size_t i = begin; i < end; ++i) {
      OK(CU(cuMemUnmap)(at_ + i * piece_, piece_));
      OK(CU(cuMemRelease)(handles_[i]));
    }
    handles_.resize(begin);
  }
  void fill(unsigned char value) {
    for (std::size_t i = 0; i < handles_.size(); ++i) OK(CU(cuMemsetD8)(at_ + i * piece_, value, 64));
  }
  std::size_t pieces() const { return handles_.size(); }

 private:
  static const CUmemAllocationProp& properties() {
    static const CUmemAllocationProp kProperties = [] {
      CUmemAllocationProp wanted{};
      wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
      wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
      int rdma = 0;
      OK(CU(cuDeviceGetAttribute)(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0));
      if (rdma != 0) wanted.allocFlags.gpuDirectRDMACapable = 1;
      return wanted;
    }();
    return kProperties;
  }

  const std::uint64_t piece_;
  const std::uint64_t total_;
  std::uint64_t most_ = 0;
  CUdeviceptr at_ = 0;
  std::vector<Handle> handles_;
};

}  // namespace

// The caching allocator: blocks of 2 MiB, 20 MiB and whole 2 MiB. Out of memory, it frees what it has cached
// and tries again.
TASK(pytorch) {
  make_device();
  const Info before = info();
  MUST(before.free == before.total);
  std::deque<CUdeviceptr> cached;
  std::uint64_t taken = 0;
  const std::uint64_t wanted[] = {512, 3 * kMiB, 11 * kMiB, kMiB, 9 * kMiB, 65 * kMiB};
  CUresult result = CUDA_SUCCESS;
  for (std::size_t i = 0; result == CUDA_SUCCESS; ++i) {
    CUdeviceptr at = 0;
    const std::uint64_t size = allocation_size(wanted[i % 6]);
    result = CU(cuMemAlloc)(&at, size);
    if (result != CUDA_SUCCESS) break;
    cached.push_back(at);
    taken += size;
    MUST(info().free == before.free - taken);
  }
  MUST(result == kOutOfMemory && before.free - taken < 66 * kMiB);
  // release_cached_blocks(): every block, after the device has done its work.
  OK(CU(cuCtxSynchronize)());
  for (; !cached.empty(); cached.pop_front()) OK(CU(cuMemFree)(cached.front()));
  MUST(info().free == before.free);
  CUdeviceptr at = 0;
  OK(CU(cuMemAlloc)(&at, before.free));
  OK(CU(cuMemFree)(at));
}

// Half of the device in the sizes of a training, which stay until the test says so.
TASK(pytorch_holds) {
  make_device();
  for (std::uint64_t left = info().total / 2; left > kGiB; left -= kGiB) {
    CUdeviceptr at = 0;
    OK(CU(cuMemAlloc)(&at, allocation_size(kGiB)));
    OK(CU(cuMemsetD8)(at, 1, 4096));
  }
  tell_and_await_test();
}

// PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.
TASK(pytorch_expandable) {
  make_device();
  const Info before = info();
  {
    ExpandableSegment small(kSmallBuffer), large(kLargeBuffer);
    MUST(small.map(1) && small.map(3));
    while (large.map(5)) large.fill(9);
    MUST(info().free < 5 * kLargeBuffer);
    MUST(info().free == before.free - small.pieces() * kSmallBuffer - large.pieces() * kLargeBuffer);
    // PyTorch unmaps its cached blocks, and tries again.
    large.unmap(large.pieces() - 5, large.pieces());
    MUST(large.map(5));
    small.fill(1);
  }
  MUST(info().free == before.free);
}

// PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync, c10/cuda/CUDAMallocAsyncAllocator.cpp.
TASK(pytorch_async) {
  make_device();
  CUmemoryPool pool = nullptr;
  OK(CU(cuDeviceGetDefaultMemPool)(&pool, 0));
  cuuint64_t threshold = UINT64_MAX;
  OK(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  const Info before = info();
  CUdeviceptr at = 0, more = 0;
  OK(CU(cuMemAllocAsync)(&at, before.free / 2, nullptr));
  OK(CU(cuMemsetD8Async)(at, 5, kMiB, nullptr));
  ANSWERS(kOutOfMemory, CU(cuMemAllocAsync)(&more, before.free, nullptr));
  OK(CU(cuMemFreeAsync)(at, nullptr));
  // emptyCache().
  OK(CU(cuCtxSynchronize)());
  OK(CU(cuMemPoolTrimTo)(pool, 0));
  cuuint64_t reserved = 1;
  OK(CU(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
  MUST(reserved == 0 && info().free == before.free);
  OK(CU(cuMemAllocAsync)(&more, before.free, nullptr));
  OK(CU(cuMemFreeAsync)(more, nullptr));
}

}  // namespace gpumem::shim_programs
