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
TEST_P(Lifetimes, ProcessEndsWhoseHandlersComeAfterTheDriversEnd) { runs("frees_when_the_driver_has_ended"); }
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

TEST_P(Lifetimes, DriverMayBeOpenedAndClosedAHundredTimes) {
  auto options = options_of({"libcuda.so.1"}, {}, GetParam());
  options.program = GPUMEM_TEST_OPENER;
  gpumem::test::SteppedProgram one(options);
  EXPECT_TRUE(one.succeeds()) << one.output();
  EXPECT_EQ(one.output(), "");
  EXPECT_TRUE(comes_to_rest());
}

TEST_F(ShimPrograms, DriverMayBeOpenedByTheNameOfDevelopers) {
  auto options = options_of({"libcuda.so"}, {}, Way::kPath);
  options.program = GPUMEM_TEST_OPENER;
  gpumem::test::SteppedProgram one(options);
  EXPECT_TRUE(one.succeeds()) << one.output();
  EXPECT_TRUE(comes_to_rest());
}

}  // namespace
}  // namespace gpumem::shim_programs
