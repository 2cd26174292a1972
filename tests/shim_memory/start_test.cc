// The beginning of a process: with a broker, without one, after a fork.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/shim_memory/scene.h"

namespace gpumem::shim::test {
namespace {

using Start = ShimMemory;

SCENE(InitFails) { EXPECT_EQ(calls::cuInit(0), CUDA_ERROR_SYSTEM_NOT_READY); }

TEST_F(Start, WithoutABrokerInitFailsAndSaysWhatToDo) {
  Actor one = actor("InitFails", {{"GPUMEM_RUNTIME_DIR", "/nonexistent"}});
  EXPECT_TRUE(one.succeeds()) << one.output();
  EXPECT_NE(one.output().find("gpumem: "), std::string::npos) << one.output();
  EXPECT_NE(one.output().find("GPUMEM_OPTIONAL=1"), std::string::npos) << one.output();
}

SCENE(InitIsInterrupted) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ::sigaction(SIGINT, &action, nullptr);
  EXPECT_EQ(calls::cuInit(0), CUDA_ERROR_SYSTEM_NOT_READY);
  tell_and_await();
  start();
}

TEST_F(Start, ASignalEndsTheWaitForABrokerThatDoesNotAnswer) {
  ASSERT_EQ(::kill(broker_.pid(), SIGSTOP), 0);
  Actor one = actor("InitIsInterrupted", {{"GPUMEM_WAIT", "10m"}});
  const auto says = [&](const char* words) { return one.output().find(words) != std::string::npos; };
  EXPECT_TRUE(gpumem::test::eventually([&] { return says("gpumem: waiting for the broker"); }));
  one.child().signal(SIGINT);
  one.await();
  EXPECT_TRUE(says("gpumem: the wait was ended by a signal, SIGINT\n")) << one.output();
  ASSERT_EQ(::kill(broker_.pid(), SIGCONT), 0);
  EXPECT_TRUE(gpumem::test::eventually([&] { return broker_.sessions().size() == 1; }))
      << "the late answer makes the session of the next call";
  one.tell_and_expect_success();
}

// A program that goes on after cuInit has failed must not get the driver's own memory.
SCENE(GoesOnAfterInitHasFailed) {
  EXPECT_EQ(calls::cuInit(0), CUDA_ERROR_SYSTEM_NOT_READY);
  CUcontext context = nullptr;
  EXPECT_CU(real<decltype(&::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 0));
  EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(context));
  CUdeviceptr at = 0;
  EXPECT_NE(calls::cuMemAlloc_v2(&at, kMiB), CUDA_SUCCESS);
  EXPECT_NE(calls::cuMemAllocAsync(&at, kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_NE(calls::cuMemAllocManaged(&at, kMiB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_NE(calls::cuMemCreate(&handle, 2 * kMiB, &properties, 0), CUDA_SUCCESS);
  std::size_t free = 0;
  EXPECT_NE(calls::cuMemGetInfo_v2(&free, nullptr), CUDA_SUCCESS);
}

TEST_F(Start, AfterAFailedInitNothingIsAllocatedPastTheBroker) {
  expect("GoesOnAfterInitHasFailed", {{"GPUMEM_RUNTIME_DIR", "/nonexistent"}});
  expect("GoesOnAfterInitHasFailed", {{"GPUMEM_LIMIT", "0"}});
}

// Output to a closed stream must reach nobody, least of all the broker.
SCENE_TEST(Start, ClosedStandardStreamsAreNotTakenForTheBrokersDescriptors) {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO}) ::close(stream);
  start();
  CUdeviceptr at = 0, other = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 8 * kMiB));
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO}) static_cast<void>(::write(stream, "words", 5) < 0);
  EXPECT_CU(calls::cuMemAlloc_v2(&other, 96 * kMiB)) << "by the session that there was";
  EXPECT_CU(calls::cuMemFree_v2(other));
  EXPECT_CU(calls::cuMemFree_v2(at));
}

// Programs that write nothing on it live on without a reader of it, and are not ended by our words.
SCENE_TEST(Start, NobodyReadsStandardError) {
  start();
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const int errors = ::dup(STDERR_FILENO);
  ASSERT_EQ(::dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
  ASSERT_EQ(::signal(SIGPIPE, SIG_DFL), SIG_DFL);
  CUdeviceptr at = 0;
  EXPECT_EQ(calls::cuMemAlloc_v2(&at, 2 * kPool), CUDA_ERROR_OUT_OF_MEMORY) << "and this is said";
  EXPECT_EQ(::dup2(errors, STDERR_FILENO), STDERR_FILENO);
  sigset_t blocked;
  EXPECT_EQ(::pthread_sigmask(SIG_BLOCK, nullptr, &blocked), 0);
  EXPECT_EQ(::sigismember(&blocked, SIGPIPE), 0) << "as it was";
}

SCENE(AllocatesAfterTheBrokerHasEnded) {
  start();
  tell_and_await();
  CUdeviceptr at = 0;
  EXPECT_EQ(calls::cuMemAllocAsync(&at, 4 * kMiB, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  EXPECT_EQ(calls::cuMemPoolCreate(&pool, &properties), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(Start, ASliceThatCannotBeOpenedIsNotTheDriversMemory) {
  Actor one = actor("AllocatesAfterTheBrokerHasEnded", {{"GPUMEM_WAIT", "0s"}});
  one.await();
  broker_.kill();
  one.tell_and_expect_success();
  broker_.start_again();
}

TEST_F(Start, UnreadableLimitFailsByName) {
  const std::string said = expect("InitFails", {{"GPUMEM_LIMIT", "plenty"}});
  EXPECT_NE(said.find("GPUMEM_LIMIT"), std::string::npos) << said;
}

SCENE(UsesTheDriverAlone) {
  start();
  EXPECT_CU(calls::cuInit(0)) << "again";
  std::size_t free = 0, total = 0;
  EXPECT_CU(calls::cuMemGetInfo_v2(&free, &total));
  EXPECT_EQ(total, 256 * kMiB) << "the device's own";
  CUdeviceptr at = 0;
  // All but the broker's pool is there for others.
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 2 * kMiB));
  EXPECT_CU(calls::cuMemFree_v2(at));
}

TEST_F(Start, WithoutABrokerThatIsOptionalTheDriverServesAndItIsSaidOnce) {
  const std::string said =
      expect("UsesTheDriverAlone", {{"GPUMEM_RUNTIME_DIR", "/nonexistent"}, {"GPUMEM_OPTIONAL", "1"}});
  const auto first = said.find("going on without it");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("going on without it", first + 1), std::string::npos) << said;
}

SCENE_TEST(Start, CallsBeforeInitAreTheDriversToAnswer) {
  CUdeviceptr at = 0;
  EXPECT_EQ(calls::cuMemAlloc_v2(&at, kMiB), CUDA_ERROR_NOT_INITIALIZED);
  std::size_t free = 0;
  EXPECT_EQ(calls::cuMemGetInfo_v2(&free, nullptr), CUDA_ERROR_NOT_INITIALIZED);
}

SCENE(NamedProcess) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, kMiB));
  tell_and_await();
}

TEST_F(Start, SessionHasTheNameThatItWasGiven) {
  Actor one = actor("NamedProcess", {{"GPUMEM_NAME", "training"}});
  one.await();
  ASSERT_EQ(broker_.sessions().size(), 1U);
  EXPECT_EQ(broker_.sessions().front().label(), "training");
  one.tell_and_expect_success();
  EXPECT_TRUE(gpumem::test::eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
}

int status_of_child(void (*body)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

SCENE_TEST(Start, ForkedChildOfAStartedProcessGetsTheDriversErrorsAndHarmsNothing) {
  start();
  static CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 8 * kMiB));
  byte_at(at) = 7;
  EXPECT_EQ(status_of_child([] {
              CUdeviceptr other = 0;
              EXPECT_NE(calls::cuInit(0), CUDA_SUCCESS);
              EXPECT_NE(calls::cuMemAlloc_v2(&other, kMiB), CUDA_SUCCESS);
              EXPECT_NE(calls::cuMemFree_v2(at), CUDA_SUCCESS);
            }),
            0);
  EXPECT_EQ(byte_at(at), 7);
  EXPECT_CU(calls::cuMemFree_v2(at));
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 8 * kMiB)) << "the session goes on";
}

SCENE_TEST(Start, ForkedChildOfAProcessThatHasNotStartedHasASessionOfItsOwn) {
  EXPECT_EQ(status_of_child([] {
              start();
              CUdeviceptr at = 0;
              ASSERT_CU(calls::cuMemAlloc_v2(&at, kPool));
            }),
            0);
  start();
  CUdeviceptr at = 0;
  // The child's memory comes back when it has ended: this waits for it.
  ASSERT_CU(calls::cuMemAlloc_v2(&at, kPool));
}

}  // namespace
}  // namespace gpumem::shim::test
