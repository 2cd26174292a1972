// Managed memory: who reaches it, what is told of it.
#include <cuda.h>

#include <vector>

#include "tests/sim/sim_fixture.h"

namespace gpumem::sim::test {
namespace {

constexpr std::size_t kSize = 2 * kPage;

#if CUDA_VERSION >= 13000
CUmemLocation where(CUdevice device) {
  return {device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE, device};
}
CUresult advise(CUdeviceptr start, std::size_t size, CUmem_advise advice, CUdevice device) {
  return cuMemAdvise(start, size, advice, where(device));
}
CUresult prefetch(CUdeviceptr start, std::size_t size, CUdevice device) {
  return cuMemPrefetchAsync(start, size, where(device), 0, nullptr);
}
#else
CUresult advise(CUdeviceptr start, std::size_t size, CUmem_advise advice, CUdevice device) {
  return cuMemAdvise(start, size, advice, device);
}
CUresult prefetch(CUdeviceptr start, std::size_t size, CUdevice device) {
  return cuMemPrefetchAsync(start, size, device, nullptr);
}
#endif

int told(CUmem_range_attribute attribute, CUdeviceptr start, std::size_t size) {
  int value = -99;
  EXPECT_CU(cuMemRangeGetAttribute(&value, sizeof value, attribute, start, size));
  return value;
}

class Managed : public SimTest {
 protected:
  Managed() : SimTest("1x64MiB,1x32MiB") {}

  static CUdeviceptr allocate(CUdevice device = 0) {
    CUcontext context{};
    CUdeviceptr address = 0;
    EXPECT_CU(cuInit(0));
    EXPECT_CU(cuDevicePrimaryCtxRetain(&context, device));
    EXPECT_CU(cuCtxSetCurrent(context));
    EXPECT_CU(cuMemAllocManaged(&address, kSize, CU_MEM_ATTACH_GLOBAL));
    return address;
  }
};

TEST_IN_PROCESS(Managed, MemoryIsChargedToTheCurrentDeviceUntilItIsFreed) {
  const CUdeviceptr address = allocate(1);
  const std::uint64_t with = used(1);
  EXPECT_CU(cuMemFree(address));
  EXPECT_EQ(with - used(1), kSize);
  EXPECT_EQ(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr none = 0;
  EXPECT_EQ(cuMemAllocManaged(&none, kSize, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocManaged(&none, 0, CU_MEM_ATTACH_HOST), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocManaged(&none, 64 * kMiB, CU_MEM_ATTACH_HOST), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_IN_PROCESS(Managed, PointersSayThatTheyAreManagedAndNotForIpc) {
  const CUdeviceptr address = allocate();
  CUdeviceptr plain = 0;
  ASSERT_CU(cuMemAlloc(&plain, kPage));
  for (const bool is_managed : {true, false}) {
    const CUdeviceptr asked = is_managed ? address : plain;
    bool managed = !is_managed, ipc = is_managed;
    EXPECT_CU(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, asked));
    EXPECT_CU(cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, asked));
    EXPECT_EQ(managed, is_managed);
    EXPECT_EQ(ipc, !is_managed);
  }
  void* host = nullptr;
  EXPECT_CU(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address));
  EXPECT_EQ(reinterpret_cast<CUdeviceptr>(host), address) << "the host reaches it there, too";
  EXPECT_EQ(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, plain), CUDA_ERROR_INVALID_VALUE);
  CUipcMemHandle handle;
  EXPECT_EQ(cuIpcGetMemHandle(&handle, address), CUDA_ERROR_INVALID_VALUE);
}

TEST_IN_PROCESS(Managed, AdviceIsReportedForRangesThatShareIt) {
  const CUdeviceptr address = allocate();
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, address, kSize), CU_DEVICE_INVALID);
  EXPECT_CU(advise(address, kPage, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 1));
  EXPECT_CU(advise(address, kPage, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, address, kPage), 1);
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address, kPage), 1);
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, address, kSize), CU_DEVICE_INVALID) << "half";
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address, kSize), 0) << "half";
  EXPECT_CU(advise(address + kPage, kPage, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 1));
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, address, kSize), 1) << "the other half, too";
  EXPECT_CU(advise(address, kSize, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 0));
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, address, kPage), CU_DEVICE_INVALID);
}

TEST_IN_PROCESS(Managed, AccessorsAndPrefetchesAreTold) {
  const CUdeviceptr address = allocate();
  EXPECT_CU(advise(address, kSize, CU_MEM_ADVISE_SET_ACCESSED_BY, 1));
  EXPECT_CU(advise(address, kSize, CU_MEM_ADVISE_SET_ACCESSED_BY, CU_DEVICE_CPU));
  EXPECT_CU(prefetch(address, kSize, CU_DEVICE_CPU));
  int accessors[3]{}, last = -99;
  void* out[] = {accessors, &last};
  std::size_t sizes[] = {sizeof accessors, sizeof last};
  CUmem_range_attribute asked[] = {CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,
                                   CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION};
  EXPECT_CU(cuMemRangeGetAttributes(out, sizes, asked, 2, address, kSize));
  EXPECT_EQ(last, CU_DEVICE_CPU);
  EXPECT_EQ(std::vector<int>(accessors, accessors + 3),
            (std::vector<int>{1, CU_DEVICE_CPU, CU_DEVICE_INVALID}))
      << "devices come before the CPU";
  EXPECT_CU(prefetch(address, kPage, 1));
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, address, kPage), 1);
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, address, kSize), CU_DEVICE_INVALID);
}

TEST_IN_PROCESS(Managed, MemoryIsAttachedToStreams) {
  const CUdeviceptr address = allocate();
  CUstream stream{};
  ASSERT_CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  EXPECT_CU(cuStreamAttachMemAsync(stream, address, 0, CU_MEM_ATTACH_SINGLE));
  EXPECT_CU(cuStreamAttachMemAsync(nullptr, address, 0, CU_MEM_ATTACH_GLOBAL));
  EXPECT_EQ(cuStreamAttachMemAsync(nullptr, address, 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamAttachMemAsync(stream, address + kPage, 0, CU_MEM_ATTACH_SINGLE),
            CUDA_ERROR_INVALID_VALUE);
}

#if CUDA_VERSION >= 13000
TEST_IN_PROCESS(Managed, BatchesOfPrefetchesHaveTheirPlacesInTurn) {
  const CUdeviceptr address = allocate();
  CUstream stream{};
  ASSERT_CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  CUdeviceptr starts[] = {address, address + kPage / 2, address + kPage};
  std::size_t sizes[] = {kPage / 2, kPage / 2, kPage}, first[] = {0, 2};
  CUmemLocation places[] = {where(1), where(CU_DEVICE_CPU)};
  EXPECT_CU(cuMemPrefetchBatchAsync(starts, sizes, 3, places, first, 2, 0, stream));
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, address, kPage), 1);
  EXPECT_EQ(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, address + kPage, kPage), CU_DEVICE_CPU);
  EXPECT_CU(cuMemDiscardBatchAsync(starts, sizes, 3, 0, stream));
  EXPECT_EQ(cuMemDiscardBatchAsync(starts, sizes, 3, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  first[1] = 0;
  EXPECT_EQ(cuMemPrefetchBatchAsync(starts, sizes, 3, places, first, 2, 0, stream), CUDA_ERROR_INVALID_VALUE);
}
#endif

}  // namespace
}  // namespace gpumem::sim::test
