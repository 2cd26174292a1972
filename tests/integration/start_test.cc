// Messages and exit statuses of gpumemd when it cannot start, and when it only checks.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "proto/lane.h"
#include "sim/machine/machine.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

struct Start : testing::Test {
  ~Start() override { static_cast<void>(sim::remove_machine(folder_ / "run" / "driver")); }

  Outcome gpumemd(std::vector<std::string> arguments, std::optional<User> user = {}) {
    return run(
        {.program = gpumemd_program(), .arguments = std::move(arguments), .environment = {}, .user = user});
  }
  // Over one simulated device of 256 MiB, with the text as its configuration.
  Outcome configured(const std::string& text, std::vector<std::string> more = {}) {
    write_file(folder_ / "c.toml", text);
    more.insert(more.end(),
                {"--simulate", "1x256MiB", "--runtime-dir", run_, "--config", folder_ / "c.toml"});
    return gpumemd(std::move(more));
  }

  TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
};

TEST_F(Start, WithoutADriverNamesTheMissingLibrary) {
  const Outcome outcome = gpumemd({"--driver-dir", folder_.path().string(), "--runtime-dir", run_});
  EXPECT_TRUE(says(outcome, 1, "the NVIDIA driver was not found"));
  EXPECT_TRUE(says(outcome, 1, "libcuda.so.1"));
  EXPECT_FALSE(std::filesystem::exists(run_ + "/" + kLaneSocketName));
}

TEST_F(Start, WithABadConfigurationNamesTheLine) {
  EXPECT_TRUE(says(configured("[broker]\nreserv = 1\n"), 1, "c.toml:2:1: unknown key 'reserv' in [broker]"));
  EXPECT_TRUE(says(configured("[broker\n"), 1, "c.toml:1:"));
  EXPECT_TRUE(says(configured("[broker]\nreserve = \"lots\"\n"), 1, "c.toml:2:"));
  EXPECT_TRUE(
      says(configured("[broker]\nsocket_group = \"no-such-group\"\n"), 1, "no group 'no-such-group'"));
}

TEST_F(Start, WithoutRoomForItsJournalSaysWhatToDo) {
  const Outcome outcome = run({.program = gpumemd_program(),
                               .arguments = {"--simulate", "1x256MiB", "--runtime-dir", run_},
                               .environment = {{"GPUMEM_CRASH_POINT", "broker.journal.rewrite=fail"}},
                               .user = {}});
  EXPECT_TRUE(says(outcome, 1,
                   "journal.new: cannot write: No space left on device; make room in " + run_ + "/private" +
                       " and start the broker again: clients keep their memory meanwhile"));
}

TEST_F(Start, WithoutItsConfigurationFileSaysWhich) {
  EXPECT_TRUE(says(gpumemd({"--config", "/nowhere/g.toml", "--simulate", "1x64MiB", "--runtime-dir", run_}),
                   1, "cannot read /nowhere/g.toml: No such file"));
  EXPECT_TRUE(
      says(gpumemd({"--config", folder_.path().string(), "--simulate", "1x64MiB", "--runtime-dir", run_}), 1,
           "cannot read " + folder_.path().string()))
      << "a folder";
}

TEST_F(Start, WithGuaranteesThatExceedThePoolNamesTenantAndFigures) {
  const Outcome outcome = configured(
      "[broker]\nreserve = \"100%\"\n[[tenant]]\nname = \"ann\"\nuser = 1\nguarantee = \"200MiB\"\n"
      "[[tenant]]\nname = \"bob\"\nuser = 2\nguarantee = \"100MiB\"\n");
  EXPECT_TRUE(says(outcome, 1, "tenant 'bob' asks for 100MiB on top of 200MiB"));
  EXPECT_TRUE(says(outcome, 1, "pool of 256MiB"));
}

TEST_F(Start, WithMoreReservedThanThereIsSaysSo) {
  EXPECT_TRUE(says(configured("[broker]\nreserve = \"300MiB\"\n"), 1, "cannot reserve 300MiB"));
  EXPECT_TRUE(says(configured("[broker]\nreserve = \"all-but 300MiB\"\n"), 1, "empty pool"));
}

TEST_F(Start, WhereAnotherBrokerServesNamesIt) {
  BrokerProcess first;
  const Outcome outcome = gpumemd({"--simulate", "1x64MiB", "--runtime-dir", first.folder()});
  EXPECT_TRUE(says(outcome, 1, "another gpumemd (pid " + std::to_string(first.pid()) + ") serves"));
  EXPECT_TRUE(first.status().devices_size() == 1) << "which goes on";
  EXPECT_EQ(first.device().pool(), first.device().free());
}

TEST_F(Start, WhereItMayNotWriteSaysSo) {
  GPUMEM_NEEDS_ROOT();
  const User user = test_user(10'001);
  EXPECT_TRUE(says(gpumemd({"--simulate", "1x64MiB", "--runtime-dir", run_}, user), 1, "Permission denied"));
  std::filesystem::create_directory(run_);
  EXPECT_TRUE(says(gpumemd({"--simulate", "1x64MiB", "--runtime-dir", run_}, user), 1, "Permission denied"));
}

TEST_F(Start, InAFolderWithTooLongANameSaysHowLongItMayBe) {
  EXPECT_TRUE(
      says(gpumemd({"--simulate", "1x64MiB", "--runtime-dir", (folder_ / std::string(100, 'x')).string()}), 1,
           "107 bytes at most"));
}

TEST_F(Start, WhereAFileIsInTheWayLeavesItAlone) {
  std::filesystem::create_directory(run_);
  write_file(run_ + "/" + kApiSocketName, "precious");
  EXPECT_TRUE(says(gpumemd({"--simulate", "1x64MiB", "--runtime-dir", run_}), 1, "is no socket"));
  EXPECT_EQ(read_file(run_ + "/" + kApiSocketName), "precious");
}

TEST_F(Start, WithABadMachineSaysHowToSpellOne) {
  EXPECT_TRUE(says(gpumemd({"--simulate", "many", "--runtime-dir", run_}), 1, "2x24GiB"));
}

TEST_F(Start, WithWrongUsageEndsWithTwo) {
  EXPECT_EQ(gpumemd({"--no-such-option"}).status, 2);
  EXPECT_EQ(gpumemd({"--simulate", "1x64MiB", "--driver-dir", "/x"}).status, 2);
  EXPECT_EQ(gpumemd({"--log-level", "loud"}).status, 2);
  EXPECT_EQ(gpumemd({"stray"}).status, 2);
  EXPECT_EQ(gpumemd({"--help"}).status, 0);
  EXPECT_TRUE(says(gpumemd({"--version"}), 0, "gpumemd " GPUMEM_VERSION));
}

TEST_F(Start, CheckedConfigurationIsToldInFigures) {
  const Outcome outcome = configured(
      "[broker]\nreserve = \"all-but 32MiB\"\n[[tenant]]\nname = \"ann\"\nuser = 1\nguarantee = \"25%\"\n"
      "[default]\nlimit = \"50%\"\n",
      {"--check-config"});
  EXPECT_TRUE(says(outcome, 0, "pool 224MiB of 256MiB"));
  EXPECT_TRUE(says(outcome, 0, "tenant 'ann' on GPU-"));
  EXPECT_TRUE(says(outcome, 0, "guarantee 56MiB, limit 224MiB"));
  EXPECT_TRUE(says(outcome, 0, "every other user on GPU-"));
  EXPECT_FALSE(std::filesystem::exists(run_)) << "nothing is claimed";
}

TEST_F(Start, CheckedConfigurationThatIsWrongEndsWithOne) {
  EXPECT_TRUE(says(configured("[default]\nlimit = 1.5\n", {"--check-config"}), 1, "c.toml:2:"));
  EXPECT_TRUE(says(configured("[broker]\nsocket_group = \"no-such-group\"\n", {"--check-config"}), 1,
                   "no-such-group"));
  EXPECT_TRUE(says(configured("[broker]\nreserve = \"300MiB\"\n", {"--check-config"}), 1, "cannot reserve"));
}

TEST_F(Start, CheckedConfigurationNeedsNoDriver) {
  const std::vector<std::string> check{
      "--check-config", "--config", folder_ / "c.toml", "--driver-dir", folder_.path(),
      "--runtime-dir",  run_};
  write_file(folder_ / "c.toml", "[default]\nrefuse = true\n");
  EXPECT_TRUE(says(gpumemd(check), 0, "could not be held against the GPUs"));
  write_file(folder_ / "c.toml", "[[tenant]]\nname = \"x\"\nuser = \"no-such-user\"\n");
  EXPECT_TRUE(says(gpumemd(check), 1, "tenant 'x': there is no user 'no-such-user' on this machine"));
}

TEST_F(Start, InAFolderWithAnOddNameServesThere) {
  const std::string odd = folder_ / "a b%41#?";
  Child broker({.program = gpumemd_program(),
                .arguments = {"--simulate", "1x64MiB", "--runtime-dir", odd},
                .environment = {},
                .user = {}});
  EXPECT_TRUE(eventually([&] {
    auto monitor = cli::Monitor::connect(odd);
    return !broker.running() || (monitor && monitor->status());
  }));
  EXPECT_TRUE(broker.running());
  broker.signal(SIGTERM);
  EXPECT_EQ(broker.wait(), 0);
}

}  // namespace
}  // namespace gpumem::test
