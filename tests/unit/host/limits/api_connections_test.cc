#include "daemon/host/limits/connection_limits.h"

#include <gtest/gtest.h>

namespace gpumem::host {
namespace {

ApiConnections::Caller caller(std::uint32_t uid, bool admin = false) {
  core::Peer peer;
  peer.uid = uid;
  return {peer, admin};
}

struct ApiConnectionsTest : testing::Test {
  bool connect(int number, const ApiConnections::Caller& who) {
    if (!connections.check_room(who)) return false;
    connections.add(number, who);
    return true;
  }
  ApiConnections connections{{.in_all = 3, .of_a_user = 2}};
};

TEST_F(ApiConnectionsTest, AreLimitedForEachUserAndInAll) {
  EXPECT_TRUE(connect(1, caller(10)));
  EXPECT_TRUE(connect(2, caller(10)));
  EXPECT_FALSE(connect(3, caller(10)));
  EXPECT_TRUE(connect(3, caller(11)));
  EXPECT_FALSE(connect(4, caller(12)));
}

TEST_F(ApiConnectionsTest, OfAdministratorsAreNotCounted) {
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(connect(i, caller(0, true)));
  EXPECT_TRUE(connect(10, caller(10)));
}

TEST_F(ApiConnectionsTest, ThatAreGoneMakeRoom) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(connect(i, caller(10)));
    connections.remove(i);
    connections.remove(i);
  }
  EXPECT_FALSE(connections.find(9));
}

TEST_F(ApiConnectionsTest, AreFoundByTheirNumber) {
  EXPECT_TRUE(connect(5, caller(10)));
  EXPECT_EQ(connections.find(5)->peer.uid, 10U);
  EXPECT_FALSE(connections.find(6));
  connections.add(5, caller(11));  // the number belongs to another connection now
  EXPECT_EQ(connections.find(5)->peer.uid, 11U);
}

}  // namespace
}  // namespace gpumem::host
