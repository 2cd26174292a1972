// A process distinguishes the signals that it gets: to its group, to itself alone, or cancelled before it
// looked.
#include "client/cli/run/program/group_detector.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

namespace gpumem::test {
namespace {

using cli::GroupDetector;

/// A process in a group of its own, which reads signals as they come.
class Reader {
 public:
  Reader() {
    ::setpgid(0, 0);
    ::sigfillset(&all_);
    ::sigprocmask(SIG_BLOCK, &all_, nullptr);
    detector_ = GroupDetector();
  }

  void get_with_group(int signal) const { get(0, signal); }
  void get_alone(int signal) const { get(::getpid(), signal); }
  bool group_has(int signal) { return detector_.has_received(signal); }
  /// Leaves a signal to the group pending and unread.
  static void leave_with_group(int signal) { ::kill(0, signal); }

 private:
  void get(pid_t whom, int signal) const {
    ::kill(whom, signal);
    sigset_t one;
    ::sigemptyset(&one);
    ::sigaddset(&one, signal);
    if (::sigwaitinfo(&one, nullptr) != signal) ::_exit(2);
  }

  sigset_t all_{};
  GroupDetector detector_ = GroupDetector::none();
};

/// What `body` answers in a process of its own.
bool of_a_reader(const std::function<bool(Reader&)>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    bool answer = false;
    {
      Reader reader;
      answer = body(reader);
    }
    ::_exit(answer ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1) << status;
  return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

class EachSignal : public testing::TestWithParam<int> {};

TEST_P(EachSignal, OfTheGroupDiffersFromOneToTheProcessAlone) {
  EXPECT_TRUE(of_a_reader([](Reader& reader) {
    reader.get_with_group(GetParam());
    return reader.group_has(GetParam());
  }));
  EXPECT_FALSE(of_a_reader([](Reader& reader) {
    reader.get_alone(GetParam());
    return reader.group_has(GetParam());
  }));
}

TEST_P(EachSignal, OfTheGroupCountsOnce) {
  EXPECT_FALSE(of_a_reader([](Reader& reader) {
    reader.get_with_group(GetParam());
    if (!reader.group_has(GetParam())) return true;
    reader.get_alone(GetParam());
    return reader.group_has(GetParam());
  }));
}

TEST_P(EachSignal, OfTheGroupThatComesAgainBeforeTheQuestionIsBoth) {
  EXPECT_TRUE(of_a_reader([](Reader& reader) {
    reader.get_with_group(GetParam());
    reader.leave_with_group(GetParam());
    return reader.group_has(GetParam()) && reader.group_has(GetParam());
  }));
}

INSTANTIATE_TEST_SUITE_P(Signals, EachSignal,
                         testing::Values(SIGTERM, SIGINT, SIGTSTP, SIGTTIN, SIGCONT, SIGUSR1));

/// A signal that is read, and what comes before the detector is asked about it.
class Cancelled : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(Cancelled, ByTheGroupsNextItIsNotPassedOn) {
  const auto [read, later] = GetParam();
  EXPECT_TRUE(of_a_reader([read = read, later = later](Reader& reader) {
    reader.get_with_group(read);
    reader.leave_with_group(later);
    return reader.group_has(read) && reader.group_has(later);
  })) << "the later one has taken away what told that the group had got the first";
}

TEST_P(Cancelled, BeforeItIsReadDoesNotCount) {
  const auto [later, before] = GetParam();
  EXPECT_FALSE(of_a_reader([later = later, before = before](Reader& reader) {
    reader.leave_with_group(before);
    reader.get_alone(later);  // takes the first away here, not from the others
    if (reader.group_has(later)) return true;
    reader.get_alone(before);
    return reader.group_has(before);
  })) << "it is not the group's, which had one before";
}

INSTANTIATE_TEST_SUITE_P(StopsAndContinues, Cancelled,
                         testing::Values(std::pair(SIGCONT, SIGTSTP), std::pair(SIGTSTP, SIGCONT),
                                         std::pair(SIGCONT, SIGTTIN), std::pair(SIGTTOU, SIGCONT)));

}  // namespace
}  // namespace gpumem::test
