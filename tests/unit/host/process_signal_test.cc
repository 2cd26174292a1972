// Processes are ended only if they are the ones that were meant.
#include "daemon/host/system/process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include <csignal>

namespace gpumem::host {
namespace {

struct ProcessSignalTest : testing::Test {
  ProcessSignalTest() : pid(::fork()) {
    if (pid != 0) return;
    ::pause();
    ::_exit(0);
  }
  ~ProcessSignalTest() override {
    if (pid < 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  // The signal that ended it.
  int ended_by() {
    int status = 0;
    ::waitpid(std::exchange(pid, -1), &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  pid_t pid;
};

TEST_F(ProcessSignalTest, EndsTheProcessThatStartedThen) {
  const auto started = start_time(pid);
  ASSERT_TRUE(started);
  EXPECT_TRUE(signal_process(pid, *started, core::Signal::kTerminate));
  EXPECT_EQ(ended_by(), SIGTERM);
}

TEST_F(ProcessSignalTest, LeavesASuccessorWithTheSameNumberAlone) {
  const auto started = start_time(pid);
  ASSERT_TRUE(started);
  const auto sent = signal_process(pid, *started - 1, core::Signal::kKill);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Code::kNotFound);
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), 0) << "it lives";
}

TEST_F(ProcessSignalTest, SaysThatAProcessIsGone) {
  const auto started = start_time(pid);
  ASSERT_TRUE(started);
  const pid_t was = pid;
  ::kill(pid, SIGKILL);
  ended_by();
  EXPECT_EQ(signal_process(was, *started, core::Signal::kKill).error().code, Code::kNotFound);
  EXPECT_EQ(start_time(was).error().code, Code::kNotFound);
}

TEST(StartTime, OfAProcessThatEndsMeanwhileIsNoneAndNothingWorse) {
  for (int round = 0; round < 300; ++round) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) ::_exit(0);
    std::thread reaper([pid] { ::waitpid(pid, nullptr, 0); });
    while (start_time(pid)) {
    }
    reaper.join();
  }
}

}  // namespace
}  // namespace gpumem::host
