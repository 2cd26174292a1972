// `gpumem account`: what tenants have used, over restarts of the broker, for those whom it concerns.
#include <set>

#include "gpumem/v1/broker.grpc.pb.h"
#include "tests/integration/connect_as.h"
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

struct Account : BrokerTest {
  Account() : BrokerTest({.config = shared()}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }

  Outcome account(const std::string& option, std::optional<User> user) {
    return gpumem({"account", option}, user);
  }
  /// The accounts that the user is shown, by tenant; all of the device is "".
  std::map<std::string, Json> accounts(std::optional<User> user = std::nullopt) {
    const Outcome outcome = account("--json", user);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    std::map<std::string, Json> by_tenant;
    const Json shown = Json::parse(outcome.output, nullptr, false);
    for (const Json& one : shown.at("accounts"))
      by_tenant[one["tenant"].is_null() ? "" : one["tenant"].get<std::string>()] = one;
    return by_tenant;
  }
};

TEST_F(Account, GoesOnAfterTheBrokerWasKilledAndWhenTheTenantIsGone) {
  {
    const auto holder = client_with(mebibytes(8), kBob);
    ASSERT_TRUE(eventually([&] { return accounts()["uid:10002"]["lent"] > 0; }));
    const double before = accounts()["uid:10002"]["lent"];
    broker_.kill();
    broker_.start_again();
    ASSERT_TRUE(eventually([&] { return accounts()["uid:10002"]["lent"] > before; }));
  }
  ASSERT_TRUE(eventually([&] { return broker_.sessions().empty(); }));
  const Json gone = accounts()["uid:10002"];
  EXPECT_GT(gone["lent"], 0);
  EXPECT_EQ(accounts()["uid:10002"], gone) << "nothing is used any more";
  EXPECT_GE(accounts()[""]["lent"], gone["lent"]);
}

TEST_F(Account, IsShownToItsTenantAndToAdministratorsOnly) {
  const auto ann = client_with(mebibytes(8), kAnn);
  const auto bob = client_with(mebibytes(8), kBob);
  const auto names = [&](std::optional<User> user) {
    std::set<std::string> shown;
    for (const auto& [tenant, one] : accounts(user)) shown.insert(tenant);
    return shown;
  };
  EXPECT_EQ(names(std::nullopt), (std::set<std::string>{"", "uid:10001", "uid:10002"}));
  EXPECT_EQ(names(kBob), (std::set<std::string>{"", "uid:10002"}));
  EXPECT_EQ(names(test_user(10'003)), std::set<std::string>{""});
  for (const char* option : {"--csv", "--long"}) {
    EXPECT_EQ(account(option, kBob).output.find("10001"), std::string::npos);
    EXPECT_NE(account(option, kBob).output.find("10002"), std::string::npos);
  }
}

TEST_F(Account, TellsTheSameToAChangedTokenAndNothingOfOthers) {
  const auto ann = client_with(mebibytes(8), kAnn);
  const auto bob = client_with(mebibytes(8), kBob);
  const auto stub = v1::Monitor::NewStub(connect_as(broker_.folder(), kBob));
  for (const auto& [token, names] :
       std::map<std::string, std::vector<std::string>>{{"", {"", "uid:10002"}},
                                                       {"=", {"uid:10002"}},
                                                       {"=uid:10001", {"uid:10002"}},
                                                       {"=zzz", {}},
                                                       {"zzz", {"refused"}},
                                                       {std::string(4096, '='), {"uid:10002"}}}) {
    v1::ListAccountsRequest request;
    request.set_page_token(token);
    v1::ListAccountsResponse response;
    grpc::ClientContext context;
    const grpc::Status status = stub->ListAccounts(&context, request, &response);
    std::vector<std::string> shown;
    for (const v1::Account& one : response.accounts()) shown.push_back(one.tenant());
    if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT) shown = {"refused"};
    EXPECT_EQ(shown, names) << token;
    EXPECT_EQ(response.members_size(), 0) << "who belongs where is for those who see all";
  }
}

}  // namespace
}  // namespace gpumem::test
