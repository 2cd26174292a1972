// `gpumem run` stands for its command: towards signals, and on a terminal.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "client/cli/run/program/command.h"
#include "tests/run/fixture.h"

namespace gpumem::test {
namespace {

// The state of a process, as the kernel reports it: `S` sleeping, `T` stopped.
char state_of(pid_t pid) {
  const std::string text = read_file("/proc/" + std::to_string(pid) + "/stat");
  const auto end = text.rfind(") ");
  return end == std::string::npos ? '-' : text.at(end + 2);
}

int count_of(const std::string& words, const std::string& text) {
  int count = 0;
  for (auto at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
  return count;
}

struct RunSignals : RunTest {
  RunningCli command() { return begin({"run", actor_program(), "signals"}); }
};

TEST_F(RunSignals, ArePassedOnToTheCommandOnce) {
  auto running = command();
  running.pid_of_command();
  int count = 0;
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT}) {
    running.child().signal(number);
    EXPECT_TRUE(running.has_said("got ", ++count)) << number;
  }
  running.tell("quit\n");
  EXPECT_EQ(running.wait(), 3);
  for (const char* each : {"got 15", "got 02", "got 01", "got 10", "got 12", "got 03"})
    EXPECT_EQ(running.said().find(each), running.said().rfind(each)) << running.said();
}

TEST_F(RunSignals, OfTheGroupReachTheCommandOnce) {
  auto running = command();
  running.pid_of_command();
  const pid_t group = running.child().pid();
  int rounds = 0;
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGTERM}) {
    running.child().signal(SIGSTOP);  // the command has handled the signal before it could be passed on
    EXPECT_EQ(::kill(-group, number), 0);
    EXPECT_TRUE(running.has_said("got ", 2 * rounds + 1)) << number;
    running.child().signal(SIGCONT);  // signals that are read at once come in the order of their numbers
    EXPECT_TRUE(running.has_said("got 18", ++rounds)) << number;
  }
  running.child().signal(SIGTERM);
  EXPECT_TRUE(running.has_said("got 15", 3)) << "and what is sent to it alone is still passed on";
  running.tell("quit\n");
  EXPECT_EQ(running.wait(), 3);
  const std::string said = running.said();
  for (const auto& [text, times] : {std::pair("got 15", 3), {"got 02", 1}, {"got 01", 1}, {"got 10", 1}})
    EXPECT_EQ(count_of(text, said), times) << text << ": " << said;
}

TEST_F(RunSignals, OfTheGroupThatComeTogetherReachTheCommandOnceEach) {
  auto running = command();
  running.pid_of_command();
  const pid_t group = running.child().pid();
  running.child().signal(SIGSTOP);
  for (const int number : {SIGHUP, SIGTERM, SIGUSR1}) EXPECT_EQ(::kill(-group, number), 0);
  EXPECT_TRUE(running.has_said("got ", 3));
  running.child().signal(SIGCONT);
  EXPECT_TRUE(running.has_said("got 18", 1));
  running.tell("quit\n");
  EXPECT_EQ(running.wait(), 3);
  const std::string said = running.said();
  for (const char* text : {"got 01", "got 10", "got 15"})
    EXPECT_EQ(said.find(text), said.rfind(text)) << text << ": " << said;
}

TEST_F(RunSignals, OfTheCommandThatItStopsFollowIt) {
  auto running = command();
  const pid_t pid = running.pid_of_command();
  running.child().signal(SIGTSTP);
  EXPECT_TRUE(eventually([&] { return state_of(pid) == 'T'; }));
  EXPECT_TRUE(eventually([&] { return state_of(running.child().pid()) == 'T'; }))
      << "so that a shell learns of it";
  running.child().signal(SIGCONT);
  EXPECT_TRUE(running.has_said("got 18"));
  EXPECT_TRUE(eventually([&] { return state_of(running.child().pid()) != 'T'; }));
  running.tell("quit\n");
  EXPECT_EQ(running.wait(), 3);
}

TEST_F(RunSignals, ThatEndACommandWhileBothAreStoppedEndBoth) {
  auto running = command();
  const pid_t pid = running.pid_of_command();
  EXPECT_EQ(::kill(pid, SIGSTOP), 0);
  EXPECT_TRUE(eventually([&] { return state_of(running.child().pid()) == 'T'; }));
  EXPECT_EQ(::kill(pid, SIGKILL), 0);
  EXPECT_EQ(running.wait(), -SIGKILL) << "it was continued to hear of it";
}

TEST_F(RunSignals, OfChildrenThatWereIgnoredBeforeAreHeededAndIgnoredByTheCommand) {
  const Outcome outcome = run({.program = "/usr/bin/env",
                               .arguments = {"--ignore-signal=CHLD", cli_program().string(), "run", "--",
                                             "/bin/grep", "^SigIgn", "/proc/self/status"},
                               .environment = with({})});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("SigIgn:\t0000000000010000"), std::string::npos) << outcome.output;
}

TEST_F(RunSignals, ThatEndTheCommandEndIt) {
  auto running = begin({"run", "/bin/sh", "-c", "echo ready $$; exec /bin/cat"});
  running.pid_of_command();
  running.child().signal(SIGUSR1);
  EXPECT_EQ(running.wait(), -SIGUSR1);
}

/// Has another process send a signal, and waits for its end.
void have_sent(pid_t to, int number) {
  const pid_t sender = ::fork();
  if (sender == 0) ::_exit(::kill(to, number));
  ::waitpid(sender, nullptr, 0);
}

/// In a process and a group of its own: starts the actor, and has `while_starting` send signals when the new
/// process is there and has not begun. Passes signals on once the actor has said `ready`.
template <class WhileStarting>
[[noreturn]] void stand_for_the_actor(const std::string& output, const WhileStarting& while_starting) {
  ::setpgid(0, 0);
  const int written = ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  std::array<int, 2> input{};
  if (::pipe2(input.data(), O_CLOEXEC) != 0) ::_exit(125);
  ::dup2(input[0], STDIN_FILENO);
  ::dup2(written, STDOUT_FILENO);
  sigset_t blocked;  // until the actor can tell of them
  ::sigfillset(&blocked);
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  const cli::Signals signals;
  auto started = cli::Command::start({{actor_program().string(), "signals"},
                                      cli::own_environment(),
                                      {},
                                      [&](pid_t) { return while_starting(), Result<void>(); }},
                                     signals);
  const auto text = [&] { return read_file(output); };
  if (!started || !eventually([&] { return text().find("ready") != std::string::npos; })) ::_exit(124);
  have_sent(::getpid(), SIGUSR2);  // behind those that are to be passed on
  std::thread([&] {
    eventually([&] { return text().find("got 12") != std::string::npos; });
    static_cast<void>(::write(input[1], "quit\n", 5) == 5);
  }).detach();
  const int status = started->wait(signals);
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 123);
}

struct SignalsAtTheBeginning : testing::Test {
  /// How often the actor has said that it got SIGUSR1.
  template <class WhileStarting>
  int times(const WhileStarting& while_starting) {
    const std::string output = (folder_.path() / "said").string();
    const pid_t pid = ::fork();
    if (pid == 0) stand_for_the_actor(output, while_starting);
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    const std::string said = read_file(output);
    EXPECT_EQ(WEXITSTATUS(status), 3) << said;
    return count_of("got 10", said);
  }
  TemporaryFolder folder_;
};

TEST_F(SignalsAtTheBeginning, OfTheGroupReachTheCommandOnce) {
  EXPECT_EQ(times([] { have_sent(0, SIGUSR1); }), 1);
}

TEST_F(SignalsAtTheBeginning, OfItselfAreStillPassedOn) {
  EXPECT_EQ(times([] { have_sent(::getpid(), SIGUSR1); }), 1);
}

// Signals while `gpumem run` waits for a broker that does not answer.
struct RunSignalsBeforeTheCommand : RunSignals {
  RunSignalsBeforeTheCommand() { EXPECT_EQ(::kill(broker_.pid(), SIGSTOP), 0); }
  static constexpr std::uint64_t kUsr1 = std::uint64_t{1} << (SIGUSR1 - 1);
  /// Waits until no signal does anything to it by itself.
  static void await_attention(pid_t pid) {
    EXPECT_TRUE(eventually([&] {
      const std::string status = read_file("/proc/" + std::to_string(pid) + "/status");
      const auto at = status.find("SigBlk:\t");
      return at != std::string::npos && (std::stoull(status.substr(at + 8, 16), nullptr, 16) & kUsr1) != 0;
    }));
  }
  void answer() { EXPECT_EQ(::kill(broker_.pid(), SIGCONT), 0); }
};

TEST_F(RunSignalsBeforeTheCommand, DoNotEndOneThatWasStartedToIgnoreThem) {
  Child running({.program = "/usr/bin/env",
                 .arguments = {"--ignore-signal=HUP", cli_program().string(), "run", "/bin/true"},
                 .environment = with({})});
  await_attention(running.pid());
  running.signal(SIGHUP);
  answer();
  EXPECT_EQ(running.wait(), 0);
}

TEST_F(RunSignalsBeforeTheCommand, AskItToEndAndItDoes) {
  auto running = begin({"run", "/bin/sleep", "1000"});
  await_attention(running.child().pid());
  running.child().signal(SIGTERM);
  EXPECT_EQ(running.wait(), -SIGTERM);
  answer();
}

TEST_F(RunSignalsBeforeTheCommand, AreKeptForTheCommandWhereTheyAreNotForIt) {
  auto running = begin({"run", "/bin/sleep", "1000"});
  await_attention(running.child().pid());
  running.child().signal(SIGUSR1);
  EXPECT_TRUE(running.child().running()) << "it does nothing to what waits";
  answer();
  EXPECT_EQ(running.wait(), -SIGUSR1) << "of the command, that does not expect it: " << running.said();
}

TEST_F(RunSignals, ThatStopTheCommandAndContinueTheGroupLeaveNobodyBehind) {
  auto running = command();
  const pid_t pid = running.pid_of_command(), group = running.child().pid();
  constexpr int kRounds = 100;
  for (int round = 0; round < kRounds; ++round) {
    EXPECT_EQ(::kill(pid, SIGSTOP), 0);
    EXPECT_EQ(::kill(-group, SIGCONT), 0) << "before, while or after the other sees that it has stopped";
    ASSERT_TRUE(eventually([&] { return state_of(pid) != 'T' && state_of(group) != 'T'; })) << round;
  }
  running.tell("quit\n");
  EXPECT_EQ(running.wait(), 3);
  EXPECT_LE(count_of("got 18", running.said()), kRounds) << "nobody else continues it";
}

TEST_F(RunSignals, ThatWereBlockedBeforeAreNotForTheCommand) {
  auto running = begin({"run", "/bin/grep", "^Sig[BI]", "/proc/self/status"});
  EXPECT_EQ(running.wait(), 0);
  EXPECT_TRUE(says(running.said(), "SigBlk:\t0000000000000000"));
  EXPECT_TRUE(says(running.said(), "SigIgn:\t0000000000000000"));
}

TEST_F(RunSignals, OfProcessesLeftBehindLeaveNoZombies) {
  auto running = begin({"run", "/bin/sh", "-c",
                        "(/bin/true & exec /bin/true); (/bin/true & exec /bin/true); echo ready $$; exec " +
                            actor_program().string() + " signals"});
  running.pid_of_command();
  EXPECT_TRUE(eventually([&] {
    const std::string task = "/proc/" + std::to_string(running.child().pid()) + "/task/" +
                             std::to_string(running.child().pid()) + "/children";
    const std::string children = read_file(task);
    return std::count(children.begin(), children.end(), ' ') == 2;  // the command, and the detector
  })) << "the orphans of the command are this process's children, and are reaped";
  running.tell("quit\n");
  EXPECT_EQ(running.wait(), 3);
}

// ---- On a terminal ----

/// A pseudo terminal, and `gpumem` on it: the job of a small shell, or without one, as under `ssh -t`.
struct RunOnATerminal : RunTest {
  void start(const std::vector<std::string>& words) { begin_on_terminal("job", "run", words); }
  void begin_on_terminal(const char* how, const char* command, const std::vector<std::string>& words) {
    master_.reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    ASSERT_TRUE(master_.valid() && ::grantpt(master_.get()) == 0 && ::unlockpt(master_.get()) == 0);
    const UniqueFd terminal(::open(::ptsname(master_.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    std::vector<std::string> arguments{how, cli_program().string(), command};
    arguments.insert(arguments.end(), words.begin(), words.end());
    shell_ = std::make_unique<Child>(ChildOptions{.program = actor_program(),
                                                  .arguments = std::move(arguments),
                                                  .environment = with({}),
                                                  .input = terminal.get(),
                                                  .output = terminal.get()});
  }
  void type(const std::string& keys) {
    EXPECT_EQ(::write(master_.get(), keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  /// Waits until the terminal shows `words`, `times` times.
  testing::AssertionResult shows(const std::string& words, int times = 1) {
    const bool has = eventually([&] {
      pollfd waiting{master_.get(), POLLIN, 0};
      std::array<char, 4096> part{};
      while (::poll(&waiting, 1, 0) > 0) {
        const ssize_t count = ::read(master_.get(), part.data(), part.size());
        if (count <= 0) break;
        screen_.append(part.data(), static_cast<std::size_t>(count));
      }
      return count_of(words, screen_) >= times;
    });
    return has ? testing::AssertionSuccess()
               : testing::AssertionFailure() << "'" << words << "' is not in: " << screen_;
  }
  UniqueFd master_;
  std::unique_ptr<Child> shell_;
  std::string screen_;
};

TEST_F(RunOnATerminal, TheCommandIsInFrontAndControlCReachesItOnce) {
  start({actor_program(), "signals"});
  ASSERT_TRUE(shows(" in front"));
  EXPECT_EQ(count_of("not in front", screen_), 0) << screen_;
  type("\003");
  ASSERT_TRUE(shows("got 02"));
  type("\003");
  ASSERT_TRUE(shows("got 02", 2));
  type("quit\n");
  ASSERT_TRUE(shows("job exited 3"));
  EXPECT_EQ(count_of("got 02", screen_), 2) << screen_;
}

TEST_F(RunOnATerminal, ControlZStopsTheJobAndItGoesOn) {
  start({actor_program(), "signals"});
  ASSERT_TRUE(shows(" in front"));
  type("\032");
  ASSERT_TRUE(shows("job stopped"));
  ASSERT_TRUE(shows("got 18"));
  type("\032");
  ASSERT_TRUE(shows("job stopped", 2));
  type("quit\n");
  ASSERT_TRUE(shows("job exited 3"));
}

TEST_F(RunOnATerminal, ControlCEndsTheJobByTheSignal) {
  start({"/bin/sh", "-c", "echo rea''dy; exec /bin/cat"});
  ASSERT_TRUE(shows("ready"));
  type("\003");
  ASSERT_TRUE(shows("job ended by signal 2"));
}

TEST_F(RunOnATerminal, AHangUpThatReachesItAloneEndsTheCommand) {
  using Words = std::vector<std::string>;
  for (const auto& [command, options] : {std::pair("run", Words()), std::pair("reserve", Words{"16MiB"})}) {
    for (const bool is_stopped : {false, true}) {
      screen_.clear();
      Words words = options;
      words.insert(words.end(), {"--", "/bin/sh", "-c", "echo rea''dy $$; exec /bin/sleep 1000"});
      begin_on_terminal("lead", command, words);
      ASSERT_TRUE(shows("ready ") && shows("\n"));
      if (is_stopped) {
        EXPECT_EQ(::kill(std::stoi(screen_.substr(screen_.find("ready ") + 6)), SIGSTOP), 0);
        EXPECT_TRUE(eventually([&] { return state_of(shell_->pid()) == 'T'; }));
      }
      master_.reset();
      EXPECT_EQ(shell_->wait(), -SIGHUP) << command << (is_stopped ? ", stopped" : "");
    }
  }
}

TEST_F(RunOnATerminal, WaitingIsALineThatIsDrawnAnew) {
  ClientProcess holder(broker_.folder());
  EXPECT_TRUE(holder.connect().at("ok") && holder.open("a").at("ok"));
  EXPECT_TRUE(holder.grow("a", mebibytes(224)).at("ok"));
  start({"--limit", "64MiB", "--wait", "1h", "/bin/echo", "has run"});
  ASSERT_TRUE(shows("\r\033[Kgpumem run: waiting for 64MiB"));
  EXPECT_TRUE(holder.shrink("a", {}).at("ok"));
  ASSERT_TRUE(shows("has run"));
  EXPECT_TRUE(shows("job exited 0"));
}

}  // namespace
}  // namespace gpumem::test
