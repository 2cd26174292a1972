// Contexts, their memory, copies, and the look-up of functions.
#include <thread>
#include <vector>

#include "tests/sim/work_support.h"

namespace gpumem::sim::test {
namespace {

constexpr std::uint64_t kContextCost = kPage;  // 64 MiB / 64, at least the granularity

using Contexts = SimTest;

TEST_F(Contexts, PrimaryContextCostsMemoryOnceUntilItsLastRelease) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    CUcontext first{}, second{};
    EXPECT_CU(cuDevicePrimaryCtxRetain(&first, 0));
    EXPECT_CU(cuDevicePrimaryCtxRetain(&second, 0));
    EXPECT_EQ(first, second);
    EXPECT_EQ(used(), kContextCost);
    EXPECT_CU(cuDevicePrimaryCtxRelease(0));
    EXPECT_EQ(used(), kContextCost);
    EXPECT_CU(cuDevicePrimaryCtxRelease(0));
    EXPECT_EQ(used(), 0U);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
  });
}

TEST_F(Contexts, ContextThatDoesNotFitIsRefused) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    create(64 * kMiB);
    CUcontext context{};
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuCtxCreate(&context, nullptr, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  });
}

TEST_F(Contexts, CallsThatNeedAContextSaySo) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    std::size_t free = 0, total = 0;
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemGetInfo(&free, &total), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuMemAlloc(&address, kPage), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuMemcpyHtoD(address, &free, 8), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuMemsetD8(address, 0, 8), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
  });
}

TEST_F(Contexts, EachThreadHasItsOwnStack) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    CUcontext context{}, current{};
    ASSERT_CU(cuCtxCreate(&context, nullptr, 0, 0));
    EXPECT_CU(cuCtxGetCurrent(&current));
    EXPECT_EQ(current, context);
    std::thread([&] {
      CUcontext other{};
      EXPECT_CU(cuCtxGetCurrent(&other));
      EXPECT_EQ(other, nullptr);
      EXPECT_CU(cuCtxPushCurrent(context));
      EXPECT_CU(cuCtxDestroy(context));
      EXPECT_EQ(cuCtxPopCurrent(&other), CUDA_ERROR_INVALID_CONTEXT);
    }).join();
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cuCtxDestroy(context), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(used(), 0U);
  });
}

TEST_F(Contexts, AllocationsCopyFillAndEndWithTheirContext) {
  in_process([] {
    enter_primary();
    CUdeviceptr first = 0, second = 0;
    ASSERT_CU(cuMemAlloc(&first, 5 * kMiB));
    ASSERT_CU(cuMemAlloc(&second, 100));
    EXPECT_EQ(used(), kContextCost + 6 * kMiB + 64 * 1024);
    std::vector<unsigned> in(25, 7), out(25);
    EXPECT_CU(cuMemcpyHtoD(second, in.data(), 100));
    EXPECT_CU(cuMemcpyDtoD(first, second, 100));
    EXPECT_CU(cuMemsetD32(first, 9, 1));
    EXPECT_CU(cuMemcpyDtoH(out.data(), first, 100));
    EXPECT_EQ(out[0], 9U);
    EXPECT_EQ(out[24], 7U);
    EXPECT_EQ(cuMemFree(first + 4096), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemFree(first));
    EXPECT_EQ(cuMemFree(first), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyHtoD(first, in.data(), 100), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuDevicePrimaryCtxRelease(0));
    EXPECT_EQ(used(), 0U);
  });
}

TEST_F(Contexts, CopiesHonourAccess) {
  in_process([] {
    enter_primary();
    const CUdeviceptr range = mapped(create(2 * kPage), 2 * kPage, CU_MEM_ACCESS_FLAGS_PROT_READ);
    char byte = 1;
    EXPECT_EQ(cuMemcpyHtoD(range, &byte, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_CU(cuMemcpyDtoH(&byte, range, 1));
    EXPECT_EQ(cuMemsetD8(range + kPage, 1, 2 * kPage), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_CU(set_access(range, 2 * kPage, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    EXPECT_EQ(cuMemsetD8(range + kPage, 1, 2 * kPage), CUDA_ERROR_INVALID_VALUE) << "past the mapping";
    EXPECT_CU(cuMemsetD8(range, 1, 2 * kPage));
    EXPECT_CU(set_access(range, 2 * kPage, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    EXPECT_EQ(cuMemcpyDtoH(&byte, range, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

TEST_F(Contexts, MemoryInfoCountsAllProcesses) {
  Process other([](Peer& peer) {
    ASSERT_CU(cuInit(0));
    create(20 * kMiB);
    peer.signal();
    peer.await();
  });
  other.peer().await();
  in_process([] {
    enter_primary();
    std::size_t free = 0, total = 0;
    EXPECT_CU(cuMemGetInfo(&free, &total));
    EXPECT_EQ(total, 64 * kMiB);
    EXPECT_EQ(free, 44 * kMiB - kContextCost);
  });
  other.kill();
}

TEST_F(Contexts, PointersTellWhatTheyAre) {
  in_process([] {
    enter_primary();
    CUdeviceptr address = 0, base = 0;
    ASSERT_CU(cuMemAlloc(&address, kPage));
    std::size_t size = 0;
    EXPECT_CU(cuMemGetAddressRange(&base, &size, address + 77));
    EXPECT_EQ(base, address);
    EXPECT_EQ(size, kPage);
    int ordinal = -1;
    EXPECT_CU(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    EXPECT_EQ(ordinal, 0);
    unsigned type = 0;
    EXPECT_EQ(
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&type)),
        CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(Contexts, FunctionsAreFoundByNameAndVersion) {
  in_process([] {
    void *newest = nullptr, *older = nullptr, *none = nullptr;
    CUdriverProcAddressQueryResult status{};
    EXPECT_CU(cuGetProcAddress("cuCtxCreate", &newest, 13000, 0, nullptr));
    EXPECT_EQ(newest, reinterpret_cast<void*>(&cuCtxCreate));
    EXPECT_CU(cuGetProcAddress("cuCtxCreate", &older, 11080, 0, nullptr));
    EXPECT_NE(newest, older);
    EXPECT_CU(cuGetProcAddress("cuMemCreate", &older, 12000, 0, &status));
    EXPECT_EQ(older, reinterpret_cast<void*>(&cuMemCreate));
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
    EXPECT_CU(cuGetProcAddress("cuNoSuchThing", &none, 13000, 0, &status));
    EXPECT_EQ(none, nullptr);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT_EQ(cuGetProcAddress("cuInit", &none, 14000, 0, &status), CUDA_ERROR_INVALID_VALUE);
    const char* name = nullptr;
    EXPECT_CU(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
    EXPECT_STREQ(name, "CUDA_ERROR_OUT_OF_MEMORY");
  });
}

}  // namespace
}  // namespace gpumem::sim::test
