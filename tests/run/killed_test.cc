// SIGKILL of `gpumem run` and `gpumem reserve`, as Python's subprocess.run(timeout=) sends it; and commands
// that the broker ends.
#include "tests/integration/ending_config.h"
#include "tests/run/fixture.h"

namespace gpumem::test {
namespace {

// A zombie is over, too: who has adopted it may never reap it.
bool is_over(pid_t pid) {
  const std::string text = read_file("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = text.rfind(") ");
  return name_end == std::string::npos || text.at(name_end + 2) == 'Z' || text.at(name_end + 2) == 'X';
}

struct Killed : RunTest {
  Killed() : RunTest({.config = "[broker]\nreserve = \"all-but 128MiB\"\n"}) {}

  bool all_is_given_back() const {
    return eventually([&] { return broker_.at_rest(); });
  }
};

TEST_F(Killed, RunTakesItsCommandWithItAndTheMemoryIsFree) {
  RunningCli running(
      {"run", "--", test_client_program(), "hold", GPUMEM_TEST_SHIM, std::to_string(mebibytes(64).count)},
      with({{"GPUMEM_SHIM_FOLDER", ""}}));
  const auto charged = [&] { return broker_.device().pool() - broker_.device().free(); };
  ASSERT_TRUE(eventually([&] { return charged() >= mebibytes(64).count; })) << running.said();
  const auto command = static_cast<pid_t>(broker_.sessions().back().pid());
  running.child().kill();
  EXPECT_TRUE(eventually([&] { return is_over(command); }));
  EXPECT_TRUE(all_is_given_back()) << broker_.unrest();
}

TEST_F(Killed, ReserveTakesItsCommandWithItAndTheMemoryIsFree) {
  auto running = begin({"reserve", "48MiB", "--", actor_program(), "signals"});
  const pid_t command = running.pid_of_command();
  running.child().kill();
  EXPECT_TRUE(eventually([&] { return is_over(command); }));
  EXPECT_TRUE(all_is_given_back()) << broker_.unrest();
}

TEST_F(Killed, RunLeavesWhatItsCommandHasStarted) {
  auto running =
      begin({"run", "/bin/sh", "-c", "echo command $$.; exec \"$0\" orphan signals", actor_program()});
  const pid_t grandchild = running.pid_of_command();
  const std::string said = running.said();
  const auto command = static_cast<pid_t>(std::stol(said.substr(said.find("command ") + 8)));
  running.child().kill();
  EXPECT_TRUE(eventually([&] { return is_over(command); }));
  ::kill(grandchild, SIGUSR2);
  EXPECT_TRUE(running.has_said("got 12"));
  running.tell("quit\n");
  EXPECT_TRUE(eventually([&] { return is_over(grandchild); }));
}

// A command, and the exit status and the words of `gpumem run` once the broker has ended a process of it.
struct EndedCase {
  const char* name;
  std::vector<std::string> words;
  int status;
  std::string told;
};

struct EndedByTheBroker : RunTest, testing::WithParamInterface<EndedCase> {
  EndedByTheBroker()
      : RunTest({.config = ::geteuid() == 0
                               ? "[broker]\nreserve = \"all-but 32MiB\"\nsocket_group = 10000\n" +
                                     std::string(kEndsWhoKeeps)
                               : ""}) {}

  RunningCli run_of(std::vector<std::string> words, std::optional<User> user = {}) const {
    words.insert(words.begin(), {"run", "--wait", "30s", "--"});
    return {std::move(words), with({{"GPUMEM_SHIM_FOLDER", ""}}), user};
  }
};

TEST_P(EndedByTheBroker, IsToldWhoEndedItAndWhyAlsoAfterARestart) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  auto borrower = run_of(GetParam().words);
  ASSERT_TRUE(borrower.has_said("has it\n"));
  auto claim = run_of({actor_program(), "borrow", "driver", std::to_string(mebibytes(64).count), "exit"},
                      test_user(10'001));
  EXPECT_EQ(claim.wait(), 0) << claim.said();
  EXPECT_EQ(borrower.wait(), GetParam().status) << borrower.said();
  const std::string said = borrower.said();
  EXPECT_TRUE(says(said, GetParam().told));
  EXPECT_TRUE(says(said, " by SIGTERM: others wait for what they are guaranteed, and it did not give back "));
  EXPECT_TRUE(says(said, "\ngpumem run: `gpumem why uid:0` says what you may hold"));
  EXPECT_EQ(broker_.stop(), 0);
  broker_.start_again();
  EXPECT_TRUE(says(gpumem({"events", "--no-follow"}).output, "SIGTERM sent to its process within "));
}

INSTANTIATE_TEST_SUITE_P(Each, EndedByTheBroker,
                         testing::Values(EndedCase{"Command",
                                                   {actor_program(), "borrow", "driver", "200000000", "stay"},
                                                   -SIGTERM,
                                                   "gpumem run: the broker ended the command by SIGTERM: "},
                                         EndedCase{
                                             "ChildOfAShell",
                                             {"/bin/sh", "-c", "\"$0\" borrow driver 200000000 stay; exit 7",
                                              actor_program()},
                                             7,
                                             "gpumem run: the broker ended pid "}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace gpumem::test
