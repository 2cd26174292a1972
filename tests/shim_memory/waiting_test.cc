// Memory that others hold: who waits, for how long, and what the account says.
#include <pthread.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "client/shim/figures.h"
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

AccountPage account_of(const gpumem::test::TemporaryFolder& folder, pid_t pid) {
  const std::string bytes = gpumem::test::read_file(folder / ("account." + std::to_string(pid)));
  AccountPage page{};
  EXPECT_EQ(bytes.size(), sizeof page);
  std::memcpy(&page, bytes.data(), std::min(bytes.size(), sizeof page));
  EXPECT_EQ(page.magic, kAccountMagic);
  return page;
}

TEST_F(WaitingTest, OfTwoThatDoNotFitTogetherOneWaitsAndFinishes) {
  const gpumem::test::TemporaryFolder accounts;
  Actor holder = actor("HoldsMost");
  holder.await();
  Actor waiter =
      actor("WantsMost", {{"GPUMEM_WAIT", "10m"}, {"GPUMEM_ACCOUNT_FOLDER", accounts.path().string()}});
  EXPECT_TRUE(gpumem::test::eventually([&] { return broker_.device().waiting() == 1; }));
  holder.tell();
  EXPECT_TRUE(waiter.succeeds()) << waiter.output();
  const AccountPage page = account_of(accounts, waiter.child().pid());
  EXPECT_EQ(page.peak_bytes, 160 * kMiB);
  EXPECT_GT(page.waited_ns, 0U);
  EXPECT_EQ(page.denials, 0U);
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
  const gpumem::test::TemporaryFolder accounts;
  Actor holder = actor("HoldsMost");
  holder.await();
  Actor asker = actor("AsksForLessAndLess",
                      {{"GPUMEM_WAIT", "200ms"}, {"GPUMEM_ACCOUNT_FOLDER", accounts.path().string()}});
  EXPECT_TRUE(asker.succeeds()) << asker.output();
  const AccountPage page = account_of(accounts, asker.child().pid());
  EXPECT_GT(page.denials, 5U);
  EXPECT_LE(page.peak_bytes, 64 * kMiB) << "what was refused is not of the peak";
  EXPECT_GE(page.waited_ns, 200'000'000U);
  EXPECT_GT(page.last_denied_bytes, 56 * kMiB);
  const std::string said = asker.output();
  EXPECT_NE(said.find("cuMemAlloc of 200MiB is refused: "), std::string::npos) << said;
  EXPECT_NE(said.find(std::to_string(holder.child().pid())), std::string::npos)
      << "it names who holds the memory: " << said;
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
  const gpumem::test::TemporaryFolder accounts;
  Actor holder = actor("HoldsMost");
  holder.await();
  Actor asker = actor("AsksForLessAndLessManagedMemory",
                      {{"GPUMEM_WAIT", "1s"}, {"GPUMEM_ACCOUNT_FOLDER", accounts.path().string()}});
  EXPECT_TRUE(asker.succeeds()) << asker.output();
  const AccountPage page = account_of(accounts, asker.child().pid());
  EXPECT_EQ(page.denials, 5U);
  EXPECT_EQ(page.peak_bytes, 0U);
  EXPECT_GE(page.waited_ns, 1'000'000'000U);
  EXPECT_LT(page.waited_ns, 2'000'000'000U);
}

SCENE(GetsNothing) {
  start();
  const CUmemAllocationProp asked = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                     .win32HandleMetaData = nullptr,
                                     .allocFlags = {}};
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(calls::cuMemAlloc_v2(&at, 160 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuMemCreate(&handle, 160 * kMiB, &asked, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(WaitingTest, PeakOfAProcessThatGotNothingIsZero) {
  const gpumem::test::TemporaryFolder accounts;
  Actor holder = actor("HoldsMost");
  holder.await();
  Actor asker =
      actor("GetsNothing", {{"GPUMEM_WAIT", "50ms"}, {"GPUMEM_ACCOUNT_FOLDER", accounts.path().string()}});
  EXPECT_TRUE(asker.succeeds()) << asker.output();
  const AccountPage page = account_of(accounts, asker.child().pid());
  EXPECT_EQ(page.denials, 2U);
  EXPECT_EQ(page.peak_bytes, 0U);
}

}  // namespace
}  // namespace gpumem::shim::test
