// A client is killed at a driver call of its choosing: what it held, or was about to hold, comes back.
#include <csignal>

#include "tests/fault/fault_fixture.h"

namespace gpumem::test {
namespace {

struct KilledAt : FaultTest, testing::WithParamInterface<std::pair<std::string, int>> {
  std::string rule() const { return GetParam().first + " kill nth " + std::to_string(GetParam().second); }
};

struct KilledGrowing : KilledAt {};

TEST_P(KilledGrowing, CostsNobodyAnything) {
  auto other = client_with(mebibytes(16));
  EXPECT_TRUE(succeeded(other->write("a", 9)));
  auto one = client_with(mebibytes(8));
  inject(rule(), one->pid());
  one->tell({{"do", "grow"}, {"slice", "a"}, {"target", mebibytes(50).count}, {"wait_ms", 0}});
  EXPECT_EQ(one->child().wait(), -SIGKILL);
  EXPECT_TRUE(eventually([this] { return broker_.device().free() == (kPool - mebibytes(16)).count; }))
      << broker_.unrest();
  EXPECT_TRUE(succeeded(other->check("a", 9)));
  EXPECT_EQ(other->leave(), 0);
  heal();
  expect_rest();
  expect_whole_pool_lendable();
}

INSTANTIATE_TEST_SUITE_P(
    Calls, KilledGrowing,
    testing::Values(std::pair{std::string("cuMemImportFromShareableHandle"), 1},
                    std::pair{std::string("cuMemImportFromShareableHandle"), 3},
                    std::pair{std::string("cuMemMap"), 1}, std::pair{std::string("cuMemMap"), 3},
                    std::pair{std::string("cuMemSetAccess"), 1}, std::pair{std::string("cuMemRelease"), 2}),
    [](const auto& info) { return info.param.first + std::to_string(info.param.second); });

struct KilledShrinking : KilledAt {};

TEST_P(KilledShrinking, CostsNobodyAnything) {
  auto one = client_with(mebibytes(50));
  inject(rule(), one->pid());
  one->tell({{"do", "shrink"}, {"slice", "a"}, {"target", 0}});
  EXPECT_EQ(one->child().wait(), -SIGKILL);
  EXPECT_TRUE(eventually([this] { return broker_.at_rest(); })) << broker_.unrest();
  heal();
  expect_rest();
  expect_whole_pool_lendable();
}

INSTANTIATE_TEST_SUITE_P(Calls, KilledShrinking, testing::Values(std::pair{std::string("cuMemUnmap"), 1}),
                         [](const auto& info) { return info.param.first; });

using KilledLeaving = FaultTest;

TEST_F(KilledLeaving, CostsNobodyAnything) {
  auto one = client_with(mebibytes(50));
  inject("cuMemAddressFree kill", one->pid());
  one->tell({{"do", "disconnect"}});
  EXPECT_EQ(one->child().wait(), -SIGKILL);
  heal();
  expect_rest();
  expect_whole_pool_lendable();
}

}  // namespace
}  // namespace gpumem::test
