// `gpumem check --program`: whether a running program borrows, and what bypasses the broker.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>

#include "client/cli/check/check.h"
#include "tests/run/fixture.h"

namespace gpumem::test {
namespace {

using Words = std::vector<std::string>;

struct CheckProgram : RunTest {
  CheckProgram()
      : RunTest({.config = "[broker]\nreserve = \"all-but 128MiB\"\nreconcile_seconds = 0\n"
                           "past_broker_allowance = \"40MiB\"\n"}) {}

  std::string shim() const { return fake_shim_folder() / "libcuda.so.1"; }
  std::string real() const { return std::filesystem::canonical(broker_.driver_folder() + "/libcuda.so.1"); }

  /// A process that has loaded the libraries and stays, until this object's end.
  pid_t start(Words libraries, Variables more = {}) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd theirs(ends[0]);
    input_.reset(ends[1]);
    const UniqueFd output(::memfd_create("output", MFD_CLOEXEC));
    libraries.insert(libraries.begin(), "map");
    program_ = std::make_unique<Child>(ChildOptions{.program = actor_program(),
                                                    .arguments = std::move(libraries),
                                                    .environment = std::move(more),
                                                    .input = theirs.get(),
                                                    .output = output.get()});
    EXPECT_TRUE(eventually([&] { return ::lseek(output.get(), 0, SEEK_END) > 0; }));
    return program_->pid();
  }
  Json check(pid_t pid) {
    const Outcome outcome = gpumem({"check", "--program", std::to_string(pid), "--json"});
    Json json = Json::parse(outcome.output, nullptr, false);
    EXPECT_EQ(outcome.status, json.value("ok", false) ? 0 : 1) << outcome.output;
    return json;
  }
  static Json finding(const Json& report, const std::string& name) {
    for (const Json& one : report["checks"]) {
      if (one["name"] == name) return one;
    }
    return {{"state", "none"}, {"found", ""}, {"mend", ""}};
  }
  static testing::AssertionResult finds(const Json& report, const std::string& name, const std::string& state,
                                        const std::string& words) {
    const Json one = finding(report, name);
    if (one["state"] != state) return testing::AssertionFailure() << report;
    return says(one["found"].get<std::string>() + " " + one["mend"].get<std::string>(), words);
  }

  UniqueFd input_;
  std::unique_ptr<Child> program_;
};

TEST_F(CheckProgram, SeesTheDropInDriverAndTheRealOneBehindIt) {
  const Json alone = check(start({shim()}));
  EXPECT_TRUE(finds(alone, "drop_in_driver", "ok", shim()));
  EXPECT_EQ(alone["ok"], true) << alone;
  const Json both = check(start({shim(), real()}, {{"GPUMEM_LIMIT", "1GiB"}}));
  EXPECT_TRUE(finds(both, "drop_in_driver", "ok", "passes calls on to " + real()));
  EXPECT_TRUE(finds(both, "environment", "ok", "GPUMEM_LIMIT=1GiB"));
  ASSERT_EQ(both["drivers"].size(), 2U);
}

TEST_F(CheckProgram, SeesAProgramThatUsesTheRealDriverAlone) {
  const Json plain = check(start({real()}));
  EXPECT_TRUE(finds(plain, "drop_in_driver", "fail", real()));
  EXPECT_TRUE(finds(plain, "drop_in_driver", "fail", "start it by gpumem run"));
  EXPECT_EQ(plain["ok"], false);
  const Json led = check(start({real()}, {{"GPUMEM_JOB", "7"}}));
  EXPECT_TRUE(finds(led, "drop_in_driver", "fail", "a library path of its own: gpumem run --preload"));
  EXPECT_TRUE(finds(led, "drop_in_driver", "fail", "an absolute path: gpumem reserve"));
}

TEST_F(CheckProgram, NamesPartsThatCannotBeSeen) {
  const Json report = check(start({}));
  EXPECT_TRUE(
      finds(report, "drop_in_driver", "warn", "linked with the driver statically, which cannot be seen"));
  EXPECT_TRUE(finds(report, "session", "warn", "has none of this process"));
  EXPECT_TRUE(report["drivers"].empty());
}

TEST_F(CheckProgram, SeesASecondDriverInANamespaceOfItsOwn) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a sanitized library loads into no namespace of its own";
#endif
  const Json real_twice = check(start({shim(), real(), "apart:" + real()}));
  EXPECT_TRUE(finds(real_twice, "second_driver", "fail", "loaded 2 times"));
  const Json shim_twice = check(start({shim(), "apart:" + shim()}));
  EXPECT_TRUE(finds(shim_twice, "second_driver", "warn", "loaded 2 times"));
  const std::string copy = folder_ / "libcuda.so.1";
  std::filesystem::copy_file(real(), copy);
  const Json several = check(start({shim(), real(), "apart:" + copy}));
  EXPECT_TRUE(finds(several, "second_driver", "fail", "several real drivers are mapped"));
}

TEST_F(CheckProgram, SeesAFileThatIsNoLongerThere) {
  const std::string copy = folder_ / "libcuda.so.1";
  std::filesystem::copy_file(shim(), copy);
  const pid_t pid = start({copy});
  std::filesystem::remove(copy);
  EXPECT_TRUE(finds(check(pid), "drop_in_driver", "fail", "cannot be read"));
}

TEST_F(CheckProgram, ShowsMemoryLentByTheBroker) {
  ClientProcess client(broker_.folder());
  EXPECT_TRUE(client.connect().at("ok") && client.open("a").at("ok"));
  EXPECT_TRUE(client.grow("a", mebibytes(16)).at("ok"));
  const Json declared{{"do", "charge"}, {"device", device()}, {"bytes", mebibytes(32).count}};
  EXPECT_TRUE(client.ask(declared).at("ok"));
  const Json report = check(client.pid());
  EXPECT_EQ(report["charged"], mebibytes(16).count);
  EXPECT_EQ(report["declared"], mebibytes(32).count);
  ASSERT_EQ(report["sessions"].size(), 1U);
  EXPECT_TRUE(finds(report, "session", "ok", "1 slice, 16MiB lent, 32MiB charged besides"));
}

TEST_F(CheckProgram, ShowsMemoryHeldPastTheBroker) {
  const auto held_by = [&](Bytes bytes) {
    const Child holder({.program = test_client_program(),
                        .arguments = {"hold", broker_.driver_folder(), std::to_string(bytes.count)}});
    Json report;
    EXPECT_TRUE(eventually([&] {
      report = check(holder.pid());
      return report["past_broker"].get<std::uint64_t>() >= bytes.count;
    })) << report;
    return report;
  };
  const Json much = held_by(mebibytes(48));
  EXPECT_TRUE(finds(much, "past_broker", "fail", "held past the broker"));
  EXPECT_EQ(much["ok"], false);
  EXPECT_TRUE(finds(held_by(mebibytes(16)), "past_broker", "ok", "which allows 40MiB for a context"));
}

TEST_F(CheckProgram, SaysThatThereIsNoProcessOrThatItMayNotLook) {
  EXPECT_TRUE(finds(check(0x7fff'fff0), "process", "fail", "there is no process"));
  for (const char* none : {"-1", "0", "abc", "", "1x", "99999999999"}) {
    const Outcome outcome = gpumem({"check", "--program", none});
    EXPECT_EQ(outcome.status, 2) << none;
    EXPECT_TRUE(says(outcome.output, "'" + std::string(none) + "' is not the number of a process"));
  }
  if (::geteuid() != 0) GTEST_SKIP() << "only root can ask as another user";
  const pid_t pid = start({shim()});
  RunningCli asking({"check", "--program", std::to_string(pid)}, with({}), test_user(10'001));
  EXPECT_EQ(asking.wait(), 1);
  EXPECT_TRUE(says(asking.said(), "you may not read /proc/" + std::to_string(pid) + "/maps"));
}

TEST_F(CheckProgram, TellsThatAProcessHasEndedAndIsNotWaitedFor) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(finds(check(pid), "process", "fail", "has ended; its parent has not noticed yet"));
  ::waitpid(pid, nullptr, 0);
}

TEST_F(CheckProgram, WithoutABrokerTellsTheRest) {
  const Outcome outcome =
      gpumem({"check", "--program", std::to_string(start({shim()})), "--runtime-dir", "/nowhere"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(says(outcome.output, "drop in driver"));
  EXPECT_TRUE(says(outcome.output, "no broker at /nowhere"));
}

// ---- The text of /proc/PID/maps ----

TEST(MappedDrivers, AreFoundByTheNamesOfTheirFiles) {
  const auto drivers = cli::drivers_in(
      "55d0-55d1 r--p 00000000 08:01 1 /usr/bin/python3\n"
      "7f00-7f01 r--p 00000000 08:01 2 /a folder/libcuda.so.570.86\n"
      "7f01-7f02 r-xp 00001000 08:01 2 /a folder/libcuda.so.570.86\n"
      "7f10-7f11 r--p 00000000 08:01 3 /usr/lib/libcudart.so.12\n"
      "7f20-7f21 r--p 00000000 08:01 4 /usr/lib/libnvidia-ml.so.1\n"
      "7f30-7f31 rw-p 00000000 00:00 0 \n"
      "7f40-7f41 r--p 00000000 08:01 2 /a folder/libcuda.so.570.86\n"
      "7f41-7f42 r-xp 00001000 08:01 2 /a folder/libcuda.so.570.86\n"
      "7f42-7f43 r-xp 00002000 08:01 2 /a folder/libcuda.so.570.86\n"
      "no mapping\n"
      "7f50-7f51 r--p 00000000 08:01 5 [vdso]");
  ASSERT_EQ(drivers.size(), 2U);
  EXPECT_EQ(drivers[0].path, "/a folder/libcuda.so.570.86");
  EXPECT_EQ(drivers[0].copies, 2);
  EXPECT_FALSE(drivers[0].is_management);
  EXPECT_EQ(drivers[1].path, "/usr/lib/libnvidia-ml.so.1");
  EXPECT_TRUE(drivers[1].is_management);
}

// A driver that this process has mapped from a file of this length with the drop-in's mark at its end.
std::optional<bool> is_drop_in(std::uintmax_t length, std::string_view mark) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "libcuda.so.1";
  write_file(file, "driver");
  std::filesystem::resize_file(file, length - mark.size());
  std::ofstream(file, std::ios::app) << mark;
  const UniqueFd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  void* const mapped = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, opened.get(), 0);
  EXPECT_NE(mapped, MAP_FAILED);
  const auto drivers = cli::mapped_drivers(::getpid());
  ::munmap(mapped, 4096);
  if (!drivers) return std::nullopt;
  const auto found = std::ranges::find(*drivers, file.string(), &cli::MappedDriver::path);
  EXPECT_NE(found, drivers->end());
  return found == drivers->end() ? std::nullopt : found->is_drop_in;
}

TEST(MappedDrivers, AreKnownByTheirFilesUnlessThoseAreNoDrivers) {
  const std::string mark("gpumem_shim_version\0", 20);
  EXPECT_EQ(is_drop_in(4096, ""), false);
  for (const std::uintmax_t length : {4096U, (1U << 20) + 7, 3U << 20})
    EXPECT_EQ(is_drop_in(length, mark), true);
  EXPECT_EQ(is_drop_in(std::uintmax_t{1} << 40, mark), std::nullopt) << "nobody reads through so much";
}

}  // namespace
}  // namespace gpumem::test
