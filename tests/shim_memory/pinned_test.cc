// Host memory that a program pins by itself.
#include <gpumem/session.h>

#include <cstdlib>
#include <memory>
#include <vector>

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
  void* const of_the_bus = std::aligned_alloc(4096, 8 * kMiB);
  ASSERT_CU(calls::cuMemHostRegister_v2(of_the_bus, 8 * kMiB, CU_MEMHOSTREGISTER_IOMEMORY));
  EXPECT_EQ(free_memory(), kPool) << "no device is charged";
  tell_and_await();
  EXPECT_CU(calls::cuMemHostUnregister(of_the_bus));
  std::free(of_the_bus);
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
  EXPECT_NE(program.output().find("20MiB of the host_limit of tenant"), std::string::npos)
      << program.output();
}

CUresult pin_anything(void*, std::size_t, unsigned) { return CUDA_SUCCESS; }

SCENE(PinsOddSizes) {
  stand_in("cuMemHostRegister_v2", reinterpret_cast<void*>(pin_anything));
  start();
  auto* const own = static_cast<char*>(std::aligned_alloc(4096, 8192));
  void* byte = nullptr;
  ASSERT_CU(calls::cuMemHostAlloc(&byte, 1, 0));
  ASSERT_CU(calls::cuMemHostRegister_v2(own + 4095, 2, 0));
  for (const std::uint64_t huge : {std::uint64_t{1} << 50, ~std::uint64_t{0} - 4096, ~std::uint64_t{0}})
    EXPECT_EQ(calls::cuMemHostRegister_v2(own, huge, 0), CUDA_ERROR_OUT_OF_MEMORY) << huge;
  tell_and_await();
  EXPECT_CU(calls::cuMemFreeHost(byte));
}

TEST_F(PinnedTest, IsChargedInWholePagesAndNeverBeyondTheMachine) {
  Actor program = actor("PinsOddSizes");
  program.await();
  EXPECT_EQ(declared(), 3U * 4096);
  program.tell_and_expect_success();
}

SCENE(PinsOneBlock) {
  start();
  tell_and_await();
  void* pinned = nullptr;
  const CUresult made = calls::cuMemHostAlloc(&pinned, 8 * kMiB, 0);
  EXPECT_TRUE(made == CUDA_SUCCESS || made == CUDA_ERROR_OUT_OF_MEMORY) << made;
  tell_and_await();
}

TEST_F(PinnedTest, ProcessesThatPinAtTheSameMomentDoNotPassTheLimit) {
  std::vector<std::unique_ptr<Actor>> programs;
  for (int i = 0; i < 6; ++i) programs.push_back(std::unique_ptr<Actor>(new Actor(actor("PinsOneBlock"))));
  for (const auto& program : programs) program->await();
  for (const auto& program : programs) program->tell();
  for (const auto& program : programs) program->await();
  EXPECT_EQ(declared(), 24 * kMiB) << "all that three of them have asked for";
  for (const auto& program : programs) program->tell_and_expect_success();
}

SCENE(PinsInAJob) {
  start();
  void *pinned = nullptr, *more = nullptr;
  ASSERT_CU(calls::cuMemHostAlloc(&pinned, 12 * kMiB, 0));
  EXPECT_EQ(calls::cuMemHostAlloc(&more, 8 * kMiB, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(PinnedTest, CountsForTheHostLimitOfItsJob) {
  auto owner = gpumem::Session::connect({.runtime_folder = broker_.folder()});
  ASSERT_TRUE(owner);
  const auto job = owner->begin_job({.host_limit = mebibytes(16)});
  ASSERT_TRUE(job);
  const Actor::Environment environment{{"GPUMEM_JOB", std::to_string(*job)}};
  const std::string said = expect("PinsInAJob", environment);
  EXPECT_NE(said.find("cuMemHostAlloc of 8MiB is refused: 12MiB of the host_limit of job " +
                      std::to_string(*job) + ", 16MiB, are charged"),
            std::string::npos)
      << said;
}

#if CUDA_VERSION >= 13000
constexpr CUmemLocation kHost{CU_MEM_LOCATION_TYPE_HOST, 0};

CUmemGenericAllocationHandle handle_on_host(std::uint64_t bytes, CUresult expected) {
  CUmemAllocationProp asked{};
  asked.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  asked.location = kHost;
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(calls::cuMemCreate(&handle, bytes, &asked, 0), expected);
  return handle;
}

CUdeviceptr block_of(CUmemoryPool pool, std::uint64_t bytes, CUresult expected) {
  CUdeviceptr at = 0;
  EXPECT_EQ(calls::cuMemAllocFromPoolAsync(&at, bytes, pool, nullptr), expected);
  return at;
}

SCENE(PinsByPoolsAndHandles) {
  start();
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = kHost;
  CUmemoryPool pool = nullptr, its_default = nullptr;
  ASSERT_CU(calls::cuMemPoolCreate(&pool, &properties));
  cuuint64_t all = ~cuuint64_t{0};
  EXPECT_CU(calls::cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
  CUmemLocation host = kHost;
  ASSERT_CU(calls::cuMemGetDefaultMemPool(&its_default, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
  const auto handle = handle_on_host(8 * kMiB, CUDA_SUCCESS);
  const CUdeviceptr one = block_of(pool, 5 * kMiB, CUDA_SUCCESS);
  const CUdeviceptr two = block_of(its_default, 2 * kMiB, CUDA_SUCCESS);
  block_of(pool, 9 * kMiB, CUDA_ERROR_OUT_OF_MEMORY);
  handle_on_host(10 * kMiB, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(free_memory(), kPool) << "no device is charged";
  tell_and_await();  // 8 + 6 + 2 MiB
  EXPECT_CU(calls::cuMemFreeAsync(one, nullptr));
  EXPECT_CU(real<decltype(&::cuCtxSynchronize)>("cuCtxSynchronize")());
  EXPECT_CU(calls::cuMemRelease(handle_on_host(14 * kMiB, CUDA_SUCCESS))) << "idle memory makes room";
  EXPECT_CU(calls::cuMemFreeAsync(two, nullptr));
  EXPECT_CU(calls::cuMemRelease(handle));
  EXPECT_CU(calls::cuMemPoolTrimTo(its_default, 0));
  tell_and_await();
}

TEST_F(PinnedTest, IsCountedInPoolsAndHandlesOfTheHost) {
  Actor program = actor("PinsByPoolsAndHandles");
  program.await();
  EXPECT_EQ(declared(), 16 * kMiB);
  program.tell_and_await();
  EXPECT_TRUE(gpumem::test::eventually([&] { return declared() == 0; })) << declared();
  program.tell_and_expect_success();
}
#endif

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
