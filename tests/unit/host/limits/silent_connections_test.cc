// Connections that say nothing, and which of them has to go.
#include "daemon/host/limits/connection_limits.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace gpumem::host {
namespace {

struct SilentConnectionsTest : testing::Test {
  void add(int place, std::uint32_t uid) {
    connections.add(&keys[static_cast<std::size_t>(place)], uid,
                    [this, place](const std::string&) { cut.push_back(place); });
  }
  void remove(int place) { connections.remove(&keys[static_cast<std::size_t>(place)]); }

  std::array<char, 16> keys{};
  std::vector<int> cut;
  SilentConnections connections{{.in_all = 6, .of_a_user = 3}};
};

TEST_F(SilentConnectionsTest, CostTheirUserTheOldestWhenThereAreTooMany) {
  for (int i = 0; i < 5; ++i) add(i, 1);
  EXPECT_EQ(cut, (std::vector<int>{0, 1}));
  EXPECT_EQ(connections.size(), 3U);
}

TEST_F(SilentConnectionsTest, CostTheUserWithMostWhenAllTogetherAreTooMany) {
  for (int i = 0; i < 3; ++i) add(i, 1);
  for (int i = 3; i < 5; ++i) add(i, 2);
  add(5, 3);
  add(6, 4);
  EXPECT_EQ(cut, (std::vector<int>{0}));
}

TEST_F(SilentConnectionsTest, ThatHaveSpokenDoNotCount) {
  for (int i = 0; i < 10; ++i) {
    add(i, 1);
    remove(i);
    remove(i);  // twice does nothing
  }
  EXPECT_TRUE(cut.empty());
  EXPECT_EQ(connections.size(), 0U);
}

TEST_F(SilentConnectionsTest, MayBeRemovedWhileTheyAreCut) {
  connections.add(&keys[15], 1, [this](const std::string&) { remove(15); });
  for (int i = 0; i < 3; ++i) add(i, 1);
  EXPECT_EQ(connections.size(), 3U);
}

}  // namespace
}  // namespace gpumem::host
