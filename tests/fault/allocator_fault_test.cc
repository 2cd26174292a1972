// Every driver call an allocator makes fails, at every moment of a fixed program: it is told or does not
// notice, no block is used twice, and all memory comes back.
#include <csignal>

#include "tests/fault/fault_fixture.h"

namespace gpumem::test {
namespace {

struct AllocatorFault : FaultTest {
  std::unique_ptr<ClientProcess> allocating() {
    auto client = std::make_unique<ClientProcess>(broker_.folder());
    EXPECT_TRUE(succeeded(client->connect()));
    EXPECT_TRUE(succeeded(client->ask({{"do", "open_allocator"}, {"idle_ms", 3'600'000}})));
    return client;
  }
  static Json churn(ClientProcess& client) {
    return client.ask({{"do", "churn"}, {"steps", 150}, {"seed", 4}});
  }
  /// As the only fault in force: whether its call came.
  bool came() const { return hits() > 0; }
  void end_faults() { ASSERT_TRUE(sim::clear_faults(machine()).has_value()); }
};

struct AllocatorsDriver : AllocatorFault, testing::WithParamInterface<const char*> {};

TEST_P(AllocatorsDriver, FailureOfAnyOneCallLosesNothing) {
  int failed = 0;
  for (int nth = 1;; ++nth) {
    SCOPED_TRACE("call " + std::to_string(nth));
    auto one = allocating();
    inject(std::string(GetParam()) + " nth " + std::to_string(nth), one->pid());
    EXPECT_TRUE(succeeded(churn(*one)));
    const bool again = came();
    end_faults();
    EXPECT_TRUE(succeeded(churn(*one))) << "it goes on as before";
    EXPECT_TRUE(succeeded(one->ask({{"do", "close_allocator"}})));
    EXPECT_TRUE(eventually([this] { return broker_.device().free() == kPool.count; })) << broker_.unrest();
    EXPECT_EQ(one->leave(), 0);
    if (!again || HasFailure()) break;
    ++failed;
    if (nth >= 12) nth += nth / 4;  // the later ones are of the same kinds
  }
  EXPECT_GT(failed, 0);
  expect_rest();
  expect_whole_pool_lendable();
}

INSTANTIATE_TEST_SUITE_P(Calls, AllocatorsDriver,
                         testing::Values("cuMemImportFromShareableHandle fail OUT_OF_MEMORY",
                                         "cuMemMap fail OUT_OF_MEMORY", "cuMemSetAccess fail INVALID_VALUE",
                                         "cuMemUnmap fail UNKNOWN"),
                         [](const auto& info) {
                           const std::string rule = info.param;
                           return rule.substr(0, rule.find(' '));
                         });

struct AllocatorKilledAt : AllocatorFault, testing::WithParamInterface<std::pair<const char*, int>> {};

TEST_P(AllocatorKilledAt, CallOfTheDriverLeavesNoCharge) {
  auto one = allocating();
  inject(std::string(GetParam().first) + " kill nth " + std::to_string(GetParam().second), one->pid());
  one->tell({{"do", "churn"}, {"steps", 100'000}, {"seed", 4}});
  EXPECT_EQ(one->child().wait(), -SIGKILL);
  heal();
  expect_rest();
  expect_whole_pool_lendable();
}

INSTANTIATE_TEST_SUITE_P(Calls, AllocatorKilledAt,
                         testing::Values(std::pair{"cuMemImportFromShareableHandle", 5},
                                         std::pair{"cuMemMap", 7}, std::pair{"cuMemSetAccess", 3},
                                         std::pair{"cuMemUnmap", 2}),
                         [](const auto& info) { return info.param.first; });

TEST_F(AllocatorFault, BrokersOwnDriverFailingAtRandomLosesNothing) {
  inject_into_broker("cuMemCreate fail OUT_OF_MEMORY probability 0.3 seed 5");
  auto one = allocating();
  for (int round = 0; round < 4; ++round) EXPECT_TRUE(succeeded(churn(*one)));
  EXPECT_TRUE(succeeded(one->ask({{"do", "close_allocator"}})));
  end_faults();
  EXPECT_TRUE(eventually([this] { return broker_.device().free() == kPool.count; })) << broker_.unrest();
  expect_rest_after(*one);
  expect_whole_pool_lendable();
}

TEST_F(AllocatorFault, BrokenContextIsToldAndTheProcessCanStillLeave) {
  auto one = allocating();
  EXPECT_TRUE(succeeded(one->ask({{"do", "allocate"}, {"bytes", mebibytes(32).count}})));
  inject("cu* fail ILLEGAL_ADDRESS", one->pid());
  EXPECT_FALSE(one->ask({{"do", "allocate"}, {"bytes", mebibytes(64).count}})["ok"].get<bool>());
  EXPECT_TRUE(succeeded(one->ask({{"do", "end_allocator"}})));
  EXPECT_TRUE(succeeded(one->disconnect()));
  EXPECT_EQ(one->leave(), 0);
  heal();
  expect_rest();
  expect_whole_pool_lendable();
}

}  // namespace
}  // namespace gpumem::test
