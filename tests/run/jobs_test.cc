// Commands that do not fit together, and processes of one command that do not: each on a GPU of 24 GiB, of
// which the broker owns 21.6 GiB.
#include <thread>

#include "tests/run/fixture.h"

namespace gpumem::test {
namespace {

struct Jobs : RunTest {
  Jobs() : RunTest({.simulate = "1x24GiB", .config = ""}) {}

  /// With the drop-in driver of the build tree.
  RunningCli begin_job(std::vector<std::string> options, const std::vector<std::string>& words) const {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {"--", actor_program()});
    options.insert(options.end(), words.begin(), words.end());
    return {std::move(options), with({{"GPUMEM_SHIM_FOLDER", ""}})};
  }
  std::uint64_t charged() const { return broker_.device().pool() - broker_.device().free(); }
};

std::string text(Bytes bytes) { return std::to_string(bytes.count); }

TEST_F(Jobs, OfTwoThatDoNotFitTogetherTheSecondBeginsWhenTheFirstHasEnded) {
  const std::vector<std::string> options{"--limit", "12GiB", "--wait", "30s"};
  const std::vector<std::string> words{"borrow", "driver", text(gibibytes(12)), "stay-asked"};
  auto first = begin_job(options, words);
  first.pid_of_command();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // as people start them
  auto second = begin_job(options, words);
  EXPECT_TRUE(second.has_said("gpumem run: waiting for 12GiB of GPU-"));
  first.tell("take\n");
  EXPECT_TRUE(first.has_said("has it\n"));
  EXPECT_EQ(second.said().find("ready"), std::string::npos) << second.said();
  first.tell("quit\n");
  EXPECT_EQ(first.wait(), 0);
  EXPECT_TRUE(says(first.said(), "gpumem run: peak 12GiB, waited "));
  second.pid_of_command();
  second.tell("take\n");
  EXPECT_TRUE(second.has_said("has it\n"));
  second.tell("quit\n");
  EXPECT_EQ(second.wait(), 0);
  EXPECT_TRUE(says(second.said(), "gpumem run: peak 12GiB, waited "));
  EXPECT_TRUE(says(second.said(), ", nothing denied\n"));
}

TEST_F(Jobs, ProcessesOfOneCommandStayWithinItsLimitTogether) {
  RunningCli job({"run", "--limit", "8GiB", "--", actor_program(), "pair", "borrow", "driver",
                  text(gibibytes(6)), "stay"},
                 with({{"GPUMEM_SHIM_FOLDER", ""}, {"GPUMEM_WAIT", "500ms"}}));
  EXPECT_TRUE(job.has_said("has it\n"));
  EXPECT_TRUE(job.has_said("has it not: error 2\n"));
  EXPECT_TRUE(says(job.said(), "gpumem: cuMemAlloc of 6GiB is refused: "));
  EXPECT_TRUE(says(job.said(), "its job's limit of 8GiB"));
  EXPECT_EQ(charged(), gibibytes(6).count);
  job.tell("quit\n");
  EXPECT_EQ(job.wait(), 0);
  EXPECT_TRUE(says(job.said(), "gpumem run: peak 6GiB, "));
  EXPECT_TRUE(says(job.said(), ", 1 request denied\n"));
}

TEST_F(Jobs, BoundProgramsOfTheLibraryToo) {
  auto job = begin_job({"--limit", "256MiB", "--name", "mine"}, {"fill"});
  EXPECT_TRUE(job.has_said("has 4 blocks: "));
  EXPECT_TRUE(says(job.said(), "its job's limit of 256MiB"));
  EXPECT_EQ(charged(), mebibytes(256).count);
  const auto sessions = broker_.sessions();
  ASSERT_EQ(sessions.size(), 2U);
  EXPECT_EQ(sessions[0].label(), "gpumem run");
  EXPECT_EQ(sessions[1].label(), "mine");
  job.tell("quit\n");
  EXPECT_EQ(job.wait(), 0);
  EXPECT_TRUE(says(job.said(), "gpumem run: peak 256MiB, waited "));
  EXPECT_TRUE(says(job.said(), ", 1 request denied\n"));
}

}  // namespace
}  // namespace gpumem::test
