#include "client/c/last_error.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace gpumem::c_abi {
namespace {

TEST(LastError, IsEmptyAtFirstAndStaysUntilTheNextFailure) {
  std::thread([] {
    EXPECT_STREQ(gpumem_last_error(), "");
    EXPECT_EQ(fail(Code::kNotFound, "no such thing"), GPUMEM_NOT_FOUND);
    EXPECT_EQ(guarded([] { return GPUMEM_OK; }), GPUMEM_OK);
    EXPECT_STREQ(gpumem_last_error(), "no such thing") << "a success leaves it alone";
    EXPECT_EQ(fail({Code::kAborted, std::string(10'000, 'x')}), GPUMEM_ABORTED);
    EXPECT_EQ(std::string(gpumem_last_error()).size(), 10'000U) << "nothing is cut off";
  }).join();
}

TEST(LastError, IsTheThreadsOwn) {
  (void)fail(Code::kInternal, "mine");
  std::thread([] { (void)fail(Code::kInternal, "another's"); }).join();
  EXPECT_STREQ(gpumem_last_error(), "mine");
}

TEST(LastError, CanBeSetWhileAThreadEnds) {
  struct FreesLate {
    ~FreesLate() {
      EXPECT_EQ(fail(Code::kInvalidArgument, "too late"), GPUMEM_INVALID_ARGUMENT);
      EXPECT_STRNE(gpumem_last_error(), "");
    }
  };
  std::thread([] {
    thread_local FreesLate first;  // made before the words, so gone after them
    (void)&first;
    (void)fail(Code::kInternal, "words");
  }).join();
}

TEST(LastError, ExceptionsBecomeFailures) {
  EXPECT_EQ(guarded([]() -> gpumem_status { throw std::bad_alloc(); }), GPUMEM_RESOURCE_EXHAUSTED);
  EXPECT_NE(std::string(gpumem_last_error()).find("host has no memory"), std::string::npos);
  EXPECT_EQ(guarded([]() -> gpumem_status { throw std::runtime_error("what it was"); }), GPUMEM_INTERNAL);
  EXPECT_STREQ(gpumem_last_error(), "what it was");
  EXPECT_EQ(guarded([]() -> gpumem_status { throw 1; }), GPUMEM_INTERNAL);
}

TEST(FailureLog, ReportsEachStatusOnce) {
  FailureLog failures("gpumem_some_free");
  testing::internal::CaptureStderr();
  failures.report(fail(Code::kInvalidArgument, "one"));
  failures.report(fail(Code::kInvalidArgument, "two"));
  failures.report(fail(Code::kUnavailable, "three"));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("gpumem_some_free: INVALID_ARGUMENT: one"), std::string::npos) << said;
  EXPECT_EQ(said.find("two"), std::string::npos) << said;
  EXPECT_NE(said.find("UNAVAILABLE: three"), std::string::npos) << said;
}

}  // namespace
}  // namespace gpumem::c_abi
