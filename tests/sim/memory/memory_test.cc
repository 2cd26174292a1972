// The rules of virtual memory management within one process.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "sim/machine/machine.h"
#include "sim/machine/table.h"
#include "tests/sim/sim_fixture.h"

namespace gpumem::sim::test {
namespace {

using Memory = SimTest;

TEST_IN_PROCESS(Memory, PointersTellWhatTheCurrentDeviceMayDo) {
  ASSERT_CU(cuInit(0));
  CUcontext context = nullptr;
  ASSERT_CU(cuDevicePrimaryCtxRetain(&context, 0));
  ASSERT_CU(cuCtxSetCurrent(context));
  for (const CUmemAccess_flags flags : {CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}) {
    unsigned long long told = 9;
    EXPECT_CU(
        cuPointerGetAttribute(&told, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, mapped(create(kPage), kPage, flags)));
    EXPECT_EQ(told, static_cast<unsigned long long>(flags));
  }
}

TEST_IN_PROCESS(Memory, ContextThatDoesNotFitIsRefused) {
  ASSERT_CU(cuInit(0));
  create(64 * kMiB);
  CUcontext context{};
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_IN_PROCESS(Memory, SoftLimitOfOpenFilesDoesNotLimitHandles) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = 16;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_CU(cuInit(0));
  for (int i = 0; i < 32; ++i) create(kPage);
  EXPECT_EQ(used(), 64 * kMiB);
}

TEST_IN_PROCESS(Memory, IsNoStandardStreamOfAProgramThatHasClosedIts) {
  ASSERT_CU(cuInit(0));
  ASSERT_EQ(::close(STDIN_FILENO), 0);
  const UniqueFd passed = exported(create(kPage));
  CUmemGenericAllocationHandle again = 0;
  EXPECT_CU(import(passed.get(), &again));
  EXPECT_GT(passed.get(), STDERR_FILENO);
  EXPECT_LT(::fcntl(STDIN_FILENO, F_GETFD), 0);
}

TEST_IN_PROCESS(Memory, HostExtentsCostNoDeviceMemoryAndAreShared) {
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
