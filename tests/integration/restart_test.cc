// The broker is restarted: its clients go on, their memory and the ledger stay what they were.
#include "tests/integration/fixture.h"
#include "tests/support/lanes/frame_lane.h"

namespace gpumem::test {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

// Every way to bring the next broker: after a kill, and after an orderly end.
class Restart : public BrokerTest, public testing::WithParamInterface<bool> {
 protected:
  void end_broker() {
    if (GetParam())
      broker_.kill();
    else
      EXPECT_EQ(broker_.stop(), 0);
  }
  void restart() {
    end_broker();
    broker_.start_again();
  }
  std::size_t resumed() {
    const std::string log = broker_.log();
    std::size_t found = 0;
    for (auto at = log.find(": resumed"); at != std::string::npos; at = log.find(": resumed", at + 1))
      ++found;
    return found;
  }
  bool is_resumed(std::size_t times = 1) {
    return eventually([&] { return resumed() >= times; });
  }
};

INSTANTIATE_TEST_SUITE_P(Broker, Restart, testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Killed" : "Stopped"; });

TEST_P(Restart, IsAPauseForClients) {
  expect_a_pause([this] { restart(); });
}

TEST_P(Restart, IsSeenThroughByACallThatIsMadeWithoutABroker) {
  auto one = client_with(mebibytes(48));
  end_broker();
  one->begin_to_grow("a", mebibytes(64), minutes(10));
  broker_.start_again();
  EXPECT_TRUE(succeeded(one->answer()));
  EXPECT_TRUE(succeeded(one->disconnect()));
  expect_rest();
}

TEST_P(Restart, KeepsWaitingRequestsWaiting) {
  auto holder = client_with(kPool);
  auto waiter = client();
  waiter->begin_to_grow("a", mebibytes(48), minutes(10));
  await_waiters(1);
  restart();
  await_waiters(1);
  EXPECT_TRUE(succeeded(holder->shrink("a", {})));
  EXPECT_TRUE(succeeded(waiter->answer()));
  EXPECT_TRUE(succeeded(holder->disconnect()));
  EXPECT_TRUE(succeeded(waiter->disconnect()));
  expect_rest();
}

TEST_P(Restart, FindsClientsThatAskForNothing) {
  auto idle = client_with(mebibytes(48));
  restart();
  EXPECT_TRUE(is_resumed());
  restart();
  EXPECT_TRUE(is_resumed(2));
  EXPECT_EQ(broker_.device().active(), mebibytes(48).count);
  EXPECT_TRUE(succeeded(idle->disconnect()));
  expect_rest();
}

TEST_P(Restart, TakesBackMemoryOfProcessesThatDiedMeanwhile) {
  auto one = client_with(mebibytes(48));
  auto other = client_with(mebibytes(16));
  end_broker();
  one->kill();
  broker_.start_again();
  other->kill();
  expect_rest();
}

TEST_P(Restart, LetsASessionEndWithoutABroker) {
  client_timeout_ = std::chrono::milliseconds(100);
  auto one = client_with(mebibytes(48));
  end_broker();
  EXPECT_TRUE(succeeded(one->disconnect()));
  EXPECT_TRUE(one->child().running());
  broker_.start_again();
  EXPECT_TRUE(succeeded(one->connect()));
  EXPECT_TRUE(succeeded(one->open("a")));
  EXPECT_TRUE(succeeded(one->grow("a", mebibytes(64))));
}

TEST_P(Restart, AnswersForALimitThatWasLoweredMeanwhile) {
  auto one = client_with(mebibytes(48));
  end_broker();
  broker_.start_again(std::string(kSomeSpare) + "[default]\nlimit = \"16MiB\"\n");
  EXPECT_TRUE(failed_with(one->grow("a", mebibytes(64)), "RESOURCE_EXHAUSTED"));
  EXPECT_EQ(broker_.device().active(), mebibytes(48).count);
}

TEST_P(Restart, IsResumedByTheSameProcessOnly) {
  auto one = client_with(mebibytes(48));
  const std::uint64_t session = broker_.sessions().front().id();
  one->child().signal(SIGSTOP);
  restart();
  FrameLane intruder(broker_.folder());
  lane::Resume claim{};
  claim.oldest = lane::kVersion;
  claim.newest = lane::kVersion;
  claim.session = session;
  const auto refused = intruder.ask(claim).as<lane::Failed>();
  EXPECT_EQ(refused.code, static_cast<std::uint64_t>(Code::kUnauthenticated));
  one->child().signal(SIGCONT);
  EXPECT_TRUE(is_resumed());
  EXPECT_TRUE(succeeded(one->grow("a", mebibytes(64))));
}

// The test itself is the client: its process is the one that had the session.
TEST_P(Restart, SurvivesClientsThatAreGoneBeforeTheyAreWelcomed) {
  for (const bool holds_memory : {false, true}) {
    auto before = std::make_unique<FrameLane>(broker_.folder());
    lane::Resume claim{};
    claim.oldest = lane::kVersion;
    claim.newest = lane::kVersion;
    claim.session = before->greet().session;
    if (holds_memory) {
      EXPECT_TRUE(before->grow(before->open_slice(), mebibytes(2)).is(lane::Kind::kGranted));
    }
    restart();
    before.reset();
    const std::size_t so_far = resumed();
    EXPECT_TRUE(eventually([&] {  // a client that is gone before it is accepted is not heard
      FrameLane(broker_.folder()).send(claim);
      return resumed() > so_far;
    }));
    EXPECT_TRUE(broker_.running());
  }
  EXPECT_TRUE(eventually([&] { return broker_.device().active() == 0; })) << "nobody is behind the session";
}

TEST_P(Restart, WithAnUnreadableJournalTreatsClientsAsUnknown) {
  auto one = client_with(mebibytes(48));
  end_broker();
  write_file(broker_.folder() + "/private/journal", "no journal");
  broker_.start_again();
  EXPECT_NE(broker_.log().find("it is no journal"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(broker_.folder() + "/private/journal.unreadable"));
  EXPECT_EQ(broker_.device().pool(), kPool.count);
  EXPECT_TRUE(eventually([&] { return broker_.device().missing() != 0; })) << "the client has it";
  const Json answer = one->grow("a", mebibytes(64));
  EXPECT_TRUE(failed_with(answer, "UNAUTHENTICATED"));
  EXPECT_NE(answer["message"].get<std::string>().find("open a new session"), std::string::npos) << answer;
  EXPECT_TRUE(succeeded(one->disconnect()));
  EXPECT_TRUE(succeeded(one->connect()));
  EXPECT_TRUE(succeeded(one->open("a")));
  EXPECT_TRUE(succeeded(one->grow("a", mebibytes(64))));
}

// Of several tenants, each of which wants more than what is left by another.
struct RestartOfWaiters : BrokerTest {
  RestartOfWaiters() : BrokerTest({.config = shared()}) {}
  std::unique_ptr<ClientProcess> waiter(std::uint32_t uid, std::uint64_t place) {
    auto one = client({}, test_user(uid));
    one->begin_to_grow("a", mebibytes(128), minutes(10));
    await_waiters(place);
    return one;
  }
  static void expect_granted(ClientProcess& one) {
    ASSERT_TRUE(one.has_answer(kPatience)) << "another is granted first";
    EXPECT_TRUE(succeeded(one.answer()));
  }
};

TEST_F(RestartOfWaiters, KeepsTheirOrderWhenTheyComeBackInAnother) {
  GPUMEM_NEEDS_ROOT();
  auto holder = client_with(kPool, test_user(10'004));
  auto first = waiter(10'001, 1);
  auto second = waiter(10'002, 2);
  auto third = waiter(10'003, 3);
  first->child().signal(SIGSTOP);
  second->child().signal(SIGSTOP);
  broker_.kill();
  broker_.start_again();
  await_waiters(1);
  second->child().signal(SIGCONT);
  await_waiters(2);
  first->child().signal(SIGCONT);
  await_waiters(3);
  EXPECT_EQ(holder->leave(), 0);
  ASSERT_NO_FATAL_FAILURE(expect_granted(*first));
  await_waiters(2);
  EXPECT_EQ(first->leave(), 0);
  ASSERT_NO_FATAL_FAILURE(expect_granted(*second));
  await_waiters(1);
  EXPECT_EQ(second->leave(), 0);
  ASSERT_NO_FATAL_FAILURE(expect_granted(*third));
}

}  // namespace
}  // namespace gpumem::test
