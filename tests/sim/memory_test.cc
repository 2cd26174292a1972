// The rules of virtual memory management within one process.
#include <sys/resource.h>

#include <vector>

#include "sim/machine/machine.h"
#include "sim/machine/table.h"
#include "tests/sim/sim_fixture.h"

namespace gpumem::sim::test {
namespace {

using Memory = SimTest;

TEST_F(Memory, NothingWorksBeforeInit) {
  in_process([] {
    int count = 0;
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    const auto prop = properties();
    EXPECT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(cuMemAddressReserve(&address, kPage, 0, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(cuMemAlloc(&address, kPage), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_CU(cuDriverGetVersion(&count));
  });
}

TEST_F(Memory, VirtualMemoryNeedsNoContext) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    const CUdeviceptr address = mapped(create(4 * kMiB), 4 * kMiB);
    EXPECT_EQ(address % kPage, 0U);
    EXPECT_EQ(bytes_at(address)[kPage], 0);
    EXPECT_EQ(used(), 4 * kMiB);
  });
}

TEST_F(Memory, BadSizesAndPropertiesAreRefused) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    CUmemGenericAllocationHandle handle = 0;
    auto prop = properties();
    EXPECT_EQ(cuMemCreate(&handle, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemCreate(&handle, kPage + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemCreate(&handle, ~std::uint64_t{0} - kPage + 1, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuMemCreate(&handle, kPage, &prop, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemCreate(nullptr, kPage, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemCreate(&handle, kPage, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
    prop.location.id = 1;
    EXPECT_EQ(cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
    prop.location = {static_cast<CUmemLocationType>(9), 0};
    EXPECT_EQ(cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
    prop.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 9999};
    EXPECT_EQ(cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    prop = properties();
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    EXPECT_EQ(cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAddressReserve(&address, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAddressReserve(&address, kPage, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAddressReserve(&address, ~std::uint64_t{0} - kPage + 1, 0, 0, 0),
              CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_CU(cuMemAddressReserve(&address, kPage, 64 * kMiB, 0, 0));
    EXPECT_EQ(address % (64 * kMiB), 0U);
    EXPECT_EQ(used(), 0U);
  });
}

TEST_F(Memory, HandlesAreCheckedNotBelieved) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    const CUdeviceptr address = reserve(kPage);
    const auto handle = create(kPage);
    EXPECT_CU(cuMemRelease(handle));
    EXPECT_EQ(used(), 0U);
    for (const CUmemGenericAllocationHandle bad : {handle, handle + 1, CUmemGenericAllocationHandle{0}}) {
      EXPECT_EQ(cuMemRelease(bad), CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(cuMemMap(address, kPage, 0, bad, 0), CUDA_ERROR_INVALID_VALUE);
      int fd = -1;
      EXPECT_EQ(cuMemExportToShareableHandle(&fd, bad, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                CUDA_ERROR_INVALID_VALUE);
    }
  });
}

TEST_F(Memory, OnlyWhatWasMadeExportableIsExported) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    auto prop = properties();
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_CU(cuMemCreate(&handle, kPage, &prop, 0));
    int fd = -1;
    EXPECT_EQ(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(Memory, MappingsLieWholeInOneReservationAndDoNotOverlap) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    const auto handle = create(2 * kPage);
    const CUdeviceptr range = reserve(4 * kPage);
    EXPECT_EQ(cuMemMap(range, 2 * kPage, kPage, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMap(range + 3 * kPage, 2 * kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMap(range, 3 * kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMap(range + 4096, 2 * kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMap(range, kPage, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED) << "its beginning";
    EXPECT_EQ(cuMemMap(range, kPage, kPage, handle, 0), CUDA_ERROR_NOT_SUPPORTED) << "its end";
    EXPECT_CU(cuMemMap(range + 2 * kPage, 2 * kPage, 0, handle, 0));
    EXPECT_EQ(cuMemMap(range + kPage, 2 * kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemMap(range, 2 * kPage, 0, handle, 0)) << "the same memory may be mapped twice";
    EXPECT_EQ(cuMemAddressFree(range, 4 * kPage), CUDA_ERROR_INVALID_VALUE) << "still mapped";
    EXPECT_CU(cuMemUnmap(range, 4 * kPage));
    EXPECT_EQ(cuMemAddressFree(range, 2 * kPage), CUDA_ERROR_INVALID_VALUE) << "not the whole reservation";
    EXPECT_CU(cuMemAddressFree(range, 4 * kPage));
    EXPECT_EQ(cuMemMap(range, 2 * kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(Memory, UnmapTakesWholeMappingsOneOrMany) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    const CUdeviceptr range = reserve(4 * kPage);
    for (const std::uint64_t at : {std::uint64_t{0}, 2 * kPage}) {
      const auto handle = create(2 * kPage);
      ASSERT_CU(cuMemMap(range + at, 2 * kPage, 0, handle, 0));
      ASSERT_CU(cuMemRelease(handle));
    }
    EXPECT_EQ(cuMemUnmap(range, kPage), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemUnmap(range + kPage, 3 * kPage), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemUnmap(range, 3 * kPage), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemUnmap(range, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(used(), 4 * kPage);
    EXPECT_CU(cuMemUnmap(range, 4 * kPage));
    EXPECT_EQ(used(), 0U);
    EXPECT_CU(cuMemUnmap(range, 4 * kPage)) << "which has no effect";
    EXPECT_EQ(cuMemUnmap(range, 5 * kPage), CUDA_ERROR_INVALID_VALUE) << "beyond the reservation";
  });
}

TEST_F(Memory, OneExtentMappedTwiceIsUnmappedAtOnce) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    const CUdeviceptr range = reserve(2 * kPage);
    const auto handle = create(kPage);
    ASSERT_CU(cuMemMap(range, kPage, 0, handle, 0));
    ASSERT_CU(cuMemMap(range + kPage, kPage, 0, handle, 0));
    ASSERT_CU(set_access(range, 2 * kPage, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    *bytes_at(range) = 5;
    EXPECT_EQ(*bytes_at(range + kPage), 5);
    EXPECT_CU(cuMemRelease(handle));
    EXPECT_CU(cuMemUnmap(range, 2 * kPage));
    EXPECT_EQ(used(), 0U);
  });
}

TEST_F(Memory, AccessIsSetForWholeMappingsAndTold) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    const CUdeviceptr range = reserve(4 * kPage);
    ASSERT_CU(cuMemMap(range, 2 * kPage, 0, create(2 * kPage), 0));
    ASSERT_CU(cuMemMap(range + 2 * kPage, kPage, 0, create(kPage), 0));
    const CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, 0};
    unsigned long long flags = 9;
    EXPECT_CU(cuMemGetAccess(&flags, &device, range));
    EXPECT_EQ(flags, 0U) << "mappings start without access";
    EXPECT_EQ(set_access(range, kPage, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(set_access(range, 4 * kPage, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(set_access(range, 3 * kPage, CU_MEM_ACCESS_FLAGS_PROT_READ, 7), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CU(set_access(range, 3 * kPage, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    EXPECT_CU(set_access(range, 2 * kPage, CU_MEM_ACCESS_FLAGS_PROT_READ));
    EXPECT_CU(cuMemGetAccess(&flags, &device, range + kPage));
    EXPECT_EQ(flags, static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READ));
    *bytes_at(range + 2 * kPage) = 1;
  });
}

TEST_F(Memory, PointersTellWhatTheCurrentDeviceMayDo) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    CUcontext context = nullptr;
    ASSERT_CU(cuDevicePrimaryCtxRetain(&context, 0));
    ASSERT_CU(cuCtxSetCurrent(context));
    for (const CUmemAccess_flags flags :
         {CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}) {
      unsigned long long told = 9;
      EXPECT_CU(cuPointerGetAttribute(&told, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
                                      mapped(create(kPage), kPage, flags)));
      EXPECT_EQ(told, static_cast<unsigned long long>(flags));
    }
  });
}

TEST_F(Memory, MappedMemoryGivesItsHandleBackAfterRelease) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    const auto handle = create(kPage);
    const CUdeviceptr address = mapped(handle, kPage);
    ASSERT_CU(cuMemRelease(handle));
    EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    CUmemGenericAllocationHandle again = 0;
    ASSERT_CU(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(address + 100)));
    EXPECT_EQ(again, handle);
    EXPECT_CU(cuMemUnmap(address, kPage));
    EXPECT_EQ(used(), kPage);
    EXPECT_CU(cuMemRelease(again));
    EXPECT_EQ(used(), 0U);
    EXPECT_EQ(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(address)),
              CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(Memory, ReusedMemoryIsZero) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    for (int round = 0; round < 3; ++round) {
      const auto handle = create(64 * kMiB);
      const CUdeviceptr address = mapped(handle, 64 * kMiB);
      EXPECT_EQ(*bytes_at(address), 0);
      *bytes_at(address) = 1;
      EXPECT_CU(cuMemUnmap(address, 64 * kMiB));
      EXPECT_CU(cuMemRelease(handle));
    }
  });
}

TEST_F(Memory, SoftLimitOfOpenFilesDoesNotLimitHandles) {
  in_process([] {
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 16;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    ASSERT_CU(cuInit(0));
    for (int i = 0; i < 32; ++i) create(kPage);
    EXPECT_EQ(used(), 64 * kMiB);
  });
}

TEST_F(Memory, HostExtentsCostNoDeviceMemoryAndAreShared) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    CUmemAllocationProp prop = properties();
    prop.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    std::size_t unit = 0;
    EXPECT_CU(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUmemGenericAllocationHandle handle = 0, again = 0;
    ASSERT_CU(cuMemCreate(&handle, 128 * kMiB, &prop, 0)) << "more than the device has";
    EXPECT_EQ(used(), 0U);
    const UniqueFd fd = exported(handle);
    ASSERT_CU(import(fd.get(), &again));
    EXPECT_CU(cuMemGetAllocationPropertiesFromHandle(&prop, again));
    EXPECT_EQ(prop.location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
    const CUdeviceptr address = reserve(128 * kMiB);
    EXPECT_CU(cuMemMap(address, 128 * kMiB, 0, again, 0));
    CUmemAccessDesc access[2] = {};
    access[0].location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access[0].flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    access[1].location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_CU(cuMemSetAccess(address, 128 * kMiB, access, 2));
    unsigned long long flags = 0;
    EXPECT_CU(cuMemGetAccess(&flags, &access[0].location, address));
    EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    bytes_at(address)[5] = 1;
    EXPECT_CU(cuMemUnmap(address, 128 * kMiB));
    EXPECT_CU(cuMemRelease(handle));
    EXPECT_CU(cuMemRelease(again));
  });
}

TEST_F(Memory, ExportsEndWhereTheMachinesTableIsFull) {
  in_process([this] {
    ASSERT_CU(cuInit(0));
    const auto table = Table::open(load_machine(folder_).value()).value();
    EXPECT_EQ(table->raw().export_limit, 524'288U);
    table->raw().export_limit = 2;
    const auto first = create(kPage), second = create(kPage), third = create(kPage);
    exported(first);
    exported(first);  // the same object again
    exported(second);
    int fd = -1;
    EXPECT_EQ(cuMemExportToShareableHandle(&fd, third, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_CU(cuMemRelease(first));
    exported(third);
  });
  EXPECT_EQ(used(), 0U);
}

}  // namespace
}  // namespace gpumem::sim::test
