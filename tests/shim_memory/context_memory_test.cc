// The memory of contexts: the broker charges an estimate before they are made, and the measured bytes
// afterwards.
#include <atomic>
#include <thread>

#include "tests/shim_memory/scene.h"

namespace gpumem::shim::test {
namespace {

/// Of 256 MiB; a context takes 4 MiB of it. `overhead`: what the broker estimates for one.
gpumem::test::BrokerOptions with_contexts(const std::string& overhead, const std::string& limit,
                                          const std::string& more = "") {
  return {.config = "[broker]\nreserve = \"all-but 32MiB\"\ncontext_overhead = \"" + overhead + "\"\n" +
                    more + "[[tenant]]\nname = \"me\"\nuser = " + std::to_string(::geteuid()) +
                    "\nlimit = \"" + limit + "\"\n"};
}

SCENE(MakesAContext) {
  EXPECT_CU(calls::cuInit(0));
  tell_and_await();
  CUcontext context = nullptr;
  EXPECT_CU(calls::cuDevicePrimaryCtxRetain(&context, 0));
  tell_and_await();
}

struct ContextMemory : ShimMemory {
  ContextMemory() : ShimMemory(with_contexts("16MiB", "64MiB", "reconcile_seconds = 0\n")) {}
};

TEST_F(ContextMemory, IsChargedBeforeThereIsAContextAndReplacedByWhatIsSeen) {
  Actor one = actor("MakesAContext");
  one.await();
  EXPECT_EQ(broker_.tenant("me").outside(), 0U) << "it has not used the device";
  one.tell_and_await();
  EXPECT_EQ(broker_.tenant("me").outside(), 16 * kMiB) << "the estimate";
  EXPECT_EQ(broker_.driver_view().processes.at(one.child().pid()), 4 * kMiB);
  const auto monitor = cli::Monitor::connect(broker_.folder());
  ASSERT_TRUE(monitor && monitor->reconcile(true));
  EXPECT_TRUE(gpumem::test::eventually([&] { return broker_.tenant("me").outside() == 4 * kMiB; }))
      << "once, and as it is: " << broker_.tenant("me").outside();
  one.tell_and_expect_success();
  EXPECT_TRUE(gpumem::test::eventually([&] { return broker_.tenant("me").outside() == 0; }));
}

struct LimitBelowAContext : ShimMemory {
  LimitBelowAContext() : ShimMemory(with_contexts("16MiB", "8MiB")) {}
};

SCENE(HasNoRoomForAContext) {
  ASSERT_CU(calls::cuInit(0));
  CUcontext context = nullptr;
  EXPECT_EQ(calls::cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuCtxCreate(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuCtxCreate_v3(&context, nullptr, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
#if CUDA_VERSION >= 12050
  EXPECT_EQ(calls::cuCtxCreate_v4(&context, nullptr, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
#endif
#if CUDA_VERSION >= 12040
  CUgreenCtx green = nullptr;
  EXPECT_EQ(calls::cuGreenCtxCreate(&green, nullptr, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
#endif
  EXPECT_EQ(context, nullptr);
  tell_and_await();
  EXPECT_EQ(calls::cuCtxCreate_v2(&context, 0, 7), CUDA_ERROR_INVALID_DEVICE) << "the driver's answer";
  EXPECT_EQ(calls::cuDevicePrimaryCtxRetain(&context, -1), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(LimitBelowAContext, NoneIsMadeAndItIsSaidWhy) {
  Actor one = actor("HasNoRoomForAContext");
  one.await();
  EXPECT_FALSE(broker_.driver_view().processes.contains(one.child().pid())) << "the driver was not asked";
  one.tell_and_expect_success();
  EXPECT_NE(one.output().find("a context on gpu0 "), std::string::npos) << one.output();
  EXPECT_NE(one.output().find("is charged with 16MiB"), std::string::npos) << one.output();
}

struct LoweredLimit : ShimMemory {
  LoweredLimit() : ShimMemory(with_contexts("0", "64MiB")) {}
};

/// What every way to load code answers.
void expect_loading(CUresult answer) {
  CUmodule module = nullptr;
  const CUresult of_file = answer == CUDA_ERROR_NOT_SUPPORTED ? CUDA_ERROR_FILE_NOT_FOUND : answer;
  EXPECT_EQ(calls::cuModuleLoad(&module, "/nonexistent"), of_file);
  EXPECT_EQ(calls::cuModuleLoadData(&module, "code"), answer);
  EXPECT_EQ(calls::cuModuleLoadDataEx(&module, "code", 0, nullptr, nullptr), answer);
  EXPECT_EQ(calls::cuModuleLoadFatBinary(&module, "code"), answer);
#if CUDA_VERSION >= 12000
  CUlibrary library = nullptr;
  EXPECT_EQ(calls::cuLibraryLoadData(&library, "code", nullptr, nullptr, 0, nullptr, nullptr, 0), answer);
  EXPECT_EQ(calls::cuLibraryLoadFromFile(&library, "/nonexistent", nullptr, nullptr, 0, nullptr, nullptr, 0),
            of_file);
#endif
}

SCENE(LoadsCodeInDebt) {
  ASSERT_CU(calls::cuInit(0));
  CUcontext context = nullptr, other = nullptr;
  ASSERT_CU(calls::cuDevicePrimaryCtxRetain(&context, 0));
  ASSERT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(context));
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 32 * kMiB));
  constexpr CUresult kOfDriver = CUDA_ERROR_NOT_SUPPORTED;  // the simulated one compiles no text
  expect_loading(kOfDriver);
  EXPECT_EQ(calls::cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 128 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(calls::cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 * kMiB));
  tell_and_await();
  expect_loading(CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuCtxCreate_v2(&other, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 32 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(calls::cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * kMiB)) << "less";
  EXPECT_CU(calls::cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
  EXPECT_CU(calls::cuDevicePrimaryCtxRetain(&other, 0)) << "it is there";
  EXPECT_CU(calls::cuMemFree_v2(at));
  // Idle memory goes back first; the broker asks for it at the same time.
  EXPECT_TRUE(gpumem::test::eventually([&] { return calls::cuCtxCreate_v2(&other, 0, 0) == CUDA_SUCCESS; }));
  expect_loading(kOfDriver);
}

TEST_F(LoweredLimit, AboveItNoCodeIsLoadedAndNoContextMade) {
  Actor one = actor("LoadsCodeInDebt");
  one.await();
  broker_.reload(with_contexts("0", "16MiB").config);
  one.tell_and_expect_success();
  EXPECT_NE(one.output().find("cuCtxSetLimit of 120MiB is refused: "), std::string::npos) << one.output();
}

// ---- Many threads, and a broker that comes and goes ----

/// Makes contexts and memory in them until `stop`.
void make_contexts(const std::atomic<bool>& stop) {
  const auto may_be = [](CUresult result) {
    EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY) << result;
    return result == CUDA_SUCCESS;
  };
  while (!stop) {
    CUcontext primary = nullptr, own = nullptr;
    const bool has_primary = may_be(calls::cuDevicePrimaryCtxRetain(&primary, 0));
    if (may_be(calls::cuCtxCreate_v2(&own, 0, 0))) {
      CUdeviceptr at = 0;
      if (may_be(calls::cuMemAlloc_v2(&at, kMiB))) byte_at(at) = 1;
      EXPECT_CU(calls::cuCtxDestroy_v2(own));
    }
    if (!has_primary) continue;
    EXPECT_CU(calls::cuDevicePrimaryCtxRelease_v2(0));
  }
}

SCENE(MakesContextsInManyThreads) {
  ASSERT_CU(calls::cuInit(0));
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { make_contexts(stop); });
  tell_and_await();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CUcontext context = nullptr;
  EXPECT_TRUE(
      gpumem::test::eventually([&] { return calls::cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS; }));
  tell_and_await();
}

struct ContextsAcrossRestarts : ShimMemory {
  ContextsAcrossRestarts() : ShimMemory(with_contexts("2MiB", "200MiB")) {}
};

TEST_F(ContextsAcrossRestarts, ComeAndGoInManyThreadsAndLeaveNothing) {
  Actor one = actor("MakesContextsInManyThreads", {{"GPUMEM_WAIT", "200ms"}});
  one.await();
  for (int round = 0; round < 3; ++round) {
    broker_.kill();
    broker_.start_again();
  }
  one.tell_and_await();
  one.tell_and_expect_success();
  EXPECT_TRUE(gpumem::test::eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
}

}  // namespace
}  // namespace gpumem::shim::test
