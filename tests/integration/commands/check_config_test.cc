// `gpumemd --check-config`, and the check before an upgrade, beside a broker that holds its pool: they say
// what the next broker will find, not what is free now.
#include <gmock/gmock.h>

#include "sim/machine/machine.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

using testing::HasSubstr;

constexpr const char* kThreeQuarters = "[broker]\nreserve = \"75%\"\n";
// 150 MiB are more than the 64 that are free beside the pool. Of the user that the test's clients are.
std::string guarantee_of(const char* amount) {
  return "[[tenant]]\nname = \"ann\"\nuser = " + std::to_string(::geteuid()) + "\nguarantee = \"" + amount +
         "\"\n";
}
// As much of the 256 MiB as one that starts alone has.
constexpr const char* kWholePool = "pool 192MiB of 256MiB";

// A device of 256 MiB that is there before the broker and after it, as GPUs are.
struct CheckConfig : testing::Test {
  CheckConfig() {
    EXPECT_TRUE(sim::create_machine(folder_ / "driver", "1x256MiB", sim_libraries()));
    write_file(config_, kThreeQuarters + guarantee_of("150MiB"));
  }
  ~CheckConfig() override {
    broker_.reset();
    static_cast<void>(sim::remove_machine(folder_ / "driver"));
  }

  std::vector<std::string> arguments(std::vector<std::string> more = {}) const {
    more.insert(more.end(),
                {"--driver-dir", folder_ / "driver", "--runtime-dir", run_, "--config", config_.string()});
    return more;
  }
  Outcome gpumemd(const std::string& option) {
    return run({.program = gpumemd_program(), .arguments = arguments({option})});
  }
  void start_broker() {
    broker_ = std::make_unique<Child>(ChildOptions{.program = gpumemd_program(), .arguments = arguments()});
    EXPECT_TRUE(eventually([&] {
      auto monitor = cli::Monitor::connect(run_);
      return !broker_->running() || (monitor && monitor->status());
    }));
    EXPECT_TRUE(broker_->running());
  }
  std::uint64_t pool() const {
    auto monitor = cli::Monitor::connect(run_);
    const auto status = monitor ? monitor->status() : Error{};
    EXPECT_TRUE(status);
    return status ? status->devices(0).pool() : 0;
  }
  void expect_accepted(const std::string& words) {
    const Outcome outcome = gpumemd("--check-config");
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(words));
    EXPECT_THAT(outcome.output, HasSubstr(kWholePool));
  }
  std::unique_ptr<ClientProcess> client_with(Bytes bytes) {
    auto client = std::make_unique<ClientProcess>(run_);
    EXPECT_TRUE(succeeded(client->connect()));
    EXPECT_TRUE(succeeded(client->open("a")));
    EXPECT_TRUE(succeeded(client->grow("a", bytes)));
    EXPECT_TRUE(succeeded(client->write("a", 7)));
    return client;
  }

  TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
  const std::filesystem::path config_ = folder_ / "c.toml";
  std::unique_ptr<Child> broker_;
};

TEST_F(CheckConfig, WithoutABrokerSaysSo) { expect_accepted("No broker serves " + run_ + "."); }

TEST_F(CheckConfig, WarnsOfALimitThatIsMoreThanThePool) {
  write_file(config_, kThreeQuarters + std::string("[default]\nlimit = \"160GiB\"\n"));
  expect_accepted("the default: limit 160GiB is more than the pool of 192MiB");
}

TEST_F(CheckConfig, CountsMemoryOfTheRunningBroker) {
  start_broker();
  expect_accepted("runs as pid " + std::to_string(broker_->pid()) + ". What it has lent stays");
  auto client = client_with(mebibytes(32));
  expect_accepted("What it has lent stays");
  EXPECT_EQ(client->leave(), 0);
}

TEST_F(CheckConfig, BesideABrokerRefusesAsTheNextOneWould) {
  start_broker();
  write_file(config_, kThreeQuarters + guarantee_of("200MiB"));
  const Outcome outcome = gpumemd("--check-config");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, HasSubstr("192MiB"));
  EXPECT_EQ(gpumemd("--upgrade").status, 1);
  EXPECT_EQ(pool(), mebibytes(192).count) << "the old one goes on";
}

TEST_F(CheckConfig, BesideABrokerCountsClaimsOfPods) {
  write_file(config_, kThreeQuarters);
  const auto machine = sim::load_machine(folder_ / "driver");
  ASSERT_TRUE(machine);
  std::filesystem::create_directories(run_ + "/private/state");
  const std::string bytes = std::to_string(mebibytes(150).count);
  write_file(run_ + "/private/state/claims.toml",
             "version = 1\n[[claim]]\nuid = \"c1\"\nnamespace = \"lab\"\nname = \"big\"\n"
             "[[claim.pod]]\nuid = \"11111111-2222-3333-4444-555555555555\"\nnamespace = \"lab\"\n"
             "name = \"p\"\ntenant = \"pod lab/p\"\n[[claim.amount]]\ndevice = \"" +
                 sim::to_string(machine->device_uuid(0)) + "\"\nguarantee = \"" + bytes + "\"\nlimit = \"" +
                 bytes + "\"\n");
  start_broker();
  expect_accepted("tenant 'pod lab/p'");
  EXPECT_EQ(gpumemd("--upgrade").status, 0);
  EXPECT_EQ(pool(), mebibytes(192).count);
}

TEST_F(CheckConfig, AfterABrokerCountsItsLoans) {
  start_broker();
  auto client = client_with(mebibytes(160));
  broker_->kill();
  expect_accepted("No broker serves " + run_ + ". What the one before has lent stays");
  start_broker();
  EXPECT_EQ(pool(), mebibytes(192).count) << "and so it is";
  EXPECT_TRUE(succeeded(client->check("a", 7)));
  EXPECT_EQ(client->leave(), 0);
}

TEST_F(CheckConfig, SaysThatLoansAreUnknown) {
  start_broker();
  auto client = client_with(mebibytes(160));
  broker_->kill();
  write_file(run_ + "/private/journal", "no journal");
  const Outcome outcome = gpumemd("--check-config");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("What is lent is not known, and counts as used by others"));
  EXPECT_THAT(outcome.output, HasSubstr("of the pool are missing at present")) << "96 MiB are free";
  EXPECT_THAT(outcome.output, HasSubstr(run_ + "/private/journal"));
  EXPECT_TRUE(std::filesystem::exists(run_ + "/private/journal")) << "nothing is put aside";
}

TEST_F(CheckConfig, WithoutAJournalSaysThatTheBrokersMemoryIsUnknown) {
  start_broker();
  std::filesystem::remove(run_ + "/private/journal");
  const Outcome outcome = gpumemd("--check-config");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("It has no journal. What it has lent is not known"));
}

TEST_F(CheckConfig, ThatIsAskedOftenLeavesTheJournalAlone) {
  start_broker();
  auto client = client_with(mebibytes(32));
  const std::string journal = read_file(run_ + "/private/journal");
  for (int i = 0; i < 10; ++i) expect_accepted("What it has lent stays");
  EXPECT_EQ(read_file(run_ + "/private/journal"), journal);
  EXPECT_EQ(client->leave(), 0);
}

TEST_F(CheckConfig, UpgradeKeepsAGuaranteeOfMoreThanIsFreeBesideTheBroker) {
  start_broker();
  auto client = client_with(mebibytes(32));
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = gpumemd("--upgrade");
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_EQ(pool(), mebibytes(192).count);
  }
  EXPECT_TRUE(succeeded(client->check("a", 7)));
  EXPECT_EQ(client->leave(), 0);
}

TEST(CheckConfigOfASimulatedMachine, IsAboutTheOneThatIsLent) {
  const BrokerProcess broker;
  const Outcome outcome = run({.program = gpumemd_program(),
                               .arguments = {"--check-config", "--simulate", "1x256MiB", "--runtime-dir",
                                             broker.folder(), "--config", broker.config_file().string()}});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.output, HasSubstr(broker.device().uuid()));
  EXPECT_TRUE(sim::load_machine(broker.driver_folder())) << "and it stays";
}

}  // namespace
}  // namespace gpumem::test
