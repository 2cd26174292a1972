#include "tests/fault/fault_fixture.h"

namespace gpumem::test {

void FaultTest::inject(const std::string& rule, pid_t pid) {
  const auto added = sim::add_fault(machine(), rule + " pid " + std::to_string(pid));
  ASSERT_TRUE(added.has_value()) << added.error().message;
}

std::uint64_t FaultTest::hits() const {
  const auto active = sim::faults(machine()).value();
  EXPECT_EQ(active.size(), 1U);
  return active.empty() ? 0 : active[0].hits;
}

void FaultTest::heal() {
  const auto active = sim::faults(machine());
  ASSERT_TRUE(active.has_value()) << active.error().message;
  for (const sim::ActiveFault& fault : *active) {
    EXPECT_GT(fault.hits, 0U) << to_string(fault.fault) << " has hit nothing";
  }
  ASSERT_TRUE(sim::clear_faults(machine()).has_value());
}

void FaultTest::expect_whole_pool_lendable() {
  {
    auto last = client_with({broker_.device().pool()});
    EXPECT_TRUE(succeeded(last->check("a", 0)));
  }
  expect_rest();
}

}  // namespace gpumem::test
