// Memory that others hold: who waits, for how long, and what is said of it.
#include <pthread.h>
#include <unistd.h>

#include <thread>

#include "tests/shim_memory/scene.h"

namespace gpumem::shim::test {
namespace {

using WaitingTest = ShimMemory;

SCENE(HoldsMost) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 160 * kMiB));
  tell_and_await();
  EXPECT_CU(calls::cuMemFree_v2(at));
  tell_and_await();
}

SCENE(WantsMost) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 160 * kMiB));
  byte_at(at) = 1;
  EXPECT_CU(calls::cuMemFree_v2(at));
}

TEST_F(WaitingTest, OfTwoThatDoNotFitTogetherOneWaitsAndFinishes) {
  Actor holder = actor("HoldsMost");
  holder.await();
  Actor waiter = actor("WantsMost", {{"GPUMEM_WAIT", "10m"}});
  EXPECT_TRUE(gpumem::test::eventually([&] { return broker_.device().waiting() == 1; }));
  const auto says = [&](const char* words) { return waiter.output().find(words) != std::string::npos; };
  EXPECT_FALSE(says("waiting for"));
  EXPECT_TRUE(gpumem::test::eventually([&] { return says("gpumem: waiting for 160MiB of gpu0"); }));
  EXPECT_TRUE(says("; at most 10m 0s\n")) << waiter.output();
  holder.tell();
  EXPECT_TRUE(waiter.succeeds()) << waiter.output();
  EXPECT_TRUE(says("gpumem: waited ")) << waiter.output();
}

SCENE(AsksForLessAndLess) {
  start();
  CUdeviceptr at = 0;
  std::uint64_t size = 200 * kMiB;
  CUresult result = calls::cuMemAlloc_v2(&at, size);
  for (; result == CUDA_ERROR_OUT_OF_MEMORY; result = calls::cuMemAlloc_v2(&at, size)) size = size / 10 * 9;
  EXPECT_CU(result);
  EXPECT_LE(size, 64 * kMiB);
  EXPECT_GT(size, 56 * kMiB) << "what is left is found";
}

TEST_F(WaitingTest, CascadeOfRequestsWaitsOnceAndFindsWhatIsLeft) {
  Actor holder = actor("HoldsMost");
  holder.await();
  Actor asker = actor("AsksForLessAndLess", {{"GPUMEM_WAIT", "200ms"}});
  EXPECT_TRUE(asker.succeeds()) << asker.output();
  const std::string said = asker.output();
  EXPECT_NE(said.find("cuMemAlloc of 200MiB is refused: "), std::string::npos) << said;
  EXPECT_NE(said.find(std::to_string(holder.child().pid())), std::string::npos)
      << "it names who holds the memory: " << said;
  EXPECT_EQ(said.find("waiting for"), std::string::npos) << "a short wait is silent: " << said;
  EXPECT_EQ(said.find("is refused", said.find("is refused") + 1), std::string::npos) << "once: " << said;
}

// Called off in the middle, the unwinding would end the process.
SCENE(IsCancelledWhileItWaits) {
  start();
  CUcontext context = nullptr;
  ASSERT_CU(real<decltype(&::cuCtxGetCurrent)>("cuCtxGetCurrent")(&context));
  CUdeviceptr at = 0;
  std::thread waits([&] {
    EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(context));
    EXPECT_CU(calls::cuMemAlloc_v2(&at, 160 * kMiB));
    ::pthread_testcancel();
    ADD_FAILURE() << "the cancellation comes afterwards";
  });
  await();
  EXPECT_EQ(::pthread_cancel(waits.native_handle()), 0);
  tell();
  waits.join();
  EXPECT_CU(calls::cuMemFree_v2(at));
}

TEST_F(WaitingTest, ThreadThatIsCancelledWaitsToTheEnd) {
  Actor holder = actor("HoldsMost");
  holder.await();
  Actor waiter = actor("IsCancelledWhileItWaits", {{"GPUMEM_WAIT", "10m"}});
  EXPECT_TRUE(gpumem::test::eventually([&] { return broker_.device().waiting() == 1; }));
  waiter.tell_and_await();
  holder.tell();
  EXPECT_TRUE(waiter.succeeds()) << waiter.output();
}

// The first cancellation point that a call comes by would end the process.
SCENE(IsCancelledBeforeItCalls) {
  const CUcontext context = start();
  int fd = -1;
  std::thread cancelled([&] {
    EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(context));
    EXPECT_EQ(::pthread_cancel(::pthread_self()), 0);
    CUdeviceptr at = 0;
    CUipcMemHandle passed{};
    EXPECT_CU(calls::cuMemAlloc_v2(&at, 3 * kMiB));
    EXPECT_CU(calls::cuIpcGetMemHandle(&passed, at));
    EXPECT_CU(calls::cuMemFree_v2(at));
    void* pinned = nullptr;
    EXPECT_CU(calls::cuMemAllocHost_v2(&pinned, kMiB));
    EXPECT_CU(calls::cuMemFreeHost(pinned));
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_CU(calls::cuMemCreate(&handle, 2 * kMiB, &wanted, 0));
    EXPECT_CU(calls::cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT_CU(calls::cuMemRelease(handle));
    ::pthread_testcancel();
    ADD_FAILURE() << "the cancellation comes afterwards";
  });
  cancelled.join();
  ::close(fd);
}

TEST_F(WaitingTest, ThreadThatIsCancelledEndsItsCalls) { expect("IsCancelledBeforeItCalls"); }

// Managed memory is not of the pool, of which the tenant may have a part.
struct WaitingForTheTenant : ShimMemory {
  WaitingForTheTenant()
      : ShimMemory({.config = "[broker]\nreserve = \"all-but 32MiB\"\n[[tenant]]\nname = \"me\"\nuser = " +
                              std::to_string(::geteuid()) + "\nlimit = \"180MiB\"\n"}) {}
};

SCENE(WantsManagedMemory) {
  start();
  tell();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAllocManaged(&at, 20 * kMiB, CU_MEM_ATTACH_GLOBAL));
  EXPECT_CU(calls::cuMemFree_v2(at));
}

TEST_F(WaitingForTheTenant, ManagedMemoryIsThereWhenOthersHaveGivenWay) {
  Actor holder = actor("HoldsMost");
  holder.await();
  Actor waiter = actor("WantsManagedMemory", {{"GPUMEM_WAIT", "10m"}});
  waiter.await();
  holder.tell();
  EXPECT_TRUE(waiter.succeeds()) << waiter.output();
}

SCENE(AsksForLessAndLessManagedMemory) {
  start();
  CUdeviceptr at = 0;
  for (std::uint64_t size = 32 * kMiB; size > 22 * kMiB; size -= 2 * kMiB)
    EXPECT_EQ(calls::cuMemAllocManaged(&at, size, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(WaitingForTheTenant, CascadeOfManagedMemoryWaitsOnce) {
  Actor holder = actor("HoldsMost");
  holder.await();
  Actor asker = actor("AsksForLessAndLessManagedMemory", {{"GPUMEM_WAIT", "2s"}});
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_TRUE(asker.succeeds()) << asker.output();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(8)) << "five waits take 10 s";
  EXPECT_NE(asker.output().find("gpumem: waited 2."), std::string::npos) << asker.output();
}

}  // namespace
}  // namespace gpumem::shim::test
