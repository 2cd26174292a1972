// The kernel's file `stat` of a process.

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "daemon/host/system/process.h"

namespace gpumem::host {
namespace {

// Field 9 is 4194560, field 22 is 8915.
const std::string kFields = " S 1 42 42 0 -1 4194560 5 6 7 8 1 2 3 4 20 0 1 0 8915 2310144 191\n";

TEST(ProcessStat, HasCommandFlagsAndStart) {
  const auto stat = parse_stat("42 (train.py)" + kFields);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->command, "train.py");
  EXPECT_EQ(stat->flags, 4194560U);
  EXPECT_EQ(stat->started, 8915U);
}

TEST(ProcessStat, CommandMayHoldAnyCharacter) {
  for (const std::string command : {"", ")", "(", "a) S 1 2 3", ") R 9 (", " ", "4 5 6"}) {
    const auto stat = parse_stat("42 (" + command + ")" + kFields);
    ASSERT_TRUE(stat);
    EXPECT_EQ(stat->command, command);
    EXPECT_EQ(stat->started, 8915U) << command;
  }
}

TEST(ProcessStat, CommandEndsWithItsFirstLine) {
  EXPECT_EQ(parse_stat("42 (a\nb)" + kFields)->command, "a");
  EXPECT_EQ(parse_stat("42 (a\\nb)" + kFields)->command, "a\\nb");
}

TEST(ProcessStat, OfATruncatedFileHasTheFieldsThatAreThere) {
  const auto stat = parse_stat("42 (cat) S 1 42 42 0 -1 4194564");
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->flags, 4194564U);
  EXPECT_FALSE(stat->started);
  EXPECT_FALSE(parse_stat("42 (cat) S 1")->flags);
  EXPECT_FALSE(parse_stat("42 (cat)")->flags);
  EXPECT_FALSE(parse_stat("42 (cat) S 1 42 42 0 -1 many")->flags);
}

TEST(ProcessStat, OfAnotherFileIsNothing) {
  for (const char* text : {"", "42", "42 (cat", "42 cat)", ")(", "root:x:0:0"})
    EXPECT_FALSE(parse_stat(text)) << text;
}

TEST(ProcessStat, OfThisProcessIsTheKernels) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_NAME, "a)\\ b\n(c");
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, WUNTRACED);
  const auto stat = stat_of(child);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->command, "a)\\ b");
  EXPECT_EQ(command_of(child), "a)\\ b");
  EXPECT_EQ(stat->started, *start_time(child));
  EXPECT_GE(*stat->started, *stat_of(::getpid())->started);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(stat_of(child));
  EXPECT_FALSE(start_time(child));
  EXPECT_EQ(command_of(child), "");
}

}  // namespace
}  // namespace gpumem::host
