#pragma once
#include <string>

#include "tests/integration/fixture.h"

namespace gpumem::test {

/// Ann and bob belong to the tenant lab, zoe to nobody.
inline constexpr const char* kLab = R"(
[[tenant]]
name = "lab"
[[tenant]]
name = "ann"
user = 10001
parent = "lab"
[[tenant]]
name = "bob"
user = 10002
parent = "lab"
[[tenant]]
name = "zoe"
user = 10003
)";

enum SharedWith { kPrivate, kGroup, kPublic, kNamed };

struct RegionTest : BrokerTest {
  explicit RegionTest(BrokerOptions options = {.config = kSomeSpare}) : BrokerTest(std::move(options)) {}

  /// Publishes the client's slice "a" as "weights".
  static Json publish(ClientProcess& client, Json more = Json::object()) {
    Json command{{"do", "publish"}, {"slice", "a"}, {"region", "weights"}};
    command.update(more);
    return client.ask(command);
  }
  static Json map(ClientProcess& client, Json more = Json::object()) {
    Json command{{"do", "map_region"}, {"region", "weights"}};
    command.update(more);
    return client.ask(command);
  }
  static Json remove(ClientProcess& client, Json more = Json::object()) {
    Json command{{"do", "remove_region"}, {"region", "weights"}};
    command.update(more);
    return client.ask(command);
  }
  static Json check(ClientProcess& client, int value, const std::string& import = "i") {
    return client.ask({{"do", "check"}, {"import", import}, {"value", value}});
  }
  static Json unmap(ClientProcess& client, const std::string& import = "i") {
    return client.ask({{"do", "close_import"}, {"import", import}});
  }
  static std::string message(const Json& answer) { return answer.value("message", ""); }
  /// A client whose slice "a" has so many bytes of `value` and is the region "weights".
  std::unique_ptr<ClientProcess> publisher(Bytes bytes, int value, std::optional<User> user = {},
                                           const Json& more = Json::object()) {
    auto one = client_with(bytes, user);
    EXPECT_TRUE(succeeded(one->write("a", value)));
    EXPECT_TRUE(succeeded(publish(*one, more)));
    return one;
  }
};

/// Several tenants: kLab's.
struct RegionsOfLab : RegionTest {
  explicit RegionsOfLab(const std::string& more = {}) : RegionTest({.config = shared(kLab + more)}) {}
  void SetUp() override { GPUMEM_NEEDS_ROOT(); }
  const User ann_ = test_user(10'001), bob_ = test_user(10'002), zoe_ = test_user(10'003);
};

}  // namespace gpumem::test
