// The broker's lock, and its folders, in somebody else's hands.
#include <fcntl.h>

#include "sim/machine/machine.h"
#include "tests/hostile/as_user.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

struct LockFile : BrokerTest {
  LockFile() : BrokerTest({.config = shared()}) {}
  std::string path() const { return broker_.folder() + "/gpumemd.lock"; }
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
    std::filesystem::remove(broker_.folder() + "/journal");
    write_file(broker_.folder() + "/journal", "what never was");
  }
  const Outcome outcome = start();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("every user may write to " + broker_.folder()), std::string::npos)
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

}  // namespace
}  // namespace gpumem::test
