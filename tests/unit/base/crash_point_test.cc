#include "base/crash_point.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <set>
#include <string>

namespace gpumem {
namespace {

// The waitpid() status of a process that runs `steps` with `plan` in its environment. A process reads the
// plan once, so each test starts one of its own.
template <class Steps>
int end_of(const char* plan, const Steps& steps, int options = 0) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("GPUMEM_CRASH_POINT", plan, 1);
    steps();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, options), child);
  if (WIFSTOPPED(status)) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  return status;
}

bool is_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
bool ends_with(int status, int code) { return WIFEXITED(status) && WEXITSTATUS(status) == code; }

TEST(CrashPointTest, APointThatNobodyNamesChangesNothing) {
  const auto steps = [] {
    crash_at(CrashPoint::kGrowRead);
    if (fails_at(CrashPoint::kJournalWrite)) ::_exit(1);
  };
  EXPECT_TRUE(ends_with(end_of("", steps), 0));
  EXPECT_TRUE(ends_with(end_of("broker.grow.answer", steps), 0));
}

TEST(CrashPointTest, TheProcessIsKilledAtThePoint) {
  EXPECT_TRUE(is_killed(end_of("broker.grow.read", [] { crash_at(CrashPoint::kGrowRead); })));
  EXPECT_TRUE(is_killed(
      end_of("broker.journal.write=kill", [] { static_cast<void>(fails_at(CrashPoint::kJournalWrite)); })));
}

TEST(CrashPointTest, TheProcessIsKilledWhenThePointIsReachedForTheNthTime) {
  const auto twice = [] {
    crash_at(CrashPoint::kGrowRead);
    crash_at(CrashPoint::kGrowAnswer);
    crash_at(CrashPoint::kGrowRead);
  };
  EXPECT_TRUE(is_killed(end_of("broker.grow.read:2=kill", twice)));
  EXPECT_TRUE(ends_with(end_of("broker.grow.read:3=kill", twice), 0));
}

TEST(CrashPointTest, TheCallFailsOnce) {
  const auto steps = [] {
    const bool first = fails_at(CrashPoint::kJournalWrite);
    const bool second = fails_at(CrashPoint::kJournalWrite);
    ::_exit(first && !second ? 7 : 8);
  };
  EXPECT_TRUE(ends_with(end_of("broker.journal.write=fail", steps), 7));
}

TEST(CrashPointTest, TheProcessIsStopped) {
  const int status = end_of(
      "client.grow.mapped=stop", [] { crash_at(CrashPoint::kClientGrowMapped); }, WUNTRACED);
  EXPECT_TRUE(WIFSTOPPED(status));
}

TEST(CrashPointTest, SeveralPointsAreNamedAtOnce) {
  const auto steps = [] {
    if (!fails_at(CrashPoint::kJournalWrite)) ::_exit(1);
    crash_at(CrashPoint::kGrowRead);
  };
  EXPECT_TRUE(is_killed(end_of("broker.journal.write=fail,broker.grow.read", steps)));
}

TEST(CrashPointTest, WhatIsNoPointDoesNothing) {
  const auto steps = [] {
    for (const CrashPointEntry& entry : kCrashPoints)
      if (fails_at(entry.point)) ::_exit(1);
  };
  for (const char* plan : {"broker", "broker.grow.read:0", "broker.grow.read:x", "broker.grow.read=burn",
                           "broker.grow.read=fail", ",,", "=kill", ":1"})
    EXPECT_TRUE(ends_with(end_of(plan, steps), 0)) << plan;
}

TEST(CrashPoints, HaveNamesOfTheirOwnThatSayWhoseTheyAre) {
  std::set<std::string_view> names;
  for (const CrashPointEntry& entry : kCrashPoints) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    const std::string_view whose = entry.name.substr(0, entry.name.find('.'));
    EXPECT_TRUE(whose == "broker" || whose == "client" || whose == "dra") << entry.name;
    EXPECT_EQ(static_cast<std::size_t>(entry.point), names.size() - 1) << "the place in the list";
  }
}

}  // namespace
}  // namespace gpumem
