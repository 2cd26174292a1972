// `gpumem reserve`: memory is charged as long as the command runs, after room was waited for, and given back
// when the broker asks for it.
#include <sys/socket.h>

#include <thread>

#include "tests/run/fixture.h"
#include "tests/run/loopback_listener.h"
#include "tests/support/lanes/frame_lane.h"

namespace gpumem::test {
namespace {

using Words = std::vector<std::string>;

struct Reserve : RunTest {
  Reserve()
      : RunTest({.config = "[broker]\nreserve = \"all-but 128MiB\"\nreconcile_seconds = "
                           "0\npast_broker_allowance = \"16MiB\"\n"}) {}

  std::string tenant() const { return "uid:" + std::to_string(::geteuid()); }
  Bytes outside() const { return {broker_.tenant(tenant()).outside()}; }
  bool is_charged(Bytes bytes) const {
    return eventually([&] { return outside() == bytes; });
  }
  /// Waits until the driver sees a process besides the broker that holds so much.
  bool the_command_holds(Bytes bytes) const {
    return eventually([&] {
      const auto processes = broker_.driver_view().processes;
      return std::ranges::any_of(processes, [&](const auto& one) {
        return one.first != broker_.pid() && one.second >= bytes.count;
      });
    });
  }
  /// The command says that it is ready, and stays.
  RunningCli reserve(const std::string& bytes, Words options = {}) {
    Words words{"reserve", bytes};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", actor_program(), "signals"});
    return begin(std::move(words));
  }
  void set_limit(const std::string& limit) {
    const Outcome outcome = gpumem({"quota", "set", tenant(), "--limit", limit});
    EXPECT_EQ(outcome.status, 0) << outcome.output;
  }
};

TEST_F(Reserve, ChargesTheTenantAsLongAsTheCommandRuns) {
  auto running = reserve("48MiB", {"--name", "renderer"});
  const pid_t pid = running.pid_of_command();
  EXPECT_EQ(outside(), mebibytes(48));
  const auto sessions = broker_.sessions();
  ASSERT_EQ(sessions.size(), 1U);
  EXPECT_EQ(sessions[0].label(), "renderer");
  EXPECT_EQ(sessions[0].pid(), pid)
      << "the session is the command's own, so what it takes is what was declared";
  running.tell("quit\n");
  EXPECT_EQ(running.wait(), 3);
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
}

TEST_F(Reserve, EndsAsTheCommandEnds) {
  EXPECT_EQ(gpumem({"reserve", "48MiB", "--", "/bin/sh", "-c", "exit 42"}).status, 42);
  EXPECT_EQ(gpumem({"reserve", "48MiB", "--", "/bin/sh", "-c", "kill -KILL $$"}).status, -SIGKILL);
  EXPECT_EQ(gpumem({"reserve", "48MiB", "/no/such/program"}).status, 127);
  EXPECT_EQ(gpumem({"reserve", "48MiB", "/etc/passwd"}).status, 126);
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
}

TEST_F(Reserve, RefusesBadCommandLines) {
  for (const Words& wrong :
       std::vector<Words>{{"reserve"},
                          {"reserve", "much"},
                          {"reserve", "9", "/bin/true"},
                          {"reserve", "2MiB", "--wait", "soon", "--", "/bin/true"},
                          {"reserve", "2MiB", "--on-pressure", "https://h/", "/bin/true"},
                          {"reserve", "2MiB", "--device", "9", "/bin/true"}})
    EXPECT_EQ(gpumem(wrong).status, 125) << wrong.back();
  const Outcome none = gpumem({"reserve", "2MiB", "--runtime-dir", "/nowhere", "/bin/true"});
  EXPECT_EQ(none.status, 125);
  EXPECT_TRUE(says(none.output, "no broker at /nowhere"));
  const Outcome device = gpumem({"reserve", "2MiB", "--device", "9", "/bin/true"});
  EXPECT_TRUE(says(device.output, "--device: the broker lends no device '9', but these:\n  gpu0: GPU-"));
}

TEST_F(Reserve, RefusesAnImpossibleAmountDespiteItsWait) {
  const Outcome device = gpumem({"reserve", "200MiB", "--wait", "--", "/bin/echo", "has run"});
  EXPECT_EQ(device.status, 125);
  EXPECT_TRUE(says(device.output, "not the broker's"));
  set_limit("16MiB");
  const Outcome limit = gpumem({"reserve", "32MiB", "--wait", "1h", "--", "/bin/echo", "has run"});
  EXPECT_EQ(limit.status, 125);
  EXPECT_TRUE(says(limit.output, "its limit is 16MiB"));
  EXPECT_EQ(outside(), Bytes{});
}

TEST_F(Reserve, RefusesAtOnceWithoutRoomNow) {
  auto first = reserve("96MiB");
  first.pid_of_command();
  const Outcome second = gpumem({"reserve", "48MiB", "/bin/echo", "has run"});
  EXPECT_EQ(second.status, 125);
  EXPECT_TRUE(says(second.output, "48MiB cannot be reserved"));
  EXPECT_EQ(second.output.find("has run"), std::string::npos);
  const Outcome third = gpumem({"reserve", "48MiB", "--wait", "20ms", "--", "/bin/echo", "has run"});
  EXPECT_EQ(third.status, 125);
  EXPECT_TRUE(says(third.output, "; waited "));
}

TEST_F(Reserve, WaitsInTheLineUntilThereIsRoom) {
  auto first = reserve("96MiB");
  first.pid_of_command();
  auto second = reserve("112MiB", {"--wait"});
  ASSERT_TRUE(second.has_said("gpumem reserve: waiting for 112MiB"));
  auto third = reserve("16MiB", {"--wait", "1h"});
  ASSERT_TRUE(third.has_said("1 ahead in the line")) << "though there is room for it";
  first.tell("quit\n");
  EXPECT_EQ(first.wait(), 3);
  second.pid_of_command();
  third.pid_of_command();
  EXPECT_EQ(outside(), mebibytes(128));
}

// A reservation that waits, or is about to be charged, is a session with this label.
TEST_F(Reserve, IsNotRefusedBecauseAnotherStartsAtTheSameMoment) {
  std::optional<FrameLane> other(broker_.folder());
  other->greet("gpumem reserve, waits for 16MiB");
  auto running = reserve("48MiB");
  EXPECT_TRUE(eventually([&] { return broker_.sessions().size() == 2; }));
  other.reset();
  running.pid_of_command();
  EXPECT_EQ(outside(), mebibytes(48));
}

TEST_F(Reserve, WaitsUntilItIsInterrupted) {
  auto first = reserve("96MiB");
  first.pid_of_command();
  auto second = reserve("96MiB", {"--wait"});
  ASSERT_TRUE(second.has_said("waiting for 96MiB"));
  second.child().signal(SIGTERM);
  EXPECT_EQ(second.wait(), -SIGTERM);
  EXPECT_TRUE(eventually([&] { return broker_.sessions().size() == 1; }));
}

TEST_F(Reserve, WithoutACommandHoldsUntilItIsInterrupted) {
  for (const int signal : {SIGINT, SIGTERM}) {
    auto running = begin({"reserve", "48MiB"});
    ASSERT_TRUE(running.has_said("are reserved until this program is interrupted"));
    EXPECT_EQ(outside(), mebibytes(48));
    running.child().signal(signal);
    EXPECT_EQ(running.wait(), 0);
    EXPECT_TRUE(is_charged({}));
  }
}

TEST_F(Reserve, IsNotChargedTwiceForMemoryOfItsCommand) {
  auto running = begin({"reserve", "64MiB", "--", test_client_program(), "hold", broker_.driver_folder(),
                        std::to_string(mebibytes(48).count)});
  EXPECT_TRUE(is_charged(mebibytes(64))) << running.said();
  EXPECT_TRUE(the_command_holds(mebibytes(48))) << running.said();
  EXPECT_EQ(gpumem({"reconcile", "--now"}).status, 0);
  EXPECT_EQ(outside(), mebibytes(64));
  EXPECT_EQ(gpumem({"reconcile", "--json"}).output.find("test_client"), std::string::npos)
      << "nothing of it was taken past the broker";
}

TEST_F(Reserve, IsNotChargedTwiceForMemoryOfItsCommandsChildren) {
  auto running = begin({"reserve", "64MiB", "--", "/bin/sh", "-c",
                        test_client_program().string() + " hold " + broker_.driver_folder() + " " +
                            std::to_string(mebibytes(48).count) + "; true"});
  EXPECT_TRUE(the_command_holds(mebibytes(48))) << running.said();
  const Outcome outcome = gpumem({"reconcile", "--now", "--json"});
  const Json device = Json::parse(outcome.output)["devices"][0];
  ASSERT_EQ(device["processes"].size(), 1U) << device;
  EXPECT_EQ(device["processes"][0]["tenant"], tenant()) << "charged by itself, not as declared";
  EXPECT_TRUE(is_charged(mebibytes(64))) << to_string(outside());
}

TEST_F(Reserve, IsThereAgainWhenTheBrokerIs) {
  auto running = reserve("48MiB");
  running.pid_of_command();
  EXPECT_EQ(broker_.stop(), 0);
  broker_.start_again();
  EXPECT_TRUE(is_charged(mebibytes(48))) << running.said();
  EXPECT_TRUE(running.child().running());
}

// ---- Pressure ----

struct ReserveUnderPressure : Reserve {
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root is an administrator, who can lower a limit";
  }
  /// The process group that says `hook PID`.
  static pid_t hook_of(const std::string& said) {
    return static_cast<pid_t>(std::stol(said.substr(said.find("hook ") + 5)));
  }
  /// The hook does not heed SIGTERM; `gpumem reserve` ends once it has said the words.
  void expect_no_hook_when_it_ends_after(const std::string& words) {
    auto running =
        reserve("48MiB", {"--on-pressure", "trap '' TERM; echo hook $$; while :; do sleep 1; done"});
    running.pid_of_command();
    set_limit("40MiB");
    EXPECT_TRUE(running.has_said(words));
    const pid_t hook = hook_of(running.said());
    running.tell("quit\n");
    EXPECT_EQ(running.wait(), 3);
    EXPECT_TRUE(eventually([&] { return ::kill(-hook, 0) != 0; }));
  }
};

TEST_F(ReserveUnderPressure, RunsACommandAndGivesBackTheRequestedBytes) {
  const std::string file = folder_ / "asked";
  auto running = reserve("48MiB", {"--on-pressure",
                                   "echo $GPUMEM_ASKED_BYTES $GPUMEM_DEADLINE_SECONDS $GPUMEM_DEVICE "
                                   "$GPUMEM_COMMAND_PID > " +
                                       file});
  const pid_t pid = running.pid_of_command();
  set_limit("32MiB");
  EXPECT_TRUE(is_charged(mebibytes(32))) << running.said();
  EXPECT_TRUE(running.has_said("16MiB given back; 32MiB stay reserved"));
  EXPECT_EQ(read_file(file),
            std::to_string(mebibytes(16).count) + " 2 " + device() + " " + std::to_string(pid) + "\n");
  EXPECT_EQ(broker_.tenant(tenant()).debt(), 0U);
}

TEST_F(ReserveUnderPressure, KeepsMemoryThatTheCommandHolds) {
  auto running = begin({"reserve", "64MiB", "--on-pressure", "true", "--", test_client_program(), "hold",
                        broker_.driver_folder(), std::to_string(mebibytes(48).count)});
  EXPECT_TRUE(the_command_holds(mebibytes(48))) << running.said();
  set_limit("32MiB");
  EXPECT_TRUE(running.has_said("given back")) << running.said();
  EXPECT_GE(outside(), mebibytes(48)) << "a hook that claims to have let go of memory is not believed";
}

TEST_F(ReserveUnderPressure, KeepsMemoryThatAFailedCommandDidNotRelease) {
  auto running = reserve("48MiB", {"--on-pressure", "exit 3"});
  running.pid_of_command();
  set_limit("32MiB");
  EXPECT_TRUE(running.has_said("has ended with status 3"));
  EXPECT_EQ(outside(), mebibytes(48));
}

TEST_F(ReserveUnderPressure, EndsACommandThatDoesNotAnswerInTime) {
  auto running = reserve("48MiB", {"--on-pressure", "exec sleep 1000"});
  running.pid_of_command();
  set_limit("40MiB");
  EXPECT_TRUE(running.has_said("did not end in time"));
  EXPECT_EQ(outside(), mebibytes(48));
  running.tell("quit\n");
  EXPECT_EQ(running.wait(), 3);
}

TEST_F(ReserveUnderPressure, LeavesNoCommandBehindThatDoesNotHeedItsEnd) {
  expect_no_hook_when_it_ends_after("did not end in time");
}

TEST_F(ReserveUnderPressure, LeavesNothingBehindThatACommandHasStartedAndThatDoesNotHeedItsEnd) {
  auto running =
      reserve("48MiB",
              {"--on-pressure", "(trap '' TERM; while :; do sleep 1; done) & echo hook $$; exec sleep 1000"});
  running.pid_of_command();
  set_limit("40MiB");
  EXPECT_TRUE(running.has_said("did not end in time"));
  const pid_t hook = hook_of(running.said());
  EXPECT_TRUE(eventually([&] { return ::kill(-hook, 0) != 0; })) << "its first process heeds SIGTERM";
  running.tell("quit\n");
  EXPECT_EQ(running.wait(), 3);
}

TEST_F(ReserveUnderPressure, LeavesNoCommandBehindThatRunsWhenItEnds) {
  expect_no_hook_when_it_ends_after("hook ");
}

TEST_F(ReserveUnderPressure, SaysThatNobodyCanBeAsked) {
  auto running = reserve("48MiB");
  running.pid_of_command();
  set_limit("32MiB");
  EXPECT_TRUE(running.has_said("nobody can be asked"));
  EXPECT_EQ(outside(), mebibytes(48));
}

/// Takes one HTTP request on loopback, and answers it.
class OneRequest {
 public:
  explicit OneRequest(const std::string& answer) {
    thread_ = std::thread([this, answer] {
      const UniqueFd taken = listener_.accept();
      std::array<char, 1024> part{};
      while (taken.valid() && text_.find('}') == std::string::npos) {
        const ssize_t count = ::read(taken.get(), part.data(), part.size());
        if (count <= 0) break;
        text_.append(part.data(), static_cast<std::size_t>(count));
      }
      if (taken.valid()) {
        EXPECT_GT(::send(taken.get(), answer.data(), answer.size(), MSG_NOSIGNAL), 0);
      }
    });
  }
  ~OneRequest() { text(); }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(listener_.port()) + "/let-go"; }
  /// The request, when it has been answered. Ends the listening.
  const std::string& text() {
    listener_.stop();
    if (thread_.joinable()) thread_.join();
    return text_;
  }

 private:
  LoopbackListener listener_;
  std::string text_;
  std::thread thread_;
};

TEST_F(ReserveUnderPressure, PostsToAUrl) {
  OneRequest server("HTTP/1.1 204 No Content\r\n\r\n");
  auto running = reserve("48MiB", {"--on-pressure", server.url(), "--name", "renderer"});
  running.pid_of_command();
  set_limit("32MiB");
  EXPECT_TRUE(is_charged(mebibytes(32))) << running.said();
  EXPECT_TRUE(says(server.text(), "POST /let-go HTTP/1.1\r\n"));
  const Json json = Json::parse(server.text().substr(server.text().find('{')));
  EXPECT_EQ(json["asked_bytes"], mebibytes(16).count);
  EXPECT_EQ(json["device"], device());
  EXPECT_EQ(json["name"], "renderer");
}

TEST_F(ReserveUnderPressure, KeepsItsMemoryIfThePostIsRefused) {
  OneRequest server("HTTP/1.1 503 Service Unavailable\r\n\r\n");
  auto running = reserve("48MiB", {"--on-pressure", server.url()});
  running.pid_of_command();
  set_limit("32MiB");
  EXPECT_TRUE(running.has_said("503"));
  EXPECT_EQ(outside(), mebibytes(48));
}

}  // namespace
}  // namespace gpumem::test
