// Processes in a job: the limit of the job, and the memory that its other processes leave.
#include <gpumem/session.h>

#include "tests/shim_memory/scene.h"

namespace gpumem::shim::test {
namespace {

struct JobTest : ShimMemory {
  /// The environment of a process of the job. The job lives as long as this test.
  Actor::Environment job(const JobOptions& options) {
    owner_ = Session::connect({.runtime_folder = broker_.folder()});
    auto begun = owner_->begin_job(options);
    EXPECT_TRUE(begun);
    return {{"GPUMEM_JOB", std::to_string(std::move(begun).value_or(0))}, {"GPUMEM_WAIT", "0s"}};
  }

  Result<Session> owner_ = Error{Code::kNotFound, "none"};
};

SCENE(HoldsSome) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 24 * kMiB));
  tell_and_await();
}

SCENE(SeesWhatTheOthersOfItsJobLeave) {
  start();
  std::size_t total = 0;
  EXPECT_CU(calls::cuMemGetInfo_v2(nullptr, &total));
  EXPECT_EQ(total, 64 * kMiB);
  EXPECT_EQ(free_memory(), 64 * kMiB);
  tell_and_await();
  EXPECT_TRUE(gpumem::test::eventually([] { return free_memory() == 40 * kMiB; }));
  tell_and_await();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 60 * kMiB)) << "what is free is more than what is shown";
  EXPECT_EQ(free_memory(), 0U);
  EXPECT_CU(calls::cuMemFree_v2(at));
  EXPECT_EQ(free_memory(), 40 * kMiB) << "it does not grow by the end of others";
}

TEST_F(JobTest, FreeMemoryIsWhatTheOthersHaveLeftAndDoesNotGrow) {
  const auto environment = job({.limit = mebibytes(64)});
  Actor one = actor("SeesWhatTheOthersOfItsJobLeave", environment);
  one.await();
  Actor other = actor("HoldsSome", environment);
  other.await();
  one.tell_and_await();
  other.tell_and_expect_success();
  EXPECT_TRUE(gpumem::test::eventually([&] { return charged() == 0; }));
  one.tell_and_expect_success();
}

SCENE(HasLessThanItsJob) {
  start();
  std::size_t total = 0;
  EXPECT_CU(calls::cuMemGetInfo_v2(nullptr, &total));
  EXPECT_EQ(total, 16 * kMiB);
  CUdeviceptr at = 0;
  EXPECT_EQ(calls::cuMemAlloc_v2(&at, 18 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(calls::cuMemAlloc_v2(&at, 16 * kMiB));
}

TEST_F(JobTest, ASmallerLimitOfTheProcessHoldsToo) {
  auto environment = job({.limit = mebibytes(64)});
  environment.emplace_back("GPUMEM_LIMIT", "16MiB");
  expect("HasLessThanItsJob", environment);
}

SCENE(TakesManagedMemoryBesideAFullJob) {
  start();
  CUdeviceptr at = 0;
  EXPECT_CU(calls::cuMemAllocManaged(&at, 20 * kMiB, CU_MEM_ATTACH_GLOBAL));
}

// Contexts and managed memory are charged to the tenant, not to the job.
TEST_F(JobTest, MemoryOfTheDriverNeedsRoomOfTheTenantAlone) {
  const auto environment = job({.limit = mebibytes(24)});
  Actor other = actor("HoldsSome", environment);
  other.await();
  expect("TakesManagedMemoryBesideAFullJob", environment);
  other.tell_and_expect_success();
}

}  // namespace
}  // namespace gpumem::shim::test
