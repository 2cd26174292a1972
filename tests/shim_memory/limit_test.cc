// GPUMEM_LIMIT: never more than it names, with idle memory, of whatever kind the memory is.
#include <thread>

#include "client/shim/memory/process.h"
#include "client/slice/loose_extents.h"
#include "tests/shim_memory/scene.h"

namespace gpumem::shim::test {
namespace {

using LimitTest = ShimMemory;

/// The lent memory that the process holds, in use and idle.
std::uint64_t held() {
  Slices& slices = Process::current().open_memory_of(0)->slices();
  const auto blocks = slices.engine().statistics();
  EXPECT_TRUE(blocks && slices.open_loose());
  return (blocks->committed + slices.loose().committed()).count;
}

std::size_t total() {
  std::size_t all = 0;
  EXPECT_CU(calls::cuMemGetInfo_v2(nullptr, &all));
  return all;
}

SCENE(HasLessThanItsLimit) {
  start();
  EXPECT_EQ(total(), 4 * kMiB);
  CUdeviceptr at = 0;
  EXPECT_EQ(calls::cuMemAlloc_v2(&at, 5 * kMiB - 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuMemAllocManaged(&at, 4 * kMiB + 1, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 4 * kMiB));
  tell_and_await();
}

TEST_F(LimitTest, LimitIsRoundedDownToWholeUnits) {
  Actor one = actor("HasLessThanItsLimit", {{"GPUMEM_LIMIT", "5242879"}});
  one.await();
  EXPECT_EQ(charged(), 4 * kMiB);
  one.tell_and_expect_success();
}

SCENE(HasNoUnit) {
  start();
  CUdeviceptr at = 0;
  EXPECT_EQ(calls::cuMemAlloc_v2(&at, 1), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(LimitTest, LimitBelowOneUnitLendsNothingAndSaysSo) {
  const std::string said = expect("HasNoUnit", {{"GPUMEM_LIMIT", "1MiB"}});
  EXPECT_NE(said.find("the limit of 1MiB on gpu0 is less than one unit of the device's memory"),
            std::string::npos)
      << said;
}

struct TenantWithoutMemory : ShimMemory {
  TenantWithoutMemory() : ShimMemory({.config = "[default]\nlimit = 0\n"}) {}
};

TEST_F(TenantWithoutMemory, IsToldWhoseLimitItIsAndWhomToAsk) {
  const std::string said = expect("HasNoUnit");
  EXPECT_NE(said.find("the tenant's limit of 0B on gpu0 is less than one unit"), std::string::npos) << said;
  EXPECT_NE(said.find("ask the administrator for a higher one"), std::string::npos) << said;
}

/// Cached memory of the process: `mebibytes` MiB were in use.
void leave_idle(std::uint64_t mebibytes) {
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, mebibytes * kMiB));
  EXPECT_CU(calls::cuMemFree_v2(at));
}

CUmemGenericAllocationHandle handle_of(std::uint64_t bytes) {
  CUmemAllocationProp asked{};
  asked.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  asked.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_CU(calls::cuMemCreate(&handle, bytes, &asked, 0));
  return handle;
}

SCENE(TakesAHandleBesideIdleMemory) {
  start();
  leave_idle(12);
  handle_of(16 * kMiB);
  EXPECT_EQ(held(), 16 * kMiB);
  tell_and_await();
}
SCENE(TakesManagedMemoryBesideIdleMemory) {
  start();
  leave_idle(12);
  CUdeviceptr at = 0;
  EXPECT_CU(calls::cuMemAllocManaged(&at, 16 * kMiB, CU_MEM_ATTACH_GLOBAL));
  EXPECT_EQ(held(), 0U) << "managed memory is all that it may have";
  tell_and_await();
}
SCENE(TakesBlocksBesideAHandle) {
  start();
  for (int i = 0; i < 20; ++i) {
    leave_idle(16);
    const auto handle = handle_of(10 * kMiB);
    EXPECT_LE(held(), 16 * kMiB);
    leave_idle(6);
    EXPECT_LE(held(), 16 * kMiB);
    EXPECT_CU(calls::cuMemRelease(handle));
  }
  tell_and_await();
}

TEST_F(LimitTest, IdleMemoryIsGivenBackBeforeOtherMemoryWouldPassTheLimit) {
  for (const char* const scene :
       {"TakesAHandleBesideIdleMemory", "TakesManagedMemoryBesideIdleMemory", "TakesBlocksBesideAHandle"}) {
    Actor one = actor(scene, {{"GPUMEM_LIMIT", "16MiB"}});
    one.await();
    one.tell();
    EXPECT_TRUE(one.succeeds()) << scene << one.output();
    EXPECT_TRUE(gpumem::test::eventually([&] { return charged() == 0; })) << scene;
  }
}

CUresult allocate_of_kind(int kind, CUmemoryPool pool, CUdeviceptr* at, std::uint64_t size) {
  switch (kind) {
    case 0: return calls::cuMemAllocManaged(at, size, CU_MEM_ATTACH_GLOBAL);
    case 1: return calls::cuMemAllocFromPoolAsync(at, size, pool, nullptr);
    default: return calls::cuMemAlloc_v2(at, size);
  }
}

SCENE(MixesAllKinds) {
  const CUcontext context = start();
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemoryPool pool = nullptr;
  ASSERT_CU(calls::cuMemPoolCreate(&pool, &properties));
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([context, pool, i] {
      EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(context));
      for (std::uint64_t step = 1; step <= 30; ++step) {
        CUdeviceptr at = 0;
        const CUresult made = allocate_of_kind(i % 3, pool, &at, step % 7 * kMiB + 4096);
        EXPECT_TRUE(made == CUDA_SUCCESS || made == CUDA_ERROR_OUT_OF_MEMORY) << made;
        if (made == CUDA_SUCCESS) {
          EXPECT_CU(calls::cuMemFree_v2(at));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_CU(calls::cuMemPoolDestroy(pool));
  std::size_t free = 0;
  EXPECT_CU(calls::cuMemGetInfo_v2(&free, nullptr));
  EXPECT_EQ(free, 16 * kMiB) << "nothing is lost";
  CUdeviceptr all = 0;
  EXPECT_CU(calls::cuMemAllocManaged(&all, 16 * kMiB, CU_MEM_ATTACH_GLOBAL));
  EXPECT_CU(calls::cuMemFree_v2(all));
  EXPECT_CU(calls::cuMemAlloc_v2(&all, 16 * kMiB));
}

SCENE(TakesMoreThanThePoolLeaves) {
  start();
  const std::size_t before = free_memory();
  CUdeviceptr at = 0;
  EXPECT_EQ(calls::cuMemAllocManaged(&at, 128 * kMiB, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(free_memory(), before);
}

TEST_F(LimitTest, DriversOwnRefusalIsToldAndChargesNothing) {
  const std::string said = expect("TakesMoreThanThePoolLeaves");
  EXPECT_NE(said.find("gpumem: cuMemAllocManaged of 128MiB is refused by the driver"), std::string::npos)
      << said;
  EXPECT_TRUE(gpumem::test::eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
}

SCENE(TakesTinyManagedBlocks) {
  start();
  CUdeviceptr at = 0;
  for (int i = 0; i < 64; ++i) EXPECT_CU(calls::cuMemAllocManaged(&at, 1, CU_MEM_ATTACH_GLOBAL));
  EXPECT_EQ(calls::cuMemAllocManaged(&at, 1, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(calls::cuMemFree_v2(at));
  EXPECT_CU(calls::cuMemAllocManaged(&at, 1, CU_MEM_ATTACH_GLOBAL));
}

TEST_F(LimitTest, TinyManagedBlocksAreChargedAsTheDriverTakesThem) {
  expect("TakesTinyManagedBlocks", {{"GPUMEM_LIMIT", "4MiB"}});
}

TEST_F(LimitTest, ManyThreadsOfManyKindsLoseNothing) { expect("MixesAllKinds", {{"GPUMEM_LIMIT", "16MiB"}}); }

}  // namespace
}  // namespace gpumem::shim::test
