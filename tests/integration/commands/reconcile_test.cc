// Memory that processes take past the broker: they are named, charged, and ended if the configuration says
// so.
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

inline constexpr const char* kWatchful =
    "[broker]\nreserve = \"all-but 128MiB\"\nsocket_group = 10000\npast_broker_allowance = \"16MiB\"\n";
inline constexpr const char* kOnDemand = "reconcile_seconds = 0\n";

struct PastTheBroker : BrokerTest {
  explicit PastTheBroker(const std::string& more = kOnDemand) : BrokerTest({.config = kWatchful + more}) {}

  /// A process that takes `bytes` of the device by itself, besides its context.
  std::unique_ptr<Child> holder(Bytes bytes, std::optional<User> user = {}) const {
    return std::make_unique<Child>(
        ChildOptions{.program = test_client_program(),
                     .arguments = {"hold", broker_.driver_folder(), std::to_string(bytes.count)},
                     .environment = {},
                     .user = user});
  }
  Json look() const {
    const Outcome outcome = gpumem({"reconcile", "--now", "--json"});
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return Json::parse(outcome.output)["devices"][0];
  }
  /// Looks until the only process named holds more than `bytes`.
  Json look_for(const Child& child, Bytes bytes) const {
    Json device;
    EXPECT_TRUE(eventually([&] {
      device = look();
      return device["processes"].size() == 1 && device["processes"][0]["pid"] == child.pid() &&
             device["processes"][0]["bytes"].get<std::uint64_t>() > bytes.count;
    })) << device;
    return device;
  }
};

TEST_F(PastTheBroker, AProcessIsNamedAndChargedToItsUserAsLongAsItLives) {
  const auto child = holder(mebibytes(48));
  const Json device = look_for(*child, mebibytes(48));
  const Json process = device["processes"][0];
  const std::string tenant = "uid:" + std::to_string(::geteuid());
  EXPECT_EQ(process["tenant"], tenant);
  EXPECT_EQ(process["uid"], ::geteuid());
  EXPECT_EQ(process["command"], "test_client");
  EXPECT_EQ(device["extents"], broker_.device().pool());
  EXPECT_EQ(device["past_broker"], process["bytes"]);
  EXPECT_EQ(device["unexplained"], 0);
  EXPECT_EQ(device["used"], device["extents"].get<std::uint64_t>() + process["bytes"].get<std::uint64_t>());
  EXPECT_EQ(broker_.tenant(tenant).outside(), process["bytes"]);
  const Json why = Json::parse(gpumem({"why", tenant, "--json"}).output);
  EXPECT_EQ(why["devices"][0]["past_broker"], process["bytes"]);
  const Outcome text = gpumem({"reconcile"});
  EXPECT_NE(text.output.find(std::to_string(child->pid())), std::string::npos) << text.output;
  EXPECT_NE(text.output.find("past the broker"), std::string::npos) << text.output;
  child->kill();
  EXPECT_TRUE(look()["processes"].empty());
  EXPECT_EQ(broker_.tenant(tenant).outside(), 0U);
}

TEST_F(PastTheBroker, ClientsAreNotNamedForTheirLoans) {
  auto one = client_with(mebibytes(64));
  EXPECT_TRUE(succeeded(one->write("a", 1)));
  const Json device = look();
  EXPECT_TRUE(device["processes"].empty()) << device;
  EXPECT_EQ(device["past_broker"], 0);
  EXPECT_EQ(device["unexplained"], 0);
  EXPECT_EQ(device["used"], device["extents"].get<std::uint64_t>() + device["overhead"].get<std::uint64_t>())
      << device;
}

TEST_F(PastTheBroker, NothingWasSeenBeforeTheFirstLook) {
  const Json device = Json::parse(gpumem({"reconcile", "--json"}).output)["devices"][0];
  EXPECT_TRUE(device["seen"].is_null());
  EXPECT_FALSE(device["problem"].is_null());
  EXPECT_FALSE(look()["seen"].is_null());
}

struct EndedByPolicy : PastTheBroker {
  EndedByPolicy()
      : PastTheBroker("reconcile_seconds = 1\npast_broker_confirm_seconds = 1\npast_broker = \"end\"\n") {}
};

TEST_F(EndedByPolicy, AProcessPastTheBrokerIsEndedAndOthersLiveOn) {
  GPUMEM_NEEDS_ROOT();
  auto one = client_with(mebibytes(32), test_user(10'001));
  const auto root = holder(mebibytes(8));
  const auto child = holder(mebibytes(32), test_user(10'002));
  EXPECT_TRUE(eventually([&] {
    static_cast<void>(look());
    return !child->running();
  }));
  EXPECT_EQ(child->wait(), -SIGTERM);
  EXPECT_TRUE(root->running());
  EXPECT_TRUE(succeeded(one->write("a", 1)));
  EXPECT_TRUE(eventually([&] {
    static_cast<void>(look());
    return broker_.tenant("uid:10002").outside() == 0;
  }));
}

}  // namespace
}  // namespace gpumem::test
