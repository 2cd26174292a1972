// The broker's lock, and its folders, in somebody else's hands.
#include <fcntl.h>
#include <sys/stat.h>

#include "sim/machine/machine.h"
#include "tests/hostile/clients/as_user.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

struct LockFile : BrokerTest {
  LockFile() : BrokerTest({.config = shared()}) {}
  std::string path() const { return broker_.folder() + "/private/gpumemd.lock"; }
};

TEST_F(LockFile, CannotBeOpenedByOthers) {
  GPUMEM_NEEDS_ROOT();
  const AsUser user(10'002, BrokerProcess::kGroup);
  const UniqueFd file(::open(path().c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(file.valid());
}

struct OpenFolder : LockFile {
  // What a broker says that is started there.
  Outcome start(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"--simulate", "1x64MiB", "--runtime-dir", broker_.folder()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run({.program = gpumemd_program(), .arguments = arguments, .environment = {}, .user = {}});
  }
};

TEST_F(OpenFolder, WhereAnybodyForgesAJournalIsRefused) {
  GPUMEM_NEEDS_ROOT();
  broker_.kill();
  std::filesystem::permissions(broker_.folder(), std::filesystem::perms(0777));
  {
    const AsUser user(10'002, BrokerProcess::kGroup);
    std::filesystem::rename(broker_.folder() + "/private", broker_.folder() + "/old");
    std::filesystem::create_directory(broker_.folder() + "/private");
    write_file(broker_.folder() + "/private/journal", "what never was");
  }
  Outcome outcome = start();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("every user may write to " + broker_.folder()), std::string::npos)
      << outcome.output;
  std::filesystem::permissions(broker_.folder(), std::filesystem::perms(0755));
  outcome = start();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find(broker_.folder() + "/private belongs to user 10002"), std::string::npos)
      << outcome.output;
}

TEST_F(OpenFolder, WhereAnybodyForgesQuotasIsRefused) {
  EXPECT_EQ(broker_.stop(), 0);
  const TemporaryFolder state;
  std::filesystem::permissions(state.path(), std::filesystem::perms(01777));
  const Outcome outcome = start({"--state-dir", state.path()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("every user may write to " + state.path().string()), std::string::npos)
      << outcome.output;
}

// In a folder that every user may write to, as /tmp is, another user was there first.
struct ForeignFolder : OpenFolder {
  void SetUp() override {
    GPUMEM_NEEDS_ROOT();
    std::filesystem::permissions(public_.path(), std::filesystem::perms(01777));
  }
  std::string folder() const { return (public_ / "gpumem").string(); }
  static Outcome gpumem(std::vector<std::string> arguments, const std::string& folder) {
    return run({.program = cli_program(),
                .arguments = std::move(arguments),
                .environment = {{"GPUMEM_RUNTIME_DIR", folder}},
                .user = {}});
  }
  TemporaryFolder public_;
};

TEST_F(ForeignFolder, IsNotServedInByRootsBroker) {
  {
    const AsUser user(10'007, BrokerProcess::kGroup);
    std::filesystem::create_directory(folder());
  }
  const Outcome outcome = run({.program = gpumemd_program(),
                               .arguments = {"--simulate", "1x64MiB", "--runtime-dir", folder()},
                               .environment = {},
                               .user = {}});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find(folder() + " belongs to user 10007"), std::string::npos) << outcome.output;
}

struct ForeignBroker : ForeignFolder, testing::WithParamInterface<const char*> {};

TEST_P(ForeignBroker, IsNotTrustedByRootsCommands) {
  const User other = test_user(10'007);
  const std::string config = (public_ / "gpumemd.toml").string();
  write_file(config, kSomeSpare);
  Child broker({.program = gpumemd_program(),
                .arguments = {"--simulate", "1x64MiB", "--runtime-dir", folder(), "--config", config},
                .environment = {},
                .user = other});
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder() + "/api.sock"); }));
  std::filesystem::create_directory_symlink(folder(), public_ / "link");
  ::lchown((public_ / "link").c_str(), 10'007, BrokerProcess::kGroup);
  for (const std::string& where : {folder(), (public_ / "link").string()}) {
    const Outcome outcome = gpumem({GetParam()}, where);
    EXPECT_NE(outcome.status, 0);
    EXPECT_NE(outcome.output.find("who could name any driver to load"), std::string::npos) << outcome.output;
  }
}

// A program that has more rights than its user asks nobody whom its user names.
TEST_F(ForeignFolder, IsNotLookedIntoByASetUserIdProgram) {
  const std::string program = (public_ / "gpumem-copy").string();
  std::filesystem::copy_file(cli_program(), program);
  for (const mode_t mode : {0755, 04755}) {
    ASSERT_EQ(::chmod(program.c_str(), mode), 0);
    const Outcome outcome = run({.program = program,
                                 .arguments = {"status"},
                                 .environment = {{"GPUMEM_RUNTIME_DIR", folder()}},
                                 .user = test_user(10'007)});
    EXPECT_NE(outcome.status, 0);
    EXPECT_EQ(outcome.output.find(folder()) == std::string::npos, mode == 04755) << outcome.output;
  }
}

INSTANTIATE_TEST_SUITE_P(Commands, ForeignBroker, testing::Values("status", "check", "ps"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace gpumem::test
