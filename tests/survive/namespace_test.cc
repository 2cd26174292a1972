// Clients in PID namespaces of their own, and brokers: whoever cannot be named by a pid comes back all the
// same.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/integration/fixture.h"
#include "tests/support/pid_namespaces.h"

namespace gpumem::test {
namespace {

struct Places {
  bool broker_contained = false;
  std::string client;  // as the first word of test_client; empty: in the test's own namespaces
};

// A client that the broker sees by its pid, in a namespace below its own; and one that it has no pid for.
class RestartAcross : public testing::Test, public testing::WithParamInterface<Places> {
 protected:
  static constexpr uid_t kUser = 10'001;

  void SetUp() override {
    if (!has_unshare()) GTEST_SKIP() << "only root can make PID namespaces, with unshare(1)";
    if (GetParam().broker_contained && !has_pidfs())
      GTEST_SKIP() << "the kernel has no numbers for processes";
    BrokerOptions options{.config = kShared};
    if (GetParam().broker_contained) options.program = contained_gpumemd(programs_);
    broker_ = std::make_unique<BrokerProcess>(std::move(options));
    ClientOptions client{.user = test_user(kUser)};
    if (!GetParam().client.empty()) client.arguments = {GetParam().client, "serve"};
    // Only root makes PID namespaces without a user namespace.
    if (GetParam().client == "contained") client.user.reset();
    client_ = std::make_unique<ClientProcess>(broker_->folder(), std::move(client));
    EXPECT_TRUE(succeeded(client_->connect()));
    EXPECT_TRUE(succeeded(client_->open("a")));
  }
  void restart() {
    GetParam().broker_contained ? kill_contained(*broker_) : broker_->kill();
    broker_->start_again();
  }
  std::uint64_t session() const {
    const auto sessions = broker_->sessions();
    EXPECT_EQ(sessions.size(), 1U);
    return sessions.empty() ? 0 : sessions[0].id();
  }
  void expect_rest() {
    EXPECT_TRUE(eventually([&] { return broker_->at_rest(); })) << broker_->unrest();
  }

  TemporaryFolder programs_;
  std::unique_ptr<BrokerProcess> broker_;
  std::unique_ptr<ClientProcess> client_;
};

INSTANTIATE_TEST_SUITE_P(PidNamespaces, RestartAcross,
                         testing::Values(Places{false, "contained"}, Places{false, "contained-user"},
                                         Places{true, ""}, Places{true, "contained"},
                                         Places{true, "contained-user"}),
                         [](const auto& info) {
                           std::string name = info.param.broker_contained ? "BrokerContained" : "Broker";
                           name += info.param.client.empty() ? "Client" : "Client_" + info.param.client;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(RestartAcross, IsAPauseForTheClient) {
  EXPECT_TRUE(succeeded(client_->grow("a", mebibytes(48))));
  EXPECT_TRUE(succeeded(client_->write("a", 9)));
  const std::uint64_t before = session();
  EXPECT_EQ(broker_->sessions()[0].pid() == 0, GetParam().broker_contained);
  restart();
  EXPECT_TRUE(succeeded(client_->grow("a", mebibytes(64))));
  restart();
  EXPECT_TRUE(succeeded(client_->shrink("a", mebibytes(48)))) << "it comes back again and again";
  EXPECT_EQ(session(), before);
  EXPECT_EQ(broker_->device().active(), mebibytes(48).count);
  EXPECT_EQ(broker_->device().pool(), kPool.count);
  EXPECT_TRUE(succeeded(client_->check("a", 9)));
  EXPECT_TRUE(succeeded(client_->disconnect()));
  expect_rest();
}

TEST_P(RestartAcross, TakesBackMemoryOfAClientThatEndsAfterwards) {
  EXPECT_TRUE(succeeded(client_->grow("a", mebibytes(48))));
  restart();
  EXPECT_TRUE(succeeded(client_->grow("a", mebibytes(64))));
  client_->kill();
  expect_rest();
}

TEST_P(RestartAcross, TakesBackMemoryOfAClientThatEndedMeanwhile) {
  EXPECT_TRUE(succeeded(client_->grow("a", mebibytes(48))));
  GetParam().broker_contained ? kill_contained(*broker_) : broker_->kill();
  client_->kill();
  broker_->start_again();
  expect_rest();
}

}  // namespace
}  // namespace gpumem::test
