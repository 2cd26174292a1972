// `gpumem run`: what a command is given, how it ends, and what is told of it.
#include "proto/lane.h"
#include "tests/run/fixture.h"

namespace gpumem::test {
namespace {

using Words = std::vector<std::string>;

struct Run : RunTest {
  Outcome run_shell(const std::string& script, Words options = {}, Variables more = {}) {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {"--", "/bin/sh", "-c", script});
    return gpumem(std::move(options), std::move(more));
  }
  /// The variable as the command sees it.
  std::string variable(const std::string& name, const Words& options = {}, const Variables& more = {}) {
    const std::string output = run_shell("echo \"=$" + name + "=\"", options, more).output;
    const auto begin = output.find('=') + 1;
    return output.substr(begin, output.find("=\n", begin) - begin);
  }
};

TEST_F(Run, EndsAsTheCommandEnds) {
  EXPECT_EQ(run_shell("exit 0").status, 0);
  EXPECT_EQ(run_shell("exit 42").status, 42);
  EXPECT_EQ(run_shell("kill -KILL $$").status, -SIGKILL);
  EXPECT_EQ(run_shell("kill -TERM $$").status, -SIGTERM);
  EXPECT_EQ(run_shell("kill -SEGV $$").status, -SIGSEGV);
}

TEST_F(Run, HasAServiceManagersVariablesNameTheCommand) {
  const std::string script =
      "export LISTEN_PID=$$ WATCHDOG_PID=$$ LISTEN_PIDFDID=7; exec \"$0\" run -- "
      "/bin/sh -c 'echo =$(($$ - LISTEN_PID))=$(($$ - WATCHDOG_PID))=$LISTEN_PIDFDID='";
  const auto meant = run(
      {.program = "/bin/sh", .arguments = {"-c", script, cli_program().string()}, .environment = with({})});
  EXPECT_TRUE(says(meant.output, "=0=0==")) << "a pidfd is of one process";
  const auto others = gpumem({"run", "/bin/sh", "-c", "echo $LISTEN_PID:$WATCHDOG_PID:$LISTEN_PIDFDID"},
                             {{"LISTEN_PID", "1"}, {"WATCHDOG_PID", "x"}, {"LISTEN_PIDFDID", "7"}});
  EXPECT_TRUE(says(others.output, "1:x:7")) << "another process is meant";
}

TEST_F(Run, TellsItsOwnFailuresFromTheCommands) {
  EXPECT_EQ(gpumem({"run", "--", "/no/such/program"}).status, 127);
  EXPECT_EQ(gpumem({"run", "no-such-program"}).status, 127);
  EXPECT_EQ(gpumem({"run", "/etc/passwd"}).status, 126);
  EXPECT_EQ(gpumem({"run", "/etc"}).status, 126);
  for (const Words& wrong : std::vector<Words>{{"run", "--bogus", "true"},
                                               {"run", "--limit", "much", "true"},
                                               {"run", "--limit", "0", "true"},
                                               {"run", "--limit", "1MiB", "true"},
                                               {"run", "--host-limit", "1MiB", "true"},
                                               {"run", "--limit", "101%", "true"},
                                               {"run", "--limit", "0%", "true"},
                                               {"run", "--limit", "all-but 1MiB", "true"},
                                               {"run", "--wait", "-3s", "true"},
                                               {"run", "--device", "GPU-nowhere", "true"},
                                               {"run", "--device", "7", "true"}})
    EXPECT_EQ(gpumem(wrong).status, 125) << wrong[1];
}

TEST_F(Run, RefusesALimitThatNoProcessCouldStartWith) {
  const Outcome small = run_shell("echo started", {"--limit", "1MiB"});
  EXPECT_EQ(small.status, 125);
  EXPECT_EQ(small.output, "gpumem run: --limit: 1MiB is less than 2MiB, the least that can be borrowed\n");
  for (const char* wrong : {"8gigs", "0", "1MiB"}) {
    const Outcome outcome = run_shell("echo started", {}, {{"GPUMEM_LIMIT", wrong}});
    EXPECT_EQ(outcome.status, 125);
    EXPECT_TRUE(says(outcome.output, "gpumem run: GPUMEM_LIMIT: "));
    EXPECT_EQ(outcome.output.find("started"), std::string::npos) << outcome.output;
  }
}

TEST_F(Run, RefusesAWaitThatNoProcessCouldStartWith) {
  const Outcome outcome = run_shell("echo started", {}, {{"GPUMEM_WAIT", "abc"}});
  EXPECT_EQ(outcome.status, 125);
  EXPECT_EQ(outcome.output, "gpumem run: GPUMEM_WAIT: 'abc' is no span of time (500ms, 90s, 10m, 2h, 3d)\n");
  EXPECT_EQ(variable("GPUMEM_WAIT", {"--wait", "90s"}, {{"GPUMEM_WAIT", "abc"}}), "90s");
}

TEST_F(Run, RefusesANameThatNoProcessCouldStartWith) {
  const std::string bad = "a\033[31m";
  const Outcome outcome = run_shell("echo started", {}, {{"GPUMEM_NAME", bad}});
  EXPECT_EQ(outcome.status, 125);
  EXPECT_EQ(outcome.output, "gpumem run: GPUMEM_NAME: the label is longer than 128 bytes or not printable\n");
  EXPECT_EQ(variable("GPUMEM_NAME", {"--name", "a"}, {{"GPUMEM_NAME", bad}}), "a");
  EXPECT_EQ(run_shell("echo started", {"--name", bad}).status, 125);
}

TEST_F(Run, SaysThatALimitAboveTheTenantsIsTheTenants) {
  const std::string words = "--limit 1GiB: the limit is 224MiB, which is all that the tenant may have";
  EXPECT_TRUE(says(run_shell("true", {"--limit", "1GiB"}).output, words));
  EXPECT_TRUE(says(run_shell("true", {"--limit", "1GiB", "--device", "0"}).output, words));
  const std::string within = run_shell("true", {"--limit", "224MiB"}).output;
  EXPECT_EQ(within.find("the tenant may have"), std::string::npos) << within;
}

TEST_F(Run, TakesALimitInPercentOfWhatTheTenantCanHave) {
  EXPECT_EQ(variable("GPUMEM_LIMIT", {"--limit", "50%"}), std::to_string(mebibytes(112).count));
  EXPECT_EQ(variable("GPUMEM_LIMIT", {"--limit", "0.01%"}), std::to_string(mebibytes(2).count));
  const Outcome outcome = gpumem({"run", "--limit", "50%", actor_program(), "fill"});
  EXPECT_TRUE(says(outcome.output, "has 1 blocks: ")) << "of 64 MiB";
  EXPECT_TRUE(says(outcome.output, "its job's limit of 112MiB"));
}

TEST_F(Run, LeavesTheWordsOfTheCommandAlone) {
  const Outcome one = gpumem({"run", "--limit", "1GiB", "/bin/echo", "--limit", "--", "-x", "status"});
  EXPECT_TRUE(says(one.output, "--limit -- -x status\n"));
  const Outcome two = gpumem({"run", "--", "/bin/echo", "--json", "run"});
  EXPECT_TRUE(says(two.output, "--json run\n"));
}

TEST_F(Run, WithoutACommandStartsTheUsersShell) {
  auto shell = begin({"run", "--name", "a shell"});
  shell.tell("echo in $GPUMEM_NAME\n");
  EXPECT_TRUE(shell.has_said("in a shell"));
  shell.tell("exit 5\n");
  EXPECT_EQ(shell.wait(), 5);
}

TEST_F(Run, PutsTheDropInDriverInFrontOfTheLibraryPath) {
  const std::string shim = fake_shim_folder();
  EXPECT_EQ(variable("LD_LIBRARY_PATH", {}, {{"LD_LIBRARY_PATH", ""}}), shim);
  EXPECT_EQ(variable("LD_LIBRARY_PATH", {}, {{"LD_LIBRARY_PATH", "/a::/b:" + shim + ":"}}), shim + ":/a:/b");
  EXPECT_EQ(variable("LD_PRELOAD", {}, {{"LD_PRELOAD", ""}}), "");
}

TEST_F(Run, PreloadsTheDropInDriverIfAskedTo) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a sanitized library is not preloaded into programs that are not";
#endif
  const std::string library = fake_shim_folder() / "libcuda.so.1";
  EXPECT_EQ(variable("LD_PRELOAD", {"--preload"}), library);
  EXPECT_EQ(variable("LD_LIBRARY_PATH", {"--preload"}, {{"LD_LIBRARY_PATH", "/a"}}), "/a");
}

TEST_F(Run, PassesTheCommandLinesOptionsToTheDropInDriver) {
  const Words options{"--limit", "96MiB",    "--wait", "90s",           "--name",
                      "train",   "--device", "0",      "--show-device", "--optional"};
  EXPECT_EQ(variable("GPUMEM_LIMIT", options), std::to_string(mebibytes(96).count)) << "not rounded";
  EXPECT_EQ(variable("GPUMEM_WAIT", options), "90s");
  EXPECT_EQ(variable("GPUMEM_NAME", options), "train");
  EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES", options), device());
  EXPECT_EQ(variable("GPUMEM_SHOW_DEVICE", options), "1");
  EXPECT_EQ(variable("GPUMEM_OPTIONAL", options), "1");
  EXPECT_NE(variable("GPUMEM_JOB"), "");
  EXPECT_EQ(variable("GPUMEM_RUNTIME_DIR"), broker_.folder());
  EXPECT_EQ(variable("GPUMEM_REAL_LIBCUDA"), broker_.driver_folder() + "/libcuda.so.1");
  EXPECT_EQ(variable("CUDA_VISIBLE_DEVICES", {"--device", device().substr(0, 12)}), device());
  EXPECT_EQ(variable("GPUMEM_LIMIT"), "");
}

TEST_F(Run, InsideAnotherOneHeedsTheSmallerLimit) {
  const auto nested = [&](const char* outer, const char* inner) {
    return gpumem({"run", "--limit", outer, cli_program().string(), "run", "--limit", inner, "/bin/sh", "-c",
                   "echo \"=$GPUMEM_LIMIT=\""})
        .output;
  };
  EXPECT_TRUE(says(nested("64MiB", "128MiB"), "=67108864="));
  EXPECT_TRUE(says(nested("64MiB", "128MiB"), "--limit 128MiB is more than GPUMEM_LIMIT allows: 64MiB hold"));
  const std::string smaller = nested("128MiB", "64MiB");
  EXPECT_TRUE(says(smaller, "=67108864="));
  EXPECT_EQ(smaller.find("allows"), std::string::npos) << smaller;
  EXPECT_TRUE(says(nested("50%", "50%"), "=58720256=")) << "half of the outer one's half";
  EXPECT_EQ(variable("GPUMEM_LIMIT", {"--limit", "64MiB"}, {{"GPUMEM_LIMIT", "no number"}}), "67108864");
}

TEST_F(Run, SetsVariablesOfFrameworksUnlessTheUserHasSetThem) {
  EXPECT_EQ(variable("TF_FORCE_GPU_ALLOW_GROWTH"), "true");
  EXPECT_EQ(variable("XLA_PYTHON_CLIENT_PREALLOCATE"), "false");
  EXPECT_EQ(variable("XLA_PYTHON_CLIENT_PREALLOCATE", {}, {{"XLA_PYTHON_CLIENT_PREALLOCATE", "true"}}),
            "true");
  EXPECT_EQ(variable("TF_DEVICE_MIN_SYS_MEMORY_IN_MB", {"--no-framework-settings"}), "");
}

TEST_F(Run, ReportsWhatTheCommandsProcessesHaveBorrowed) {
  const std::string borrow = actor_program().string() + " borrow library ";
  const Outcome one = run_shell(borrow + "4194304 exit");
  EXPECT_EQ(one.status, 0);
  EXPECT_TRUE(says(one.output, "gpumem run: peak 4MiB, its requests waited "));
  EXPECT_TRUE(says(one.output, ", nothing denied by the broker\n"));
  const Outcome denied = run_shell(borrow + "4194304 exit; " + borrow + "8388608 exit", {"--limit", "6MiB"});
  EXPECT_TRUE(says(denied.output, "8MiB is larger than the allocator's limit of 6MiB"));
  EXPECT_TRUE(says(denied.output, "peak 4MiB"));
  EXPECT_TRUE(says(run_shell("true").output, "no process of the command has borrowed memory"));
}

TEST_F(Run, ReportsOfProcessesThatWereKilledAndOfOrphans) {
  const Outcome killed = gpumem({"run", actor_program(), "borrow", "library", "2097152", "kill"});
  EXPECT_EQ(killed.status, -SIGKILL);
  EXPECT_TRUE(says(killed.output, "peak 2MiB"));
  const Outcome orphan = gpumem({"run", actor_program(), "orphan", "borrow", "library", "4194304", "kill"});
  EXPECT_EQ(orphan.status, 0);
  EXPECT_TRUE(says(orphan.output, "peak 4MiB"));
}

TEST_F(Run, InsideAnotherOneIsInItsJob) {
  const std::string inner = cli_program().string() + " run --limit 8MiB --wait 1m -- ";
  const std::string borrow = actor_program().string() + " borrow library 4194304 exit";
  const Outcome outcome =
      run_shell("echo =$GPUMEM_JOB=; " + inner + inner + "/bin/sh -c 'echo =$GPUMEM_JOB=; " + borrow + "'");
  const auto begin = outcome.output.find('=');
  const std::string job = outcome.output.substr(begin, outcome.output.find('\n', begin) - begin);
  EXPECT_NE(outcome.output.find(job, begin + 1), std::string::npos) << outcome.output;
  EXPECT_TRUE(says(outcome.output, "nothing is reserved for --limit 8MiB"));
  EXPECT_TRUE(says(outcome.output, "peak 4MiB"));
  EXPECT_EQ(outcome.output.find("peak"), outcome.output.rfind("peak"))
      << "the outer one's: " << outcome.output;
}

TEST_F(Run, BesideAVariableThatHasOutlivedItsJobHasItsOwn) {
  const Outcome outcome = run_shell("echo =$GPUMEM_JOB=", {}, {{"GPUMEM_JOB", "123456"}});
  EXPECT_TRUE(says(outcome.output, "job 123456 of GPUMEM_JOB is not there any more"));
  EXPECT_EQ(outcome.output.find("=123456="), std::string::npos) << outcome.output;
}

TEST_F(Run, KeepsItsJobBeyondTheEndOfItsBroker) {
  auto running = begin({"run", "--limit", "64MiB", "--wait", "1h", actor_program(), "borrow", "library",
                        "8388608", "stay-asked"});
  running.pid_of_command();
  broker_.kill();
  broker_.start_again();
  EXPECT_TRUE(
      eventually([&] { return broker_.device().pool() - broker_.device().free() == mebibytes(64).count; }));
  running.tell("take\n");
  EXPECT_TRUE(running.has_said("has it\n"));
  running.tell("quit\n");
  EXPECT_EQ(running.wait(), 0);
  EXPECT_TRUE(says(running.said(), "gpumem run: peak 8MiB"));
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
}

TEST_F(Run, WithoutABrokerAtItsEndHasNoAccountAndSaysSo) {
  auto running = begin({"run", actor_program(), "signals"});
  running.pid_of_command();
  broker_.kill();
  running.tell("quit\n");
  EXPECT_EQ(running.wait(), 3);
  EXPECT_TRUE(says(running.said(), "gpumem run: there is no account of what the command has used: "));
}

TEST_F(Run, WithoutABrokerRefusesWithAdvice) {
  const Outcome outcome = gpumem({"run", "--runtime-dir", "/nowhere", "--", "/bin/echo", "ran"});
  EXPECT_EQ(outcome.status, 125);
  EXPECT_TRUE(says(outcome.output, "no broker at /nowhere"));
  EXPECT_TRUE(says(outcome.output, "--optional"));
  EXPECT_EQ(outcome.output.find("ran"), std::string::npos);
}

TEST_F(Run, WithoutABrokerRunsTheCommandPlainlyIfThatIsAllowed) {
  const Outcome outcome = gpumem({"run", "--runtime-dir", "/nowhere", "--optional", "--device", "gpu1", "--",
                                  "/bin/sh", "-c", "echo \"=$GPUMEM_JOB=$CUDA_VISIBLE_DEVICES=\"; exit 9"});
  EXPECT_EQ(outcome.status, 9);
  EXPECT_TRUE(says(outcome.output, "no broker at /nowhere"));
  EXPECT_TRUE(says(outcome.output, "runs without gpumem"));
  EXPECT_TRUE(says(outcome.output, "==1=\n")) << "as CUDA spells it";
}

TEST_F(Run, AndItsLikeRefuseARelativeRuntimeFolderInADeletedOne) {
  const std::string folder = (folder_.path() / "deleted").string();
  for (const auto& [words, status] : {std::pair(Words{"run", "--"}, 125),
                                      {Words{"reserve", "16MiB", "--"}, 125},
                                      {Words{"job", "create", "--name"}, 1}}) {
    Words arguments{"-c", "mkdir $1; cd $1; rmdir $1; shift; exec \"$0\" \"$@\" true", cli_program().string(),
                    folder};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const Outcome outcome = run({.program = "/bin/sh",
                                 .arguments = std::move(arguments),
                                 .environment = {{"GPUMEM_RUNTIME_DIR", "relative"}}});
    EXPECT_EQ(outcome.status, status) << words[0];
    EXPECT_TRUE(says(outcome.output, "the working directory was deleted: give an absolute path"));
  }
}

// gRPC takes longer to start than many a command runs.
TEST_F(Run, AsksByTheLaneAlone) {
  const std::string socket = broker_.folder() + "/" + kApiSocketName;
  std::filesystem::rename(socket, socket + ".away");
  const Outcome outcome = gpumem({"run", "--limit", "64MiB", "--device", "0", "/bin/echo", "ran"});
  std::filesystem::rename(socket + ".away", socket);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(says(outcome.output, "ran\n"));
}

TEST_F(Run, ThatGetsNoAnswerCanBeInterrupted) {
  EXPECT_EQ(::kill(broker_.pid(), SIGSTOP), 0);
  for (const char* how : {"run", "reserve"}) {
    auto running =
        how == std::string("run") ? begin({"run", "/bin/true"}) : begin({"reserve", "2MiB", "/bin/true"});
    running.child().signal(SIGINT);
    EXPECT_EQ(running.wait(), -SIGINT) << how << running.said();
  }
  EXPECT_EQ(::kill(broker_.pid(), SIGCONT), 0);
}

// The kernel counts the threads of all processes of the user, so it is one that has no other.
TEST_F(Run, WithoutThreadsRefusesAndSaysSo) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer needs a thread of its own";
#endif
  if (::getuid() != 0) GTEST_SKIP() << "only root can become another user";
  const Outcome outcome =
      run({.program = "/bin/bash",
           .arguments = {"-c", "ulimit -u 1; exec \"$0\" \"$@\"", cli_program().string(), "run", "/bin/true"},
           .environment = with({}),
           .user = User{64321, 64321}});
  EXPECT_EQ(outcome.status, 125) << outcome.output;
  EXPECT_TRUE(says(outcome.output, "cannot start a thread (ulimit -u)"));
}

// Its last messages may find no reader, or one that reads no more.
TEST_F(Run, EndsWithTheStatusOfTheCommandWhoeverReadsItsMessages) {
  for (const char* reader : {"true", "sleep 0.5"}) {
    const std::string script =
        "exec 3>&1; { \"$0\" run --wait 1s -- sh -c 'sleep 0.1; head -c 100000 /dev/zero >&2 & exit 5'; "
        "echo status $? >&3; } 2>&1 >/dev/null | " +
        std::string(reader);
    const Outcome outcome = run({.program = "/bin/bash",
                                 .arguments = {"-c", script, cli_program().string()},
                                 .environment = with({})});
    EXPECT_EQ(outcome.output, "status 5\n") << reader;
  }
}

TEST_F(Run, WithoutTheDropInDriverRefuses) {
  const Outcome outcome = gpumem({"run", "true"}, {{"GPUMEM_SHIM_FOLDER", "/nowhere"}});
  EXPECT_EQ(outcome.status, 125) << "the first of both counts";
  EXPECT_TRUE(says(outcome.output, "no drop-in driver at /nowhere/libcuda.so.1"));
}

// The command would run with the real driver, past the broker.
TEST_F(Run, RefusesAFolderThatTheLoaderTakesForSeveral) {
  const TemporaryFolder folder;
  const auto placed = [&](const char* name) {
    const auto place = std::filesystem::canonical(folder.path()) / name;
    std::filesystem::create_directories(place);
    std::filesystem::copy_file(fake_shim_folder() / "libcuda.so.1", place / "libcuda.so.1");
    return place.string();
  };
  const std::string colon = placed("a:b");
  const std::string space = placed("a b");
  const Outcome path = gpumem({"run", "true"}, {{"GPUMEM_SHIM_FOLDER", colon}});
  EXPECT_EQ(path.status, 125);
  EXPECT_TRUE(says(path.output, "no path with ':' in it can stand in LD_LIBRARY_PATH"));
  EXPECT_EQ(gpumem({"run", "true"}, {{"GPUMEM_SHIM_FOLDER", space}}).status, 0);
  const Outcome preload = gpumem({"run", "--preload", "true"}, {{"GPUMEM_SHIM_FOLDER", space}});
  EXPECT_EQ(preload.status, 125);
  EXPECT_TRUE(says(preload.output, "no path with ' ' in it can stand in LD_PRELOAD"));
}

TEST_F(Run, FindsTheDropInDriverOfItsBuildTreeAndTheInstalledOneBeforeIt) {
  const TemporaryFolder folder;
  const auto tree = std::filesystem::canonical(folder.path());
  const auto found = [&] {
    return run({.program = tree / "cli/gpumem",
                .arguments = {"run", "--", "/usr/bin/printenv", "LD_LIBRARY_PATH"},
                .environment = with({{"GPUMEM_SHIM_FOLDER", ""}, {"LD_LIBRARY_PATH", ""}})})
        .output;
  };
  std::filesystem::create_directories(tree / "cli");
  std::filesystem::copy_file(cli_program(), tree / "cli/gpumem");
  EXPECT_TRUE(says(found(), "no drop-in driver at " + (tree / "lib/gpumem/shim/libcuda.so.1").string()));
  for (const char* place : {"shim/lib", "lib/gpumem/shim"}) {
    std::filesystem::create_directories(tree / place);
    std::filesystem::copy_file(fake_shim_folder() / "libcuda.so.1", tree / place / "libcuda.so.1");
    EXPECT_TRUE(says(found(), (tree / place).string() + "\n"));
  }
}

// ---- Waiting ----

struct RunWaits : Run {
  std::unique_ptr<ClientProcess> holder(Bytes bytes) {
    auto client = std::make_unique<ClientProcess>(broker_.folder());
    EXPECT_TRUE(client->connect().at("ok"));
    EXPECT_TRUE(client->open("a").at("ok"));
    EXPECT_TRUE(client->grow("a", bytes).at("ok"));
    return client;
  }
  bool eventually_waits() {
    return eventually([&] { return broker_.device().waiting() == 1; });
  }
};

TEST_F(RunWaits, BeginsAtOnceIfItsPlaceIsFree) {
  const Outcome outcome = gpumem({"run", "--limit", "64MiB", "--wait", "1h", "/bin/echo", "ran"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output.find("waiting for"), std::string::npos) << outcome.output;
  EXPECT_TRUE(eventually([&] { return broker_.device().free() == broker_.device().pool(); }));
}

TEST_F(RunWaits, ForMemoryThatItKeepsForTheCommandUntilItsEnd) {
  auto running = begin({"run", "--limit", "64MiB", "--wait", "1h", actor_program(), "signals"});
  running.pid_of_command();
  EXPECT_EQ(broker_.device().free(), broker_.device().pool() - mebibytes(64).count);
  running.tell("quit\n");
  EXPECT_EQ(running.wait(), 3);
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
}

TEST_F(RunWaits, InTheLineAndSaysSoUntilThereIsRoom) {
  auto client = holder(mebibytes(224));
  auto waiting = begin({"run", "--limit", "64MiB", "--wait", "1h", "/bin/echo", "has run"});
  ASSERT_TRUE(eventually_waits()) << waiting.said();
  EXPECT_TRUE(waiting.has_said("gpumem run: waiting for 64MiB of gpu0"));
  EXPECT_TRUE(waiting.has_said("first in the line\n"));
  EXPECT_EQ(waiting.said().find("has run"), std::string::npos);
  EXPECT_TRUE(client->shrink("a", {}).at("ok"));
  EXPECT_EQ(waiting.wait(), 0);
  EXPECT_TRUE(says(waiting.said(), "has run\n"));
}

TEST_F(RunWaits, NoLongerThanItIsAllowedTo) {
  auto client = holder(mebibytes(224));
  const Outcome outcome = gpumem({"run", "--limit", "64MiB", "--wait", "50ms", "/bin/echo", "has run"});
  EXPECT_EQ(outcome.status, 125);
  EXPECT_EQ(outcome.output.find("has run"), std::string::npos) << outcome.output;
  EXPECT_TRUE(says(outcome.output, "gpumem run: "));
}

TEST_F(RunWaits, NotForImpossibleAmounts) {
  const Outcome outcome = gpumem({"run", "--limit", "64GiB", "--wait", "1h", "/bin/echo", "ran"});
  EXPECT_EQ(outcome.status, 0) << "the tenant's whole limit is enough: " << outcome.output;
}

struct RunBesideContexts : RunTest {
  RunBesideContexts()
      : RunTest({.config = "[broker]\nreserve = \"all-but 32MiB\"\ncontext_overhead = \"16MiB\"\n"}) {}
};

TEST_F(RunBesideContexts, WaitsForNoMoreThanTheyLeave) {
  ClientProcess client(broker_.folder());
  ASSERT_TRUE(client.connect().at("ok"));
  ASSERT_TRUE(client.open("a").at("ok"));
  ASSERT_TRUE(client.grow("a", mebibytes(2)).at("ok"));
  ASSERT_TRUE(client.shrink("a", {}).at("ok"));
  const std::string tenant = "uid:" + std::to_string(::geteuid());
  ASSERT_EQ(broker_.tenant(tenant).outside(), mebibytes(16).count);
  const Outcome outcome = gpumem({"run", "--limit", "1GiB", "--wait", "1h", "/bin/echo", "has run"});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST_F(RunWaits, UntilItIsInterrupted) {
  auto client = holder(mebibytes(224));
  auto waiting = begin({"run", "--limit", "64MiB", "--wait", "1h", "/bin/echo", "has run"});
  ASSERT_TRUE(eventually_waits()) << waiting.said();
  waiting.child().signal(SIGINT);
  EXPECT_EQ(waiting.wait(), -SIGINT);
  EXPECT_TRUE(eventually([&] { return broker_.device().waiting() == 0; }));
  EXPECT_EQ(waiting.said().find("has run"), std::string::npos);
}

}  // namespace
}  // namespace gpumem::test
