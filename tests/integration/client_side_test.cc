// The library where programs fork and have many threads.
#include "tests/integration/fixture.h"

namespace gpumem::test {
namespace {

using ClientSide = BrokerTest;

TEST_F(ClientSide, CallsOfAForkedChildAreRefusedAndDisturbNothing) {
  auto one = client_with(mebibytes(16));
  EXPECT_TRUE(succeeded(one->write("a", 5)));
  const Json answer = one->ask({{"do", "fork_and_use"}});
  ASSERT_TRUE(succeeded(answer));
  EXPECT_EQ(answer["codes"].size(), 5U);
  for (const auto& [call, code] : answer["codes"].items()) EXPECT_EQ(code, "FAILED_PRECONDITION") << call;
  EXPECT_TRUE(succeeded(one->check("a", 5)));
  EXPECT_TRUE(succeeded(one->grow("a", mebibytes(32))));
  EXPECT_EQ(one->shrink("a", {})["committed"], 0);
  expect_rest_after(*one);
}

TEST_F(ClientSide, EightThreadsGrowAndShrinkTheirOwnAndASharedSlice) {
  ClientProcess one(broker_.folder());
  EXPECT_TRUE(succeeded(one.connect()));
  EXPECT_TRUE(succeeded(one.ask({{"do", "threads"}, {"threads", 8}, {"rounds", 100}})));
  EXPECT_TRUE(eventually([&] { return broker_.device().free() == kPool.count; })) << broker_.unrest();
  EXPECT_EQ(broker_.device().offered(), 0U);
  EXPECT_EQ(one.leave(), 0);
  expect_rest();
}

TEST_F(ClientSide, SessionsFollowEachOtherInOneProcess) {
  ClientProcess one(broker_.folder());
  std::uint64_t last = 0;
  for (int round = 0; round < 10; ++round) {
    const Json answer = one.connect();
    ASSERT_TRUE(succeeded(answer));
    EXPECT_GT(answer["session"], last) << "numbers are not used again";
    last = answer["session"];
    EXPECT_TRUE(succeeded(one.open("a")));
    EXPECT_TRUE(succeeded(one.grow("a", mebibytes(8), std::chrono::seconds(10))));
    EXPECT_TRUE(succeeded(one.disconnect()));
  }
  expect_rest();
}

}  // namespace
}  // namespace gpumem::test
