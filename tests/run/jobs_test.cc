// Commands that do not fit together, and processes of one command that do not: on GPUs of 24 GiB, of which
// the broker owns 21.6 GiB each.
#include <poll.h>
#include <unistd.h>

#include <thread>

#include "tests/run/fixture.h"

namespace gpumem::test {
namespace {

struct Jobs : RunTest {
  explicit Jobs(std::string devices = "1x24GiB", std::string config = "")
      : RunTest({.simulate = std::move(devices), .config = std::move(config)}) {}

  std::string only_job() const {
    const auto jobs = nlohmann::json::parse(gpumem({"job", "list", "--json"}).output);
    EXPECT_EQ(jobs.size(), 1U);
    return std::to_string(jobs.at(0).at("id").get<std::uint64_t>());
  }

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
  EXPECT_TRUE(second.has_said("gpumem run: waiting for 12GiB of gpu0, first"));
  first.tell("take\n");
  EXPECT_TRUE(first.has_said("has it\n"));
  EXPECT_EQ(second.said().find("ready"), std::string::npos) << second.said();
  first.tell("quit\n");
  EXPECT_EQ(first.wait(), 0);
  EXPECT_TRUE(says(first.said(), "gpumem run: peak 12GiB, its requests waited "));
  second.pid_of_command();
  second.tell("take\n");
  EXPECT_TRUE(second.has_said("has it\n"));
  second.tell("quit\n");
  EXPECT_EQ(second.wait(), 0);
  EXPECT_TRUE(says(second.said(), "gpumem run: peak 12GiB, its requests waited "));
  EXPECT_TRUE(says(second.said(), ", nothing denied by the broker\n"));
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

// A process does not wait for memory that its own limit keeps from it.
TEST_F(Jobs, BoundProgramsOfTheLibraryToo) {
  auto job = begin_job({"--limit", "256MiB", "--wait", "1h", "--name", "mine"}, {"fill"});
  EXPECT_TRUE(job.has_said("has 4 blocks: "));
  EXPECT_TRUE(says(job.said(), "its job's limit of 256MiB"));
  EXPECT_EQ(charged(), mebibytes(256).count);
  const auto sessions = broker_.sessions();
  ASSERT_EQ(sessions.size(), 2U);
  EXPECT_EQ(sessions[0].label(), "gpumem run");
  EXPECT_EQ(sessions[1].label(), "mine");
  job.tell("quit\n");
  EXPECT_EQ(job.wait(), 0);
  EXPECT_TRUE(says(job.said(), "gpumem run: peak 256MiB, its requests waited "));
  EXPECT_TRUE(says(job.said(), ", 1 request denied\n"));
}

TEST_F(Jobs, HoldTheSmallerLimitForEachProcess) {
  const std::string wanted = text(gibibytes(6));
  for (const char* driver : {"driver", "library"}) {
    SCOPED_TRACE(driver);
    const std::vector<std::string> inner{"run",    "--limit", "4GiB", "--",  actor_program(),
                                         "borrow", driver,    wanted, "exit"};
    std::vector<std::string> nested{"run", "--limit", "8GiB", "--", cli_program()};
    nested.insert(nested.end(), inner.begin(), inner.end());
    EXPECT_TRUE(says(gpumem(nested, {{"GPUMEM_SHIM_FOLDER", ""}}).output, "has it not: "));
    EXPECT_TRUE(says(gpumem({"run", "--", actor_program(), "borrow", driver, wanted, "exit"},
                            {{"GPUMEM_SHIM_FOLDER", ""}, {"GPUMEM_LIMIT", "2GiB"}})
                         .output,
                     "has it not: "));
  }
}

TEST_F(Jobs, OfServicesAreMadeListedAndEnded) {
  const Outcome made = gpumem({"job", "create", "--limit", "1GiB", "--wait", "5s", "--name", "service"});
  ASSERT_EQ(made.status, 0) << made.output;
  const std::string job = made.output.substr(0, made.output.find('\n'));
  EXPECT_EQ(charged(), gibibytes(1).count);
  const Outcome borrows = run({.program = actor_program(),
                               .arguments = {"borrow", "library", text(gibibytes(2)), "exit"},
                               .environment = with({{"GPUMEM_JOB", job}})});
  EXPECT_TRUE(says(borrows.output, "the whole limit of its job, 1GiB"));
  EXPECT_TRUE(says(gpumem({"job", "list"}).output, "service"));
  broker_.kill();
  broker_.start_again();
  EXPECT_EQ(charged(), gibibytes(1).count);
  EXPECT_EQ(gpumem({"end", job}).output, "job " + job + " has ended\n");
  EXPECT_TRUE(eventually([&] { return charged() == 0; }));
  EXPECT_EQ(gpumem({"job", "list"}).output, "no jobs\n");
  const Outcome gone = gpumem({"end", job});
  EXPECT_EQ(gone.status, 1);
  EXPECT_EQ(gone.output,
            "gpumem: there is no session or job " + job + "; see `gpumem ps` and `gpumem job list`\n");
}

TEST_F(Jobs, AreListedWithTheLimitOfTheirTenantOnceThatIsSmaller) {
  ASSERT_EQ(gpumem({"job", "create", "--limit", "20GiB"}).status, 0);
  const std::string tenant = "uid:" + std::to_string(::geteuid());
  ASSERT_EQ(gpumem({"quota", "set", tenant, "--limit", "12GiB"}).status, 0);
  EXPECT_TRUE(says(gpumem({"job", "list"}).output, " 12GiB "));
  EXPECT_EQ(gpumem({"end", only_job()}).status, 0);
}

// A lock or a pipe of the caller's, which the kernel passes on.
TEST_F(Jobs, OfServicesKeepNothingOfTheirMakerOpen) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd reading(ends[0]);
  const Outcome made = gpumem({"job", "create", "--limit", "1GiB"});
  ASSERT_EQ(made.status, 0) << made.output;
  ::close(ends[1]);
  pollfd hung_up{reading.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&hung_up, 1, 10'000), 1) << "somebody has the other end";
  EXPECT_EQ(gpumem({"end", only_job()}).status, 0);
}

struct JobsWithAHostStore : Jobs {
  JobsWithAHostStore() : Jobs("1x24GiB", "[host]\nsize = \"256MiB\"\n") {}
};

TEST_F(JobsWithAHostStore, HaveALimitOfItsMemory) {
  const Outcome made = gpumem({"job", "create", "--host-limit", "25%"});
  ASSERT_EQ(made.status, 0) << made.output;
  const auto devices = nlohmann::json::parse(gpumem({"job", "list", "--json"}).output).at(0).at("devices");
  EXPECT_TRUE(devices.at(0).at("limit").is_null()) << devices;
  EXPECT_EQ(devices.at(1).at("device"), "host");
  EXPECT_EQ(devices.at(1).at("limit"), mebibytes(64).count);
  EXPECT_EQ(gpumem({"end", only_job()}).status, 0);
  const Outcome nested = gpumem(
      {"run", "--host-limit", "8MiB", "--", cli_program(), "run", "--host-limit", "4MiB", "--", "true"});
  EXPECT_EQ(nested.status, 0);
  EXPECT_TRUE(says(nested.output, "--host-limit 4MiB has no effect"));
}

TEST_F(Jobs, HaveNoHostLimitWithoutAHostStore) {
  const Outcome refused = gpumem({"run", "--host-limit", "8MiB", "--", "true"});
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says(refused.output, "the broker has no host store"));
}

// `gpumem end` is for the user of the process, and for administrators.
TEST_F(Jobs, AndSessionsAreEndedByNumberAndTheirUserIsToldByWhom) {
  auto job = begin_job({"--name", "mine"}, {"borrow", "driver", "1", "stay-asked"});
  job.pid_of_command();
  EXPECT_EQ(gpumem({"end", only_job()}).status, 0);
  EXPECT_EQ(job.wait(), -SIGTERM);
  EXPECT_TRUE(says(job.said(), "gpumem run: the broker ended the command by SIGTERM: uid " +
                                   std::to_string(::geteuid()) + " has asked for it (pid "));

  RunningCli other({"run", "--", actor_program(), "borrow", "driver", "1", "stay"},
                   with({{"GPUMEM_SHIM_FOLDER", ""}}));
  ASSERT_TRUE(other.has_said("has it\n"));
  const std::string session = std::to_string(broker_.sessions().back().id());
  EXPECT_EQ(gpumem({"end", session}).output, "session " + session + " has ended\n");
  EXPECT_EQ(other.wait(), -SIGTERM);
}

TEST_F(Jobs, AreNotKilledByEndAndItIsSaidHowToGoOn) {
  RunningCli stubborn(
      {"run", "--", "/bin/sh", "-c", "trap '' TERM; exec \"$0\" borrow driver 1 stay", actor_program()},
      with({{"GPUMEM_SHIM_FOLDER", ""}}));
  ASSERT_TRUE(stubborn.has_said("has it\n"));
  const auto session = broker_.sessions().back();
  const auto pid = static_cast<pid_t>(session.pid());
  const std::string number = std::to_string(session.id());
  for (const std::string& subject : {number, only_job()}) {
    const Outcome asked = gpumem({"end", subject});
    EXPECT_EQ(asked.status, 1);
    EXPECT_TRUE(says(asked.output, "got SIGTERM 10 s ago and goes on"));
    EXPECT_TRUE(says(asked.output, "The broker does not kill it; `kill -KILL "));
  }
  EXPECT_TRUE(says(gpumem({"ps"}).output, std::to_string(pid))) << "it has what it had";
  EXPECT_NE(charged(), 0U);
  ::kill(pid, SIGKILL);
  stubborn.wait();
  EXPECT_TRUE(eventually([&] { return charged() == 0; }));
}

struct JobsOfOthers : Jobs {
  JobsOfOthers() : Jobs("1x256MiB", ::geteuid() == 0 ? "[broker]\nsocket_group = 10000\n" : "") {}

  Outcome as_other(std::vector<std::string> arguments) const {
    return run({.program = cli_program(),
                .arguments = std::move(arguments),
                .environment = with({}),
                .user = test_user(10'002)});
  }
};

TEST_F(JobsOfOthers, AreEndedByAdministratorsAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  auto job = begin({"run", "--", actor_program(), "signals"}, test_user(10'001));
  job.pid_of_command();
  const std::string number = only_job();
  const Outcome refused = as_other({"end", number});
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(says(refused.output, "job " + number + " is another user's: that user may do this"));
  const Outcome no_admin = as_other({"reload"});
  EXPECT_EQ(no_admin.status, 1);
  EXPECT_TRUE(says(no_admin.output, "may not administer this broker"));
  job.tell("quit\n");
  job.wait();
}

struct JobsOnTwoDevices : Jobs {
  JobsOnTwoDevices() : Jobs("2x24GiB") {}
};

TEST_F(JobsOnTwoDevices, GoWhereThereIsRoom) {
  std::vector<RunningCli> jobs;
  for (int i = 0; i < 6; ++i) {
    jobs.push_back(begin_job({"--limit", "7GiB", "--wait", "30s"},
                             {"borrow", "driver", text(gibibytes(7)), "stay-asked"}));
  }
  for (RunningCli& job : jobs) {
    job.pid_of_command();
    job.tell("take\n");
    EXPECT_TRUE(job.has_said("has it\n"));
  }
  const auto status = broker_.status();
  for (const auto& device : status.devices()) EXPECT_EQ(device.pool() - device.free(), gibibytes(21).count);
  for (RunningCli& job : jobs) {
    job.tell("quit\n");
    EXPECT_EQ(job.wait(), 0);
  }
}

struct JobsWithLittleReserved : Jobs {
  JobsWithLittleReserved() : Jobs("1x24GiB", "[default]\nreserve = \"8GiB\"\n") {}
};

TEST_F(JobsWithLittleReserved, SayHowMuchIsReserved) {
  const std::vector<std::string> options{"--limit", "12GiB", "--wait", "30s"};
  const std::vector<std::string> words{"borrow", "driver", text(gibibytes(8)), "stay-asked"};
  auto first = begin_job(options, words);
  EXPECT_TRUE(first.has_said("gpumem run: reserved 8GiB of gpu0, not 12GiB: "));
  auto second = begin_job(options, words);
  EXPECT_TRUE(second.has_said("gpumem run: waiting for 8GiB of gpu0, first"));
  first.tell("take\nquit\n");
  EXPECT_TRUE(second.has_said("gpumem run: reserved 8GiB of gpu0, not 12GiB: "));
}

TEST_F(JobsOnTwoDevices, WaitInTheShorterLine) {
  const std::vector<std::string> words{"borrow", "driver", text(gibibytes(1)), "stay-asked"};
  std::vector<RunningCli> holders;
  for (const char* device : {"0", "1"}) {
    holders.push_back(begin_job({"--device", device, "--limit", "20GiB", "--wait", "30s"}, words));
    holders.back().pid_of_command();
  }
  auto waiting = begin_job({"--device", "0", "--limit", "20GiB", "--wait", "30s"}, words);
  EXPECT_TRUE(waiting.has_said("waiting for 20GiB"));
  auto other = begin_job({"--limit", "20GiB", "--wait", "30s"}, words);
  EXPECT_TRUE(other.has_said("waiting for 20GiB of gpu1"));
  holders[1].tell("take\nquit\n");
  other.pid_of_command();
  EXPECT_EQ(waiting.said().find("ready"), std::string::npos) << waiting.said();
}

}  // namespace
}  // namespace gpumem::test
