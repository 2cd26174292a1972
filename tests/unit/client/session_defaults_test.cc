// What sessions take from the environment.
#include <algorithm>
#include <future>

#include "client/process/environment.h"
#include "tests/unit/client/environment.h"
#include "tests/unit/client/slice_fixture.h"

namespace gpumem::client::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// The Hello of a session with `options`, which is in job 9, and its job.
std::pair<lane::Hello, std::uint64_t> hello_of(SessionOptions options) {
  std::promise<lane::Hello> hello;
  FakeLane lane([&](int socket) {
    const Said said = receive_frame(socket);
    hello.set_value(said.as<lane::Hello>());
    lane::Welcome message = welcome();
    message.job = said.as<lane::Hello>().job;
    send_welcome(socket, said.header.request, message);
  });
  options.runtime_folder = lane.folder();
  auto session = Session::connect(options);
  EXPECT_TRUE(session) << to_string(session.error());
  return {hello.get_future().get(), session->job()};
}

TEST(SessionDefaults, AreTheJobAndTheNameOfTheEnvironment) {
  const InEnvironment run({{"GPUMEM_JOB", "9"}, {"GPUMEM_NAME", "training"}});
  const auto [hello, job] = hello_of({});
  EXPECT_EQ(hello.job, 9U);
  EXPECT_EQ(hello.label.view(), "training");
  EXPECT_EQ(job, 9U);
  const auto [alone, none] = hello_of({.label = "own", .join_job = false});
  EXPECT_EQ(alone.job, 0U);
  EXPECT_EQ(alone.label.view(), "own");
  EXPECT_EQ(none, 0U);
}

TEST(SessionDefaults, ThatCannotBeReadAreToldOnceAndDoNotCount) {
  const InEnvironment wrong({{"GPUMEM_JOB", "7a"}, {"GPUMEM_LIMIT", "much"}, {"GPUMEM_WAIT", "long"}});
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    const SessionDefaults defaults = SessionDefaults::from_environment();
    EXPECT_EQ(defaults.job, 0U);
    EXPECT_TRUE(defaults.limit.is_zero());
    EXPECT_EQ(defaults.wait, milliseconds(0));
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(said, '\n'), 3) << said;
  EXPECT_NE(said.find("gpumem: GPUMEM_JOB: '7a' is not the number of a job"), std::string::npos) << said;
}

/// A session in no job, whose environment says how to borrow.
struct BorrowsByEnvironment : testing::Test {
  const InEnvironment environment_{{{"GPUMEM_LIMIT", "5MiB"}, {"GPUMEM_WAIT", "3s"}}};
  FakeBroker broker_;
  Result<Session> session_ = Session::connect({broker_.folder(), "test", seconds(20)});
};

TEST_F(BorrowsByEnvironment, WaitsAsLongAsItSaysUnlessToldOtherwise) {
  auto slice = session_->open_slice({.limit = kPage});
  ASSERT_TRUE(slice) << to_string(slice.error());
  ASSERT_TRUE(slice->grow(kPage));
  EXPECT_GT(broker_.requests().back().wait, std::chrono::nanoseconds(seconds(2)).count());
  ASSERT_TRUE(slice->shrink({}));
  ASSERT_TRUE(slice->grow(kPage, {.wait = milliseconds(0)}));
  EXPECT_EQ(broker_.requests().back().wait, 0U);
}

// The fake broker's pool is the whole of the driver's device.
TEST_F(BorrowsByEnvironment, BoundsEachSliceByTheLimit) {
  const auto limit_of = [this](Bytes wanted) { return session_->open_slice({.limit = wanted})->limit(); };
  EXPECT_EQ(limit_of({}), mebibytes(4)) << "whole units";
  EXPECT_EQ(limit_of(mebibytes(16)), mebibytes(4));
  EXPECT_EQ(limit_of(mebibytes(2)), mebibytes(2)) << "the caller's own is smaller";
}

}  // namespace
}  // namespace gpumem::client::test
