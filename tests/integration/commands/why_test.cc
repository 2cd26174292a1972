// `gpumem why`: what a request waits for, said to those whom it concerns.
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

struct Why : BrokerTest {
  Why() : BrokerTest({.config = shared()}) {}
  void SetUp() override {
    GPUMEM_NEEDS_ROOT();
    holder_ = client_with(kPool - mebibytes(4), kAnn);
    waiter_ = client({}, kBob);
    waiter_->begin_to_grow("a", mebibytes(64), std::chrono::minutes(10));
    await_waiters(1);
  }
  Outcome why(std::vector<std::string> arguments, std::optional<User> user = kBob) {
    arguments.insert(arguments.begin(), "why");
    return gpumem(std::move(arguments), user);
  }
  Json explained(const std::string& subject, std::optional<User> user = kBob) {
    const Outcome outcome = why({subject, "--json"}, user);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return Json::parse(outcome.output, nullptr, false);
  }

  std::unique_ptr<ClientProcess> holder_;  ///< has the pool but for 4 MiB
  std::unique_ptr<ClientProcess> waiter_;  ///< wants 64 MiB
};

TEST_F(Why, ShowsTheReasonOfAWait) {
  const Json answer = explained("uid:10002");
  EXPECT_EQ(answer["tenant"], "uid:10002");
  ASSERT_EQ(answer["devices"].size(), 1U) << answer;
  EXPECT_EQ(answer["devices"][0]["limit"], kPool.count);
  ASSERT_EQ(answer["waiting"].size(), 1U) << answer;
  const Json& waiting = answer["waiting"][0];
  EXPECT_EQ(waiting["asked"], mebibytes(64).count);
  EXPECT_EQ(waiting["free"], mebibytes(4).count);
  EXPECT_EQ(waiting["reason"], "no-memory");
  EXPECT_EQ(waiting["waiters_ahead"], 0);
  EXPECT_TRUE(waiting["other_tenants"].empty()) << "who the others are is not told";
  const Outcome text = why({"uid:10002"});
  EXPECT_NE(text.output.find("waits for 64MiB"), std::string::npos) << text.output;
  EXPECT_NE(text.output.find("soonest: "), std::string::npos) << text.output;
  EXPECT_NE(text.output.find("\ngpu0\n"), std::string::npos) << text.output;
  EXPECT_EQ(text.output.find("GPU-"), std::string::npos) << text.output;
  EXPECT_NE(why({"uid:10002", "--long"}).output.find("\nGPU-"), std::string::npos);
}

TEST_F(Why, OfASessionIsThatOfItsTenant) {
  const auto sessions = broker_.sessions();
  ASSERT_EQ(sessions.size(), 2U);
  EXPECT_EQ(explained(std::to_string(sessions[1].id()))["waiting"].size(), 1U);
}

TEST_F(Why, IsToldToItsTenantAndToAdministratorsOnly) {
  const Outcome refused = why({"uid:10001"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.output.find("administrators"), std::string::npos) << refused.output;
  const Json all = explained("uid:10002", std::nullopt);
  ASSERT_EQ(all["waiting"].size(), 1U) << all;
  EXPECT_FALSE(all["waiting"][0]["other_tenants"].empty()) << "root is told who the others are";
}

TEST_F(Why, OfAUserWithoutASessionShowsTheDefault) {
  const User newcomer = test_user(10'003);
  const Json answer = explained("uid:10003", newcomer);
  EXPECT_EQ(answer["newcomer"], true);
  EXPECT_EQ(answer["devices"][0]["limit"], kPool.count);
  EXPECT_EQ(answer["devices"][0]["available"], mebibytes(4).count);
  EXPECT_NE(why({"uid:10003"}, std::nullopt).output.find("tenant uid:10003 has no session now"),
            std::string::npos);
  EXPECT_EQ(why({"uid:10003"}).status, 1) << "others are not told";
}

TEST_F(Why, ShowsTheLastDenial) {
  const User refused = test_user(10'003);
  auto client = this->client({}, refused);
  EXPECT_TRUE(failed_with(client->grow("a", kPool + mebibytes(2)), "RESOURCE_EXHAUSTED"));
  for (const bool is_there : {true, false}) {
    const Outcome text = why({"uid:10003"}, refused);
    EXPECT_EQ(text.status, 0);
    EXPECT_NE(text.output.find("\ndenied "), std::string::npos) << text.output;
    EXPECT_NE(text.output.find("asked for 226MiB on gpu0: "), std::string::npos) << text.output;
    EXPECT_NE(text.output.find("226MiB is more than the whole limit of 224MiB, which is the whole pool"),
              std::string::npos)
        << text.output;
    EXPECT_EQ(explained("uid:10003", refused)["denials"].size(), 1U);
    EXPECT_EQ(explained("uid:10003", refused)["newcomer"], !is_there);
    if (!is_there) break;
    EXPECT_EQ(client->leave(), 0);
    EXPECT_TRUE(eventually([&] { return broker_.sessions().size() == 2; }));
  }
}

TEST_F(Why, OfAnUnknownTenantIsNotFound) {
  EXPECT_EQ(why({"nobody-at-all"}, std::nullopt).status, 1);
  EXPECT_EQ(why({"4711"}, std::nullopt).status, 1);
  EXPECT_EQ(why({}).status, 2);
}

TEST_F(Why, SaysThatNothingWaitsOnceItIsGranted) {
  EXPECT_EQ(holder_->leave(), 0);
  EXPECT_TRUE(succeeded(waiter_->answer()));
  EXPECT_TRUE(explained("uid:10002")["waiting"].empty());
  EXPECT_NE(why({"uid:10002"}).output.find("no request waits"), std::string::npos);
}

}  // namespace
}  // namespace gpumem::test
