// Requests that wait for memory: who is served, when, and what those are told who are not.
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

constexpr int kTenantLimit = 2, kNoMemory = 4;  // gpumem::Denial::Reason

// Several tenants: what is told of one to another is part of what is tried.
struct Waiting : BrokerTest {
  Waiting() : BrokerTest({.config = shared()}) {}
  void SetUp() override {
    GPUMEM_NEEDS_ROOT();
    holder_ = client_with(kPool - mebibytes(4), kAnn);
    waiter_ = client({}, kBob);
  }
  void begin() {
    waiter_->begin_to_grow("a", mebibytes(64), minutes(10));
    await_waiters(1);
  }
  void expect_granted() {
    EXPECT_EQ(waiter_->answer()["committed"], mebibytes(64).count);
    EXPECT_TRUE(succeeded(waiter_->check("a", 0)));
  }

  std::unique_ptr<ClientProcess> holder_;  ///< has the pool but for 4 MiB
  std::unique_ptr<ClientProcess> waiter_;  ///< wants 64 MiB
};

TEST_F(Waiting, EndsWhenAnotherProcessShrinks) {
  begin();
  EXPECT_TRUE(succeeded(holder_->shrink("a", {})));
  expect_granted();
}

TEST_F(Waiting, EndsWhenAnotherProcessIsKilled) {
  EXPECT_TRUE(succeeded(holder_->write("a", 0x77)));
  begin();
  holder_->kill();
  expect_granted();
}

TEST_F(Waiting, EndsWhenItsOwnProcessIsKilled) {
  begin();
  waiter_->kill();
  await_waiters(0);
  EXPECT_TRUE(eventually([&] { return broker_.sessions().size() == 1; }));
  EXPECT_EQ(broker_.device().free(), mebibytes(4).count);
}

TEST_F(Waiting, DenialAfterAWaitHasFigures) {
  const Json answer = waiter_->grow("a", mebibytes(64), milliseconds(20));
  EXPECT_TRUE(failed_with(answer, "DEADLINE_EXCEEDED"));
  const Json& denial = answer["denial"];
  EXPECT_EQ(denial["reason"], kNoMemory);
  EXPECT_EQ(denial["asked"], mebibytes(64).count);
  EXPECT_EQ(denial["free"], mebibytes(4).count);
  EXPECT_EQ(denial["pool"], kPool.count);
  EXPECT_EQ(denial["tenant_charged"], 0);
  EXPECT_EQ(denial["charged_to_others"], (kPool - mebibytes(4)).count);
  EXPECT_EQ(denial["waiters_ahead"], 0);
  EXPECT_GE(denial["waited_ms"], 20);
  EXPECT_TRUE(denial["holders"].empty()) << "who the others are is not told";
  EXPECT_TRUE(succeeded(waiter_->grow("a", mebibytes(4)))) << "the session goes on";
}

TEST_F(Waiting, DoesNotHoldUpTheRestOfTheSession) {
  begin();
  const auto sessions = broker_.sessions();
  ASSERT_EQ(sessions.size(), 2U);
  EXPECT_EQ(sessions[1].slices(0).waiting(), mebibytes(64).count);
  EXPECT_TRUE(succeeded(holder_->ask({{"do", "ping"}})));
  EXPECT_TRUE(succeeded(holder_->grow("a", kPool - mebibytes(4)))) << "already there: nothing to wait for";
}

struct Limited : BrokerTest {
  Limited() : BrokerTest({.config = std::string(kSomeSpare) + "[default]\nlimit = \"64MiB\"\n"}) {}
};

TEST_F(Limited, TenantIsRefusedWithTheHoldersOfTheRest) {
  auto one = client_with(mebibytes(40));
  auto two = client();
  const Json answer = two->grow("a", mebibytes(32));
  EXPECT_TRUE(failed_with(answer, "RESOURCE_EXHAUSTED"));
  const Json& denial = answer["denial"];
  EXPECT_EQ(denial["reason"], kTenantLimit);
  EXPECT_EQ(denial["tenant_limit"], mebibytes(64).count);
  EXPECT_EQ(denial["tenant_charged"], mebibytes(40).count);
  EXPECT_EQ(denial["holders"][0]["pid"], one->pid());
  EXPECT_NE(answer["message"].get<std::string>().find("limit of 64MiB"), std::string::npos) << answer;
  EXPECT_TRUE(succeeded(two->grow("a", mebibytes(24))));
}

struct Impatient : BrokerTest {
  Impatient() : BrokerTest({.config = shared() + "max_wait_seconds = 0\n"}) {}
};

TEST_F(Impatient, WaitIsCutToTheConfiguredMaximum) {
  GPUMEM_NEEDS_ROOT();
  auto holder = client_with(kPool, kAnn);
  auto waiter = client({}, kBob);
  const Json answer = waiter->grow("a", mebibytes(2), minutes(10));
  EXPECT_TRUE(failed_with(answer, "RESOURCE_EXHAUSTED")) << "max_wait_seconds is 0";
  EXPECT_EQ(answer["denial"]["reason"], kNoMemory);
}

}  // namespace
}  // namespace gpumem::test
