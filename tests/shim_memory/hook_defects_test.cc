// What libraries that limit device memory by hooks get wrong (HAMi-core at 8f3a89c: src/cuda/memory.c,
// src/cuda/hook.c; nvshare: src/hook.c), one test each. Where a test is elsewhere, it is named here:
//   the stream and version of a looked-up function      tests/shim/proc_address_test.cc
//   graphs' allocations are not counted                 graph_memory_test.cc
//   arrays, pools and external memory are not counted   arrays_test.cc, async_test.cc, driver_pools_test.cc
//   results that are no CUresult AsyncTest.LimitHoldsForEveryWayToAskAndTheErrorIsTheDrivers null pointers
//   where the driver allows them          BlocksTest.LimitIsTheTotalAndRequestsBeyondItFailAtOnce memory that
//   the program maps itself is not seen     vmm_test.cc a hook of dlsym that calls itself
//   shim.exports_every_name_of_cuda_h: there is none one device only TwoDevices
#include <algorithm>
#include <cstdio>
#include <string_view>

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
  EXPECT_CU(real<decltype(&::cuMemHostAlloc)>("cuMemHostAlloc")(&pinned, 64 * kMiB, 0));
  EXPECT_CU(real<decltype(&::cuMemFreeHost)>("cuMemFreeHost")(pinned));
  EXPECT_EQ(free_memory(), 0U);
}

TEST_F(HookDefects, HostMemoryIsNotRefusedForWantOfDeviceMemory) {
  expect("FillsItsLimitAndAsksForHostMemory", {{"GPUMEM_LIMIT", "8MiB"}});
  for (const auto* const name : {"cuMemHostAlloc", "cuMemHostRegister_v2", "cuMemAllocHost_v2"}) {
    const char* const replaced[] = {
#define GPUMEM_SHIM_CALL(call, treatment, why) #call,
#include "client/shim/calls.def"
#undef GPUMEM_SHIM_CALL
    };
    EXPECT_EQ(std::ranges::count(replaced, std::string_view(name)), 0) << name << " is the driver's own";
  }
}

struct LoweredBelowUse : ShimMemory {
  LoweredBelowUse() : ShimMemory(with_limit("64MiB")) {}
};

SCENE(HasMoreThanItsTenantMay) {
  start();
  CUdeviceptr at = 0, more = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 32 * kMiB));
  tell();
  await();
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
  one.tell();
  EXPECT_TRUE(one.succeeds()) << one.output();
}

SCENE_TEST(HookDefects, TotalIsThereWithoutALimitAndWithoutAContext) {
  ASSERT_CU(calls::cuInit(0));
  std::size_t total = 0;
  EXPECT_CU(calls::cuDeviceTotalMem_v2(&total, 0));
  EXPECT_EQ(total, kPool);
}

SCENE(TakesMoreThanHalf) {
  start();
  CUdeviceptr at = 0;
  tell();
  await();
  const CUresult result = calls::cuMemAlloc_v2(&at, 160 * kMiB);
  ::printf("answer %d\n", result);
  ::fflush(stdout);
  tell();
  await();
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
