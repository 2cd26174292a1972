// Clients of other PID namespaces.

#include <signal.h>

#include "tests/integration/ending_config.h"
#include "tests/integration/fixture.h"
#include "tests/support/lanes/raw_lane.h"
#include "tests/support/pid_namespaces.h"

namespace gpumem::test {
namespace {

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

std::string lending_all() {
  return "[broker]\nreserve = \"100%\"\nsocket_group = 10000\n" + std::string(kEndsWhoKeeps);
}

struct InnerBorrower : BrokerTest {
  InnerBorrower() : BrokerTest({.config = ::geteuid() == 0 ? lending_all() : kNoSpare}) {}
  void SetUp() override {
    if (!has_unshare()) GTEST_SKIP() << "only root can make PID namespaces, with unshare(1)";
  }
};

// The first process of a namespace gets no signal that it does not handle, but SIGKILL.
TEST_F(InnerBorrower, ThatKeepsClaimedMemoryIsKilled) {
  ClientProcess bob(broker_.folder(), {.arguments = {"contained", "serve"}});
  EXPECT_TRUE(succeeded(bob.ask({{"do", "raw_connect"}})));
  EXPECT_TRUE(succeeded(bob.ask({{"do", "raw_grow"}, {"bytes", mebibytes(256).count}})));
  EXPECT_TRUE(succeeded(bob.ask({{"do", "raw_map"}})));
  ASSERT_EQ(broker_.sessions().size(), 1U);
  EXPECT_FALSE(broker_.sessions()[0].cannot_be_signalled());
  auto ann = client({}, test_user(10'001));
  EXPECT_TRUE(succeeded(ann->grow("a", mebibytes(64), std::chrono::seconds(30))));
  EXPECT_NE(bob.child().wait(), 0);
  expect_rest_after(*ann);
}

// The broker in a namespace of its own, its clients outside: it has no number for them.
struct OuterClient : testing::Test {
  explicit OuterClient(std::vector<std::string> more = {}, std::string config = kSomeSpare)
      : arguments_(std::move(more)), config_(std::move(config)) {}
  void SetUp() override {
    if (!has_unshare()) GTEST_SKIP() << "only root can make PID namespaces, with unshare(1)";
    broker_ = std::make_unique<BrokerProcess>(
        BrokerOptions{.config = config_, .arguments = arguments_, .program = contained_gpumemd(programs_)});
  }
  void restart() {
    kill_contained(*broker_);
    broker_->start_again();
  }
  std::string run() const { return broker_->folder(); }
  std::uint64_t sessions() const { return broker_->sessions().size(); }
  bool whole() const { return broker_->at_rest(); }

  // The one session is told of as one that cannot be ended, to whoever looks and in the log.
  void expect_named() {
    ASSERT_EQ(broker_->sessions().size(), 1U);
    EXPECT_TRUE(broker_->sessions()[0].cannot_be_signalled());
    RawLane lane(run());
    EXPECT_TRUE(lane.send("nonsense"));
    EXPECT_TRUE(lane.is_closed_by_broker());
    EXPECT_TRUE(eventually([&] {
      return broker_->log().find("a process of another PID namespace (uid 0), which cannot be ended") !=
             std::string::npos;
    })) << broker_->log();
  }

  std::vector<std::string> arguments_;
  std::string config_;
  TemporaryFolder programs_;
  std::unique_ptr<BrokerProcess> broker_;
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

TEST_F(OuterClient, IsNamedAsOneThatCannotBeEnded) {
  ClientProcess client(run());
  EXPECT_TRUE(succeeded(client.connect()));
  expect_named();
}

// 256 MiB, of which ann and cat are promised 64 each. Cat lives beside the broker and can be ended, nobody
// else.
struct OuterBorrower : OuterClient {
  OuterBorrower()
      : OuterClient({}, lending_all() + "[[tenant]]\nname = \"cat\"\nuser = 0\nguarantee = \"64MiB\"\n") {}
};

TEST_F(OuterBorrower, IsLentUnguaranteedMemoryAndNobodyElseIsEndedInItsPlace) {
  ClientProcess cat(run(), {.arguments = {"within", std::to_string(broker_->pid()), "serve"}});
  EXPECT_TRUE(succeeded(cat.connect()));
  EXPECT_TRUE(succeeded(cat.open("a")));
  EXPECT_TRUE(succeeded(cat.grow("a", mebibytes(32))));
  ClientProcess bob(run(), {.user = test_user(10'002)});
  EXPECT_TRUE(succeeded(bob.connect()));
  EXPECT_TRUE(succeeded(bob.open("a")));
  EXPECT_TRUE(failed_with(bob.grow("a", mebibytes(160)), "RESOURCE_EXHAUSTED"));
  EXPECT_TRUE(succeeded(bob.grow("a", mebibytes(128))));
  for (const v1::SessionInfo& one : broker_->sessions())
    EXPECT_EQ(one.cannot_be_signalled(), one.tenant() != "cat") << one.ShortDebugString();
  bob.child().signal(SIGSTOP);  // bob gives nothing back
  ClientProcess ann(run(), {.user = test_user(10'001)});
  EXPECT_TRUE(succeeded(ann.connect()));
  EXPECT_TRUE(succeeded(ann.open("a")));
  EXPECT_TRUE(succeeded(ann.grow("a", mebibytes(64), std::chrono::seconds(10))));
  EXPECT_TRUE(succeeded(cat.grow("a", mebibytes(64), std::chrono::seconds(10))));
  bob.child().signal(SIGCONT);
  for (ClientProcess* one : {&ann, &bob, &cat}) EXPECT_EQ(one->leave(), 0);
  EXPECT_EQ(broker_->log().find("SIGTERM"), std::string::npos) << broker_->log();
  EXPECT_TRUE(eventually([&] { return whole(); }));
}

struct OuterClientOfOldKernel : OuterClient {
  OuterClientOfOldKernel() : OuterClient({"--without-peer-pidfd"}) {}
};

TEST_F(OuterClientOfOldKernel, IsServedAndNamedAsOneThatCannotBeEnded) {
  ClientProcess client(run());
  EXPECT_TRUE(succeeded(client.connect()));
  EXPECT_TRUE(succeeded(client.open("a")));
  EXPECT_TRUE(succeeded(client.grow("a", mebibytes(64))));
  expect_named();
  EXPECT_EQ(client.leave(), 0);
  EXPECT_TRUE(eventually([&] { return whole(); }));
}

// Nothing proves that whoever comes back is the same process.
TEST_F(OuterClientOfOldKernel, LosesItsSessionWithTheBrokerAndStaysCharged) {
  ClientProcess client(run());
  EXPECT_TRUE(succeeded(client.connect()));
  EXPECT_TRUE(succeeded(client.open("a")));
  EXPECT_TRUE(succeeded(client.grow("a", mebibytes(64))));
  restart();
  EXPECT_TRUE(failed_with(client.grow("a", mebibytes(96)), "UNAUTHENTICATED"));
  EXPECT_FALSE(whole());
  EXPECT_TRUE(succeeded(client.check("a", 0))) << "its memory stays usable";
  client.kill();
  EXPECT_TRUE(eventually([&] { return whole(); }));
}

struct OuterClientOfHostDriver : OuterClient {
  OuterClientOfHostDriver()
      : OuterClient({}, std::string(kSomeSpare) + "[host]\nsize = \"128MiB\"\nkind = \"driver\"\n") {}
  void SetUp() override {
    if (!has_pidfs()) GTEST_SKIP() << "the kernel has no numbers for the processes of other PID namespaces";
    OuterClient::SetUp();
  }
  Bytes charged() const {
    const v1::DeviceStatus store = broker_->device(1);
    return {store.offered() + store.active() + store.returning() + store.quarantined()};
  }
};

// Memory of the driver is free when its process has ended. A broker that was restarted cannot find the
// process by a number, and gets a handle of it when the process resumes its session.
TEST_F(OuterClientOfHostDriver, IsSeenToEndOnceItHasComeBack) {
  ClientProcess client(run());
  EXPECT_TRUE(succeeded(client.connect()));
  EXPECT_TRUE(succeeded(client.open("a", {}, "host")));
  EXPECT_TRUE(succeeded(client.grow("a", mebibytes(16))));
  restart();
  EXPECT_TRUE(succeeded(client.grow("a", mebibytes(32))));
  EXPECT_TRUE(succeeded(client.shrink("a", {})));
  EXPECT_TRUE(eventually([&] { return broker_->device(1).quarantined() == mebibytes(32).count; }));
  client.kill();
  EXPECT_TRUE(eventually([&] { return charged().is_zero(); })) << charged().count;
}

// The victim is stopped while others claim its session: one beside it, and one in a container with the same
// user and, in there, the same pid. The broker has no pid for any of them.
struct ClaimedByOthers : OuterClient, testing::WithParamInterface<const char*> {
  void SetUp() override {
    if (!has_pidfs()) GTEST_SKIP() << "the kernel has no numbers for the processes of other PID namespaces";
    OuterClient::SetUp();
  }
  static std::vector<std::string> words(const std::string& how) {
    return how == "plain" ? std::vector<std::string>{"serve"} : std::vector<std::string>{how, "serve"};
  }
};

INSTANTIATE_TEST_SUITE_P(Victim, ClaimedByOthers, testing::Values("plain", "contained"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ClaimedByOthers, StaysWithItsProcess) {
  ClientProcess victim(run(), {.arguments = words(GetParam())});
  EXPECT_TRUE(succeeded(victim.connect()));
  EXPECT_TRUE(succeeded(victim.open("a")));
  EXPECT_TRUE(succeeded(victim.grow("a", mebibytes(64))));
  EXPECT_TRUE(succeeded(victim.write("a", 7)));
  ASSERT_EQ(broker_->sessions().size(), 1U);
  ASSERT_EQ(broker_->sessions()[0].pid(), 0);
  const std::uint64_t session = broker_->sessions()[0].id();
  const pid_t stopped = pid_of_contained(victim);
  ASSERT_EQ(::kill(stopped, SIGSTOP), 0);
  restart();
  for (const char* how : {"plain", "contained", "contained-user"}) {
    ClientProcess intruder(run(), {.arguments = words(how)});
    EXPECT_TRUE(failed_with(intruder.ask({{"do", "raw_claim"}, {"session", session}}), "UNAUTHENTICATED"))
        << how;
    EXPECT_TRUE(succeeded(intruder.connect())) << "it is served as the stranger that it is";
    EXPECT_TRUE(failed_with(intruder.ask({{"do", "raw_claim"}, {"session", session}}), "UNAUTHENTICATED"))
        << how;
    EXPECT_EQ(intruder.leave(), 0);
  }
  ASSERT_EQ(::kill(stopped, SIGCONT), 0);
  EXPECT_TRUE(succeeded(victim.grow("a", mebibytes(96)))) << "it has its session back";
  EXPECT_TRUE(succeeded(victim.shrink("a", mebibytes(64))));
  EXPECT_TRUE(succeeded(victim.check("a", 7)));
  EXPECT_EQ(broker_->device().active(), mebibytes(64).count);
  EXPECT_EQ(victim.leave(), 0);
  EXPECT_TRUE(eventually([&] { return whole(); })) << broker_->unrest();
}

}  // namespace
}  // namespace gpumem::test
