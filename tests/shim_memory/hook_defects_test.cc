// What libraries that limit device memory by hooks get wrong (HAMi-core at 8f3a89c: src/cuda/memory.c,
// src/cuda/hook.c; nvshare: src/hook.c), one test each. Where a test is elsewhere, it is named here:
//   the stream and version of a looked-up function      tests/shim/proc_address_test.cc
//   graphs' allocations are not counted                 graph_memory_test.cc
//   arrays, external memory are not counted             arrays_test.cc
//   pools are not counted                               async_test.cc, driver_pools_test.cc
//   results that are no CUresult                        AsyncTest.LimitHoldsForEveryWayToAsk...
//   null pointers where the driver allows them          BlocksTest.LimitIsTheTotalAndRequests...
//   memory that the program maps itself is not seen     vmm_test.cc
//   a hook of dlsym that calls itself                   there is none: shim.exports_every_name_of_cuda_h
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <sstream>

#include "tests/shim_memory/scene.h"

namespace gpumem::shim::test {
namespace {

gpumem::test::BrokerOptions with_limit(const std::string& limit) {
  return {.config = "[broker]\nreserve = \"all-but 32MiB\"\n[[tenant]]\nname = \"me\"\nuser = " +
                    std::to_string(::geteuid()) + "\nlimit = \"" + limit + "\"\n"};
}

using HookDefects = ShimMemory;

// Memory of the host has nothing to do with a limit of the device.
SCENE(FillsItsLimitAndAsksForHostMemory) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 8 * kMiB));
  void* pinned = nullptr;
  EXPECT_CU(calls::cuMemHostAlloc(&pinned, 64 * kMiB, 0));
  EXPECT_CU(calls::cuMemFreeHost(pinned));
  EXPECT_EQ(free_memory(), 0U);
}

TEST_F(HookDefects, HostMemoryIsNotRefusedForWantOfDeviceMemory) {
  expect("FillsItsLimitAndAsksForHostMemory", {{"GPUMEM_LIMIT", "8MiB"}});
}

struct LoweredBelowUse : ShimMemory {
  LoweredBelowUse() : ShimMemory(with_limit("64MiB")) {}
};

SCENE(HasMoreThanItsTenantMay) {
  start();
  CUdeviceptr at = 0, more = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 32 * kMiB));
  tell_and_await();
  std::size_t free = 0, total = 0;
  EXPECT_CU(calls::cuMemGetInfo_v2(&free, &total));
  EXPECT_EQ(total, 64 * kMiB) << "constant";
  EXPECT_EQ(free, 32 * kMiB) << "of its own limit";
  EXPECT_EQ(calls::cuMemAlloc_v2(&more, 4 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(calls::cuMemFree_v2(at));
  EXPECT_CU(calls::cuMemAlloc_v2(&at, 4 * kMiB));
}

TEST_F(LoweredBelowUse, FiguresAreToldWhenMoreIsUsedThanTheLimitAllows) {
  Actor one = actor("HasMoreThanItsTenantMay", {{"GPUMEM_WAIT", "0s"}});
  one.await();
  broker_.reload(with_limit("16MiB").config);
  one.tell_and_expect_success();
}

SCENE_TEST(HookDefects, TotalIsThereWithoutALimitAndWithoutAContext) {
  ASSERT_CU(calls::cuInit(0));
  std::size_t total = 0;
  EXPECT_CU(calls::cuDeviceTotalMem_v2(&total, 0));
  EXPECT_EQ(total, kPool);
}

std::string descriptor_file() { return std::string(::getenv("SHARED_FOLDER")) + "/descriptor"; }

CUmemAllocationProp exportable() {
  CUmemAllocationProp asked{};
  asked.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  asked.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  asked.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return asked;
}

SCENE(ExportsMemory) {
  start();
  const CUmemAllocationProp asked = exportable();
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_CU(calls::cuMemCreate(&handle, 64 * kMiB, &asked, 0));
  int fd = -1;
  ASSERT_CU(calls::cuMemExportToShareableHandle(&fd, handle, asked.requestedHandleTypes, 0));
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // the process that takes the descriptor is no child
  gpumem::test::write_file(descriptor_file(), std::to_string(::getpid()) + " " + std::to_string(fd));
  tell_and_await();
}

SCENE(ImportsMemory) {
  start();
  pid_t owner = 0;
  int theirs = -1;
  std::istringstream(gpumem::test::read_file(descriptor_file())) >> owner >> theirs;
  const auto process = ::syscall(SYS_pidfd_open, owner, 0);
  const auto fd = ::syscall(SYS_pidfd_getfd, process, theirs, 0);
  ASSERT_GE(fd, 0);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr at = 0, own = 0;
  ASSERT_CU(calls::cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(fd),
                                                  exportable().requestedHandleTypes));
  ASSERT_CU(real<decltype(&::cuMemAddressReserve)>("cuMemAddressReserve")(&at, 64 * kMiB, 0, 0, 0));
  ASSERT_CU(calls::cuMemMap(at, 64 * kMiB, 0, handle, 0));
  EXPECT_EQ(free_memory(), 32 * kMiB) << "what it has mapped is another's";
  EXPECT_CU(calls::cuMemAlloc_v2(&own, 32 * kMiB)) << "its limit is its own";
  tell_and_await();
  EXPECT_CU(calls::cuMemUnmap(at, 64 * kMiB));
  EXPECT_CU(calls::cuMemRelease(handle));
}

TEST_F(HookDefects, ImportedMemoryIsChargedOnceToItsOwner) {
  const gpumem::test::TemporaryFolder folder;
  const Actor::Environment shared{{"SHARED_FOLDER", folder.path().string()}};
  Actor owner = actor("ExportsMemory", shared);
  owner.await();
  Actor user = actor("ImportsMemory", {shared[0], {"GPUMEM_LIMIT", "32MiB"}});
  user.await();
  EXPECT_EQ(charged(), 96 * kMiB);
  for (const v1::SessionInfo& session : broker_.sessions()) {
    std::uint64_t lent = 0;
    for (const v1::SliceInfo& slice : session.slices()) lent += slice.charged();
    EXPECT_EQ(lent, (session.pid() == owner.child().pid() ? 64 : 32) * kMiB);
  }
  user.tell_and_expect_success();
  owner.tell_and_expect_success();
}

struct SecondDeviceAlone : ShimMemory {
  SecondDeviceAlone()
      : ShimMemory({.simulate = "2x256MiB", .config = "[broker]\nreserve = \"all-but 32MiB\"\n"}) {}
};

SCENE(SeesTheSecondDeviceAlone) {
  start();
  int count = 0;
  EXPECT_CU(real<decltype(&::cuDeviceGetCount)>("cuDeviceGetCount")(&count));
  EXPECT_EQ(count, 1);
  CUdeviceptr at = 0;
  EXPECT_EQ(calls::cuMemAlloc_v2(&at, 33 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 32 * kMiB));
  byte_at(at) = 1;
  tell_and_await();
}

TEST_F(SecondDeviceAlone, IsBorrowedOfByItsIdentityNotByItsIndex) {
  Actor one = actor("SeesTheSecondDeviceAlone", {{"CUDA_VISIBLE_DEVICES", "1"}, {"GPUMEM_LIMIT", "32MiB"}});
  one.await();
  EXPECT_EQ(broker_.device(0).free(), broker_.device(0).pool());
  EXPECT_EQ(broker_.device(1).pool() - broker_.device(1).free(), 32 * kMiB);
  one.tell_and_expect_success();
}

SCENE(TakesMoreThanHalf) {
  start();
  CUdeviceptr at = 0;
  tell_and_await();
  const CUresult result = calls::cuMemAlloc_v2(&at, 160 * kMiB);
  ::printf("answer %d\n", result);
  ::fflush(stdout);
  tell_and_await();
}

// A check and then an allocation: both check, and both or none gets it.
TEST_F(HookDefects, OfTwoThatAskAtOnceForWhatOneCanHaveOneGetsIt) {
  for (int round = 0; round < 3; ++round) {
    const Actor::Environment at_once{{"GPUMEM_WAIT", "0s"}};
    Actor one = actor("TakesMoreThanHalf", at_once), other = actor("TakesMoreThanHalf", at_once);
    one.await();
    other.await();
    one.tell();
    other.tell();
    one.await();
    other.await();
    one.tell();
    other.tell();
    EXPECT_TRUE(one.succeeds() && other.succeeds());
    const auto granted = [](const Actor& actor) {
      return actor.output().find("answer 0\n") != std::string::npos;
    };
    EXPECT_NE(granted(one), granted(other)) << one.output() << other.output();
    EXPECT_TRUE(gpumem::test::eventually([&] { return charged() == 0; }));
  }
}

}  // namespace
}  // namespace gpumem::shim::test
