// Host memory that a program pins by itself.
#include <cstdlib>

#include "tests/shim_memory/scene.h"

namespace gpumem::shim::test {
namespace {

struct PinnedTest : ShimMemory {
  PinnedTest()
      : ShimMemory({.config = "[broker]\nreserve = \"all-but 32MiB\"\n[host]\nsize = \"64MiB\"\n"
                              "[default]\nhost_limit = \"24MiB\"\n"}) {}
  std::uint64_t declared() const {
    std::uint64_t sum = 0;
    for (const auto& session : broker_.sessions())
      for (const auto& shared : session.shared())
        if (shared.device() == "host") sum += shared.declared();
    return sum;
  }
};

SCENE(PinsMemory) {
  start();
  void *one = nullptr, *two = nullptr;
  ASSERT_CU(calls::cuMemHostAlloc(&one, 8 * kMiB, 0));
  ASSERT_CU(calls::cuMemAllocHost_v2(&two, 4 * kMiB));
  void* const own = std::aligned_alloc(4096, 8 * kMiB);
  ASSERT_CU(calls::cuMemHostRegister(own, 8 * kMiB, 0));
  EXPECT_CU(calls::cuMemHostUnregister(own));
  ASSERT_CU(calls::cuMemHostRegister_v2(own, 8 * kMiB, 0));
  void* more = nullptr;
  EXPECT_EQ(calls::cuMemHostAlloc(&more, 8 * kMiB, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(free_memory(), kPool) << "no device is charged";
  tell_and_await();
  EXPECT_CU(calls::cuMemFreeHost(one));
  EXPECT_NE(calls::cuMemFreeHost(one), CUDA_SUCCESS) << "twice";
  EXPECT_CU(calls::cuMemFreeHost(two));
  EXPECT_CU(calls::cuMemHostUnregister(own));
  std::free(own);
  tell_and_await();
}

TEST_F(PinnedTest, IsDeclaredOnTheHostStoreWithinItsLimit) {
  Actor program = actor("PinsMemory");
  program.await();
  EXPECT_EQ(declared(), 20 * kMiB);
  program.tell_and_await();
  EXPECT_TRUE(gpumem::test::eventually([&] { return declared() == 0; }));
  program.tell_and_expect_success();
  EXPECT_NE(program.output().find("(host_limit)"), std::string::npos) << program.output();
}

SCENE_TEST(PinnedTest, GoesWithItsContext) {
  const CUcontext primary = start();
  CUcontext context = nullptr;
  ASSERT_CU(real<decltype(&::cuCtxCreate_v2)>("cuCtxCreate_v2")(&context, 0, 0));
  void* pinned = nullptr;
  ASSERT_CU(calls::cuMemHostAlloc(&pinned, 20 * kMiB, 0));
  EXPECT_CU(calls::cuCtxDestroy_v2(context));
  EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(primary));
  EXPECT_CU(calls::cuMemHostAlloc(&pinned, 20 * kMiB, 0)) << "the limit has room again";
}

}  // namespace
}  // namespace gpumem::shim::test
