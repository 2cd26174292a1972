// Contexts: a stack for each thread, a primary one for each device, counted.
#include <thread>

#include "tests/contract/driver/fixture.h"

namespace gpumem::contract {
namespace {

using Context = DriverTest;

TEST_IN_PROCESS(Context, IsNoneInANewThread) {
  driver();
  EXPECT_EQ(current(), nullptr);
  const cuda::CurrentContext entered = context();
  EXPECT_NE(current(), nullptr);
  std::thread([] { EXPECT_EQ(current(), nullptr); }).join();
}

TEST_F(Context, IsStackedByThread) {
  in_process([] {
    const Calls& cu = calls();
    driver();
    CUcontext first = nullptr, second = nullptr, popped = nullptr;
    ASSERT_OK(cu.create_context(&first, 0, device().ordinal));
    EXPECT_EQ(current(), first) << "created means current";
    ASSERT_OK(cu.create_context(&second, 0, device().ordinal));
    EXPECT_NE(first, second);
    EXPECT_EQ(current(), second);
    EXPECT_OK(cu.cuCtxPopCurrent(&popped));
    EXPECT_EQ(popped, second);
    EXPECT_EQ(current(), first);
    EXPECT_OK(cu.cuCtxPushCurrent(second));
    EXPECT_EQ(current(), second);
    EXPECT_OK(cu.cuCtxDestroy(second));
    EXPECT_EQ(current(), first) << "destroyed means popped";
    EXPECT_OK(cu.cuCtxDestroy(first));
    EXPECT_EQ(current(), nullptr);
    EXPECT_REFUSED(cu.cuCtxPopCurrent(&popped)) << "nothing is left";
  });
  expect_used(0);
}

TEST_IN_PROCESS(Context, IsReplacedBySetCurrent) {
  const Calls& cu = calls();
  driver();
  CUcontext first = nullptr, second = nullptr;
  ASSERT_OK(cu.create_context(&first, 0, device().ordinal));
  ASSERT_OK(cu.create_context(&second, 0, device().ordinal));
  EXPECT_OK(cu.cuCtxSetCurrent(first));
  EXPECT_EQ(current(), first);
  EXPECT_OK(cu.cuCtxSetCurrent(nullptr));
  EXPECT_EQ(current(), first) << "without one, the top is popped";
  EXPECT_OK(cu.cuCtxSetCurrent(nullptr));
  EXPECT_EQ(current(), nullptr);
  EXPECT_OK(cu.cuCtxDestroy(second));
  EXPECT_OK(cu.cuCtxDestroy(first));
}

TEST_IN_PROCESS(Context, TellsItsDevice) {
  for (const cuda::Device& one : driver().devices()) {
    const cuda::CurrentContext entered = context(one.ordinal);
    CUdevice found = -1;
    EXPECT_OK(calls().cuCtxGetDevice(&found));
    EXPECT_EQ(found, one.ordinal);
  }
  CUdevice none = -1;
  EXPECT_EQ(calls().cuCtxGetDevice(&none), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Context, PrimaryIsOneForEachDeviceAndCounted) {
  in_process([] {
    const Calls& cu = calls();
    const int ordinal = device().ordinal;
    unsigned flags = 0;
    int active = -1;
    CUcontext first = nullptr, second = nullptr;
    EXPECT_OK(cu.cuDevicePrimaryCtxGetState(ordinal, &flags, &active));
    EXPECT_EQ(active, 0);
    ASSERT_OK(cu.cuDevicePrimaryCtxRetain(&first, ordinal));
    ASSERT_OK(cu.cuDevicePrimaryCtxRetain(&second, ordinal));
    EXPECT_EQ(first, second);
    EXPECT_EQ(current(), nullptr) << "retained does not mean current";
    EXPECT_OK(cu.cuDevicePrimaryCtxRelease(ordinal));
    EXPECT_OK(cu.cuDevicePrimaryCtxGetState(ordinal, &flags, &active));
    EXPECT_EQ(active, 1);
    EXPECT_OK(cu.cuDevicePrimaryCtxRelease(ordinal));
    EXPECT_OK(cu.cuDevicePrimaryCtxGetState(ordinal, &flags, &active));
    EXPECT_EQ(active, 0);
    EXPECT_REFUSED(cu.cuDevicePrimaryCtxRelease(ordinal)) << "more often than retained";
  });
  expect_used(0);
}

TEST_F(Context, PrimaryGivesItsMemoryBackWithTheLastRelease) {
  Process process([](Channel& channel) {
    { const cuda::CurrentContext entered = context(); }
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used(0);
  process.signal_and_join();
}

TEST_F(Context, TakesItsAllocationsAlong) {
  Process process([this](Channel& channel) {
    driver();
    CUcontext one = nullptr;
    CUdeviceptr address = 0;
    ASSERT_OK(calls().create_context(&one, 0, device().ordinal));
    ASSERT_OK(calls().cuMemAlloc(&address, 2 * block_.count));
    ASSERT_OK(calls().cuCtxDestroy(one));
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used(0);
  process.signal_and_join();
}

TEST_IN_PROCESS(Context, LeavesMappedExtentsBehind) {
  const Mapped mapped = map(allocate(unit_));
  CUcontext one = nullptr;
  ASSERT_OK(calls().create_context(&one, 0, device().ordinal));
  ASSERT_OK(calls().cuMemsetD8(mapped.range.base(), 9, unit_.count));
  ASSERT_OK(calls().cuCtxDestroy(one));
  EXPECT_TRUE(holds(mapped.range.base(), unit_, 9)) << "extents belong to no context";
}

TEST_IN_PROCESS(Context, DestroyedElsewhereIsStillNamedAndEnteredHere) {
  driver();
  CUcontext one = nullptr, named = nullptr;
  ASSERT_OK(calls().create_context(&one, 0, device().ordinal));
  std::thread([&] { EXPECT_OK(calls().cuCtxDestroy(one)); }).join();
  EXPECT_OK(calls().cuCtxGetCurrent(&named));
  EXPECT_EQ(named, one);
  CUdevice of = -1;
  EXPECT_OK(calls().cuCtxGetDevice(&of));
  EXPECT_EQ(of, device().ordinal);
  EXPECT_OK(calls().cuCtxPushCurrent(one));
  int least = 0, greatest = 0;
  EXPECT_EQ(calls().cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_ERROR_CONTEXT_IS_DESTROYED)
      << "what tells it";
}

TEST_IN_PROCESS(Context, DestroyedElsewhereIsAnErrorHere) {
  driver();
  CUcontext one = nullptr;
  ASSERT_OK(calls().create_context(&one, 0, device().ordinal));
  std::thread([&] { EXPECT_OK(calls().cuCtxDestroy(one)); }).join();
  CUdeviceptr address = 0;
  EXPECT_EQ(calls().cuMemAlloc(&address, 4096), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_IN_PROCESS(Context, IsNeededByWhatAllocatesOrCopies) {
  const Calls& cu = calls();
  driver();
  CUdeviceptr address = 0;
  void* host = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  EXPECT_EQ(cu.cuMemAlloc(&address, 4096), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cu.cuMemAllocHost(&host, 4096), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cu.cuEventCreate(&event, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cu.cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Context, SeesWhatOthersHave) {
  Process holder([this](Channel& channel) {
    channel.await();
    const cuda::Allocation one = allocate({4 * block_.count});
    channel.signal_and_await();
  });
  in_process([&] {
    const cuda::CurrentContext entered = context();
    std::size_t free_before = 0, free_after = 0, total = 0;
    ASSERT_OK(calls().cuMemGetInfo(&free_before, &total));
    EXPECT_LE(free_before, total);
    EXPECT_EQ(total, device().total.count);
    holder.channel().signal_and_await();
    ASSERT_OK(calls().cuMemGetInfo(&free_after, &total));
    EXPECT_NEAR(static_cast<double>(free_before - free_after), static_cast<double>(4 * block_.count),
                static_cast<double>(slack_.count));
  });
  holder.signal_and_join();
}

}  // namespace
}  // namespace gpumem::contract
