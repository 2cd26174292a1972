#include "gpumem/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace gpumem {
namespace {

using Owned = std::unique_ptr<int>;

TEST(ResultOfAValue, HoldsMoveOnlyValues) {
  Result<Owned> result(std::make_unique<int>(7));
  ASSERT_TRUE(result);
  EXPECT_EQ(**result, 7);
  const Owned moved = std::move(result).value();
  EXPECT_EQ(*moved, 7);
}

TEST(ResultOfAValue, FallsBackOnlyWhenItIsAnError) {
  EXPECT_EQ(Result<int>(7).value_or(1), 7);
  EXPECT_EQ(Result<int>(Error{Code::kNotFound, "no"}).value_or(1), 1);
}

TEST(ResultOfNothing, IsSuccessByDefault) {
  EXPECT_TRUE(Result<void>());
  EXPECT_FALSE(Result<void>(Error{}));
}

TEST(ResultDeathTest, AbortsWhenTheOtherSideIsRead) {
  const Result<int> error(Error{Code::kNotFound, "no"});
  const Result<int> value(7);
  const Result<void> nothing;
  EXPECT_DEATH(static_cast<void>(error.value()), "");
  EXPECT_DEATH(static_cast<void>(value.error()), "");
  EXPECT_DEATH(static_cast<void>(nothing.error()), "");
}

TEST(ErrorWords, GainContextOnTheWayUp) {
  const Error error = Error{Code::kNotFound, "no such file"}.in("config").in("start");
  EXPECT_EQ(error.code, Code::kNotFound);
  EXPECT_EQ(to_string(error), "NOT_FOUND: start: config: no such file");
}

TEST(ErrorCodes, HaveTheNamesAndNumbersOfGrpc) {
  EXPECT_EQ(code_name(Code::kCancelled), "CANCELLED");
  EXPECT_EQ(code_name(Code::kDeadlineExceeded), "DEADLINE_EXCEEDED");
  EXPECT_EQ(code_name(Code::kResourceExhausted), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(code_name(static_cast<Code>(99)), "UNKNOWN");
  EXPECT_EQ(static_cast<int>(Code::kUnauthenticated), 16);
  EXPECT_EQ(static_cast<int>(Code::kUnavailable), 14);
}

TEST(ErrnoErrors, SayWhatAndWhyWithAFittingCode) {
  const auto code = [](int number) { return errno_error(number, "x").code; };
  EXPECT_EQ(code(ENOENT), Code::kNotFound);
  EXPECT_EQ(code(ENODEV), Code::kNotFound);
  EXPECT_EQ(code(EACCES), Code::kPermissionDenied);
  EXPECT_EQ(code(EPERM), Code::kPermissionDenied);
  EXPECT_EQ(code(EADDRINUSE), Code::kAlreadyExists);
  EXPECT_EQ(code(EINVAL), Code::kInvalidArgument);
  EXPECT_EQ(code(EMFILE), Code::kResourceExhausted);
  EXPECT_EQ(code(ENOSPC), Code::kResourceExhausted);
  EXPECT_EQ(code(EPIPE), Code::kUnavailable);
  EXPECT_EQ(code(EAGAIN), Code::kDeadlineExceeded);
  EXPECT_EQ(code(ECONNREFUSED), Code::kUnavailable);
  EXPECT_EQ(code(ETIMEDOUT), Code::kDeadlineExceeded);
  EXPECT_EQ(code(EIO), Code::kInternal);
  EXPECT_EQ(code(-1), Code::kInternal);
  EXPECT_EQ(errno_error(ENOENT, "/etc/gpumemd").message, "/etc/gpumemd: No such file or directory");
}

}  // namespace
}  // namespace gpumem
