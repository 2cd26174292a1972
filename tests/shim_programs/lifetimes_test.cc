// How programs begin and end, under the drop-in driver.
#include "tests/shim_programs/stage.h"

namespace gpumem::shim_programs {
namespace {

using Lifetimes = BothWays;
INSTANTIATE_TEST_SUITE_P(Programs, Lifetimes, testing::Values(Way::kPath, Way::kPreload), name_of_way);

TEST_P(Lifetimes, StaticObjectMayStartTheDriverAndFreeInItsDestructor) {
  runs("starts_early", {{"SHIM_PROGRAM_STARTS_EARLY", "1"}});
}
TEST_P(Lifetimes, MemoryIsThereInHandlersOfExit) { runs("uses_memory_at_exit"); }
TEST_P(Lifetimes, ProcessEndsWithHandlersThatRunAfterTheDriversEnd) {
  runs("frees_when_the_driver_has_ended");
}
TEST_P(Lifetimes, ProcessEndsWhileItsThreadsAllocate) {
  for (int i = 0; i < 10; ++i) runs("exits_while_threads_allocate");
}
TEST_P(Lifetimes, ProcessGoesOnWithoutItsMainThread) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the leak check takes what the main thread's stack held for lost";
#endif
  runs("ends_its_main_thread");
}
TEST_P(Lifetimes, AnotherProgramInTheSameProcessBorrowsAnew) { runs("becomes_another"); }

TEST_P(Lifetimes, FirstUseMayBeOnTheSmallStackOfAFibreOrThread) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a sanitized library does not change stacks";
#endif
  expect({"starts_on_a_small_stack"}, {}, GetParam());
  expect({"uses_the_smallest_stack_of_a_thread"}, {}, GetParam());
  EXPECT_TRUE(comes_to_rest());
}

TEST_P(Lifetimes, DriverMayBeOpenedAndClosedAHundredTimes) {
  auto options = options_of({"libcuda.so.1"}, {{"GPUMEM_LIMIT", "1GiB"}}, GetParam());
  options.program = GPUMEM_TEST_OPENER;
  gpumem::test::SteppedProgram one(options);
  EXPECT_TRUE(one.succeeds()) << one.output();
  EXPECT_EQ(one.output(), "");
  EXPECT_TRUE(comes_to_rest());
}

TEST_P(Lifetimes, CallsThatAreNotReplacedReachTheDriverAndChangeNoFigure) {
  const std::string said = expect({"forwarded_calls"}, {{"GPUMEM_LIMIT", "64MiB"}}, GetParam());
  for (const char* call : {"cuMulticastCreate", "cuMulticastBindMem", "cuMulticastBindAddr",
                           "cuMemMapArrayAsync", "cuMemGetHandleForAddressRange",
                           "cuExternalMemoryGetMappedBuffer", "cuExternalMemoryGetMappedMipmappedArray"})
    EXPECT_NE(said.find("gpumem-sim: " + std::string(call) + " is not simulated"), std::string::npos) << said;
  EXPECT_TRUE(comes_to_rest());
}

// By cuGetProcAddress_v2 alone, which dlsym finds.
TEST_P(Lifetimes, DriverIsFoundAsTheCudaRuntimeFindsIt) {
  auto options = options_of({"libcuda.so.1", "as_runtime"}, {{"GPUMEM_LIMIT", "1GiB"}}, GetParam());
  options.program = GPUMEM_TEST_OPENER;
  gpumem::test::SteppedProgram one(options);
  EXPECT_TRUE(one.succeeds()) << one.output();
  EXPECT_EQ(one.output(), "");
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(ShimPrograms, DriverMayBeOpenedByTheNameOfDevelopers) {
  auto options = options_of({"libcuda.so"}, {{"GPUMEM_LIMIT", "1GiB"}}, Way::kPath);
  options.program = GPUMEM_TEST_OPENER;
  gpumem::test::SteppedProgram one(options);
  EXPECT_TRUE(one.succeeds()) << one.output();
  EXPECT_TRUE(comes_to_rest());
}

}  // namespace
}  // namespace gpumem::shim_programs
