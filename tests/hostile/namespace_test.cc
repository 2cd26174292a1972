// Clients of other PID namespaces.

#include <fcntl.h>
#include <sys/file.h>

#include "sim/machine/machine.h"
#include "tests/integration/fixture.h"
#include "tests/support/raw_lane.h"

namespace gpumem::test {
namespace {

// Programs that run in a PID namespace of their own, as their first process's child.
ChildOptions in_own_namespace(const std::filesystem::path& program, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--pid", "--fork", "--kill-child", "--mount-proc", program.string()});
  return {.program = "/usr/bin/unshare", .arguments = std::move(arguments), .environment = {}, .user = {}};
}

bool has_unshare() { return ::geteuid() == 0 && std::filesystem::exists("/usr/bin/unshare"); }

struct InnerClient : BrokerTest {
  void SetUp() override {
    if (!has_unshare()) GTEST_SKIP() << "only root can make PID namespaces, with unshare(1)";
  }
};

TEST_F(InnerClient, IsNamedByItsPidHereAndSeenToEnd) {
  ChildOptions options = in_own_namespace(test_client_program(), {"storm", "1"});
  options.environment = {{"GPUMEM_RUNTIME_DIR", broker_.folder()}};
  Child client(options);
  EXPECT_TRUE(eventually([&] { return !broker_.sessions().empty() && broker_.sessions()[0].pid() != 0; }));
  client.kill();
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
}

// The broker in a namespace of its own, its clients outside: it has no number for them.
struct OuterClient : testing::Test {
  explicit OuterClient(std::vector<std::string> more = {}) : arguments_(std::move(more)) {}
  void SetUp() override {
    if (!has_unshare()) GTEST_SKIP() << "only root can make PID namespaces, with unshare(1)";
    arguments_.insert(arguments_.end(), {"--simulate", "1x256MiB", "--runtime-dir", run()});
    start();
  }
  void start() {
    const UniqueFd log(::open((folder_ / "log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    ChildOptions options = in_own_namespace(gpumemd_program(), arguments_);
    options.output = log.get();
    broker_ = std::make_unique<Child>(options);
    EXPECT_TRUE(eventually([&] {
      auto monitor = cli::Monitor::connect(run());
      return monitor && monitor->status();
    })) << log_text();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    broker_->kill();
    static_cast<void>(sim::remove_machine(run() + "/driver"));
  }
  // A broker lives and has the folder.
  bool is_locked() const {
    const UniqueFd lock(::open((run() + "/gpumemd.lock").c_str(), O_RDWR | O_CLOEXEC));
    return !lock.valid() || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
  }
  std::string run() const { return folder_ / "run"; }
  std::string log_text() const { return read_file(folder_ / "log"); }
  std::uint64_t sessions() const { return cli::Monitor::connect(run())->status()->sessions(); }
  bool whole() const {
    const auto status = cli::Monitor::connect(run())->status();
    return status->sessions() == 0 && status->devices(0).free() == status->devices(0).pool();
  }

  std::vector<std::string> arguments_;
  TemporaryFolder folder_;
  std::unique_ptr<Child> broker_;
};

TEST_F(OuterClient, IsWatchedThoughItHasNoPidHere) {
  ClientProcess client(run());
  EXPECT_TRUE(succeeded(client.connect()));
  EXPECT_TRUE(succeeded(client.open("a")));
  EXPECT_TRUE(succeeded(client.grow("a", mebibytes(64))));
  EXPECT_EQ(sessions(), 1U);
  client.kill();
  EXPECT_TRUE(eventually([&] { return whole(); })) << "its end is seen, so its memory comes back";
}

TEST_F(OuterClient, IsListedWithoutAPid) {
  ClientProcess client(run());
  EXPECT_TRUE(succeeded(client.connect()));
  const auto listed = cli::Monitor::connect(run())->sessions();
  ASSERT_TRUE(listed);
  ASSERT_EQ(listed->sessions_size(), 1);
  EXPECT_EQ(listed->sessions(0).pid(), 0);
  EXPECT_EQ(listed->sessions(0).uid(), ::geteuid());
}

// Nothing proves that whoever comes back is the same process.
TEST_F(OuterClient, LosesItsSessionWithTheBrokerAndStaysChargedForWhatItHas) {
  ClientProcess client(run());
  EXPECT_TRUE(succeeded(client.connect()));
  EXPECT_TRUE(succeeded(client.open("a")));
  EXPECT_TRUE(succeeded(client.grow("a", mebibytes(64))));
  broker_->kill();
  ASSERT_TRUE(eventually([&] { return !is_locked(); })) << "the broker ends shortly after unshare(1)";
  start();
  EXPECT_TRUE(failed_with(client.grow("a", mebibytes(96)), "UNAUTHENTICATED"));
  EXPECT_FALSE(whole());
  EXPECT_TRUE(succeeded(client.check("a", 0))) << "its memory stays usable";
  client.kill();
  EXPECT_TRUE(eventually([&] { return whole(); }));
}

TEST_F(OuterClient, ThatBreaksTheProtocolIsNamedAsOneThatCannotBeEnded) {
  RawLane lane(run());
  EXPECT_TRUE(lane.send("nonsense"));
  EXPECT_TRUE(lane.is_closed_by_broker());
  EXPECT_TRUE(eventually([&] {
    return log_text().find("a process of another PID namespace (uid 0), which cannot be ended") !=
           std::string::npos;
  })) << log_text();
}

struct OuterClientOfOldKernel : OuterClient {
  OuterClientOfOldKernel() : OuterClient({"--without-peer-pidfd"}) {}
};

TEST_F(OuterClientOfOldKernel, IsServedAndNamedAsOneThatCannotBeEnded) {
  ClientProcess client(run());
  EXPECT_TRUE(succeeded(client.connect()));
  EXPECT_TRUE(succeeded(client.open("a")));
  EXPECT_TRUE(succeeded(client.grow("a", mebibytes(64))));
  EXPECT_EQ(client.leave(), 0);
  EXPECT_TRUE(eventually([&] { return whole(); }));
}

}  // namespace
}  // namespace gpumem::test
