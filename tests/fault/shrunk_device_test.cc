// A device loses memory while the broker lends it.
#include "sim/machine/table.h"
#include "tests/fault/fault_fixture.h"

namespace gpumem::test {
namespace {

/// Lent whole, so that what the device loses is the pool's.
struct ShrunkDevice : FaultTest {
  ShrunkDevice() : FaultTest({.config = kNoSpare}) {}
  void shrink_by(Bytes bytes) {
    const auto table = sim::Table::open(machine());
    ASSERT_TRUE(table.has_value());
    ASSERT_TRUE((*table)->withhold(0, bytes.count).has_value());
  }
};

TEST_F(ShrunkDevice, LendsTheRemainderRefusesMoreWithItsReasonAndGrowsBack) {
  const Bytes whole{broker_.device().pool()};
  auto one = client_with(mebibytes(128));
  shrink_by(mebibytes(32));
  EXPECT_EQ(one->shrink("a", {})["committed"], 0);
  EXPECT_TRUE(eventually([this] { return broker_.device().quarantined() > 0; }));
  EXPECT_TRUE(eventually([&] { return whole.count - broker_.device().free() <= mebibytes(128).count; }));
  const Json refused = one->grow("a", whole);
  EXPECT_TRUE(failed_with(refused, "RESOURCE_EXHAUSTED"));
  EXPECT_TRUE(refused.contains("denial")) << refused;
  EXPECT_TRUE(succeeded(one->grow("a", mebibytes(64))));
  EXPECT_TRUE(succeeded(one->ask({{"do", "ping"}})));
  shrink_by({});
  expect_rest_after(*one);
}

TEST_F(ShrunkDevice, BelowTheLoansTakesNothingFromBorrowers) {
  auto one = client_with(mebibytes(192));
  shrink_by(mebibytes(200));
  EXPECT_TRUE(succeeded(one->grow("a", {broker_.device().pool()}))) << "the broker has that memory already";
  shrink_by({});
  expect_rest_after(*one);
}

}  // namespace
}  // namespace gpumem::test
