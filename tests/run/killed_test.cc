// SIGKILL of `gpumem run` and `gpumem reserve`, as Python's subprocess.run(timeout=) sends it.
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

}  // namespace
}  // namespace gpumem::test
