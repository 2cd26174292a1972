// A machine as its administrator has it: accounts come and go, sockets are for certain groups, a driver is
// not there yet.
#include <gmock/gmock.h>

#include <csignal>

#include "sim/machine/machine.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

using testing::HasSubstr;

Outcome gpumem_status(const std::string& folder) {
  return run({.program = cli_program(), .arguments = {"--runtime-dir", folder, "status"}});
}

constexpr const char* kGone = "[[tenant]]\nname = \"gone\"\nuser = \"no-such-user\"\nguarantee = \"32MiB\"\n";

TEST(AnAdministratorsDay, AnAccountThatIsMissingKeepsNobodyElseFromMemory) {
  BrokerProcess broker({.config = std::string(kSomeSpare) + kGone});
  EXPECT_TRUE(eventually([&] {
    return broker.log().find("tenant 'gone' waits: this machine has no user 'no-such-user'") !=
           std::string::npos;
  }));
  ClientProcess client(broker.folder());
  EXPECT_TRUE(succeeded(client.connect()));
  EXPECT_TRUE(succeeded(client.open("a")));
  EXPECT_TRUE(succeeded(client.grow("a", mebibytes(64))));
  EXPECT_EQ(broker.tenant("gone").guarantee(), mebibytes(32).count);
  EXPECT_EQ(client.leave(), 0);
}

TEST(AnAdministratorsDay, AnAccountThatWasDeletedIsNoMistakeOfTheFile) {
  BrokerProcess broker({.config = kSomeSpare});
  const std::vector<std::string> check{"--check-config", "--simulate", "1x256MiB",          "--runtime-dir",
                                       broker.folder(),  "--config",   broker.config_file()};
  write_file(broker.config_file(), std::string(kSomeSpare) + kGone);
  EXPECT_EQ(run({.program = gpumemd_program(), .arguments = check}).status, 1);
  EXPECT_EQ(broker.stop(), 0);
  write_file(broker.folder() + "/private/state/accounts",
             "user 'no-such-user'\n");  // as a broker that found it leaves it
  broker.start_again(std::string(kSomeSpare) + kGone);
  broker.reload(std::string(kSomeSpare) + kGone + "limit = \"64MiB\"\n");
  EXPECT_EQ(broker.tenant("gone").limit(), mebibytes(64).count);
  const Outcome checked = run({.program = gpumemd_program(), .arguments = check});
  EXPECT_EQ(checked.status, 0) << checked.output;
  EXPECT_THAT(checked.output, HasSubstr("tenant 'gone' waits"));
}

// The broker is no member of the group, and may not give files away.
TEST(AnAdministratorsDay, MetricsAreForTheMembersOfTheirGroup) {
  GPUMEM_NEEDS_ROOT();
  constexpr gid_t kReaders = 12'345, kOthers = 12'346;
  BrokerProcess broker({.config = "[metrics]\ngroup = 12345\n", .user = kAnn});
  const auto can_read = [&](gid_t group) {
    const std::string path = broker.folder() + "/metrics.sock";
    return run({.program = "/usr/bin/python3",
                .arguments = {"-c", "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])",
                              path},
                .user = User{kBob.uid, group}})
               .status == 0;
  };
  EXPECT_TRUE(can_read(kReaders));
  EXPECT_FALSE(can_read(kOthers));
  broker.reload("[metrics]\ngroup = 12346\n");
  EXPECT_TRUE(can_read(kOthers));
  EXPECT_FALSE(can_read(kReaders));
}

struct MachineWithoutDriver : testing::Test {
  MachineWithoutDriver() { std::filesystem::create_directory(folder_ / "driver"); }
  ~MachineWithoutDriver() override { static_cast<void>(sim::remove_machine(folder_ / "driver")); }

  // Under a service manager, which restarts what ends.
  std::unique_ptr<Child> start() {
    return std::make_unique<Child>(
        ChildOptions{.program = gpumemd_program(),
                     .arguments = {"--driver-dir", folder_ / "driver", "--runtime-dir", run_},
                     .environment = {{"NOTIFY_SOCKET", folder_ / "nobody"}}});
  }
  bool ends_with(int status, const std::string& words) const {
    const Outcome outcome = gpumem_status(run_);
    return outcome.status == status && outcome.output.find(words) != std::string::npos;
  }
  bool waits() const { return ends_with(3, "waits for the driver: the NVIDIA driver was not found"); }

  TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
};

TEST_F(MachineWithoutDriver, HasABrokerThatWaitsForIt) {
  auto broker = start();
  EXPECT_TRUE(eventually([&] { return waits(); })) << gpumem_status(run_).output;
  broker->signal(SIGHUP);
  EXPECT_TRUE(waits()) << "a reload does not end it";
  ASSERT_TRUE(sim::create_machine(folder_ / "driver", "1x64MiB", sim_libraries()));
  EXPECT_EQ(broker->wait(), 1) << "another process may open what has come";
  broker = start();
  EXPECT_TRUE(eventually([&] { return ends_with(0, "gpu0"); }));
  broker->signal(SIGTERM);
  EXPECT_EQ(broker->wait(), 0);
}

TEST_F(MachineWithoutDriver, HasABrokerThatCanBeStopped) {
  auto broker = start();
  EXPECT_TRUE(eventually([&] { return waits(); }));
  EXPECT_EQ(run({.program = gpumemd_program(), .arguments = {"--upgrade", "--runtime-dir", run_}}).status, 1);
  EXPECT_TRUE(waits()) << "an upgrade does not end it";
  broker->signal(SIGTERM);
  EXPECT_EQ(broker->wait(), 0);
}

}  // namespace
}  // namespace gpumem::test
