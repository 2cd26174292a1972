// Whoever dies, and wherever: what was promised to the others holds.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "base/crash_points.h"
#include "tests/survive/crash_scenario.h"

namespace gpumem::test {
namespace {

// Which client of the scenario comes by a point of the library.
std::string actor_at(std::string_view point) {
  for (const std::string_view imports :
       {"client.share.import", "client.share.map", "client.share.unmapped", "client.share.release"})
    if (point.starts_with(imports)) return "mate";
  if (point == "client.pressure.spent") return "cat";
  return point.starts_with("client.pressure.") ? "bob" : "ann";
}

CrashPlan plan_for(const std::string& entry) {
  if (entry.starts_with("broker.")) return {{entry}, {}, {}};
  return {{}, entry, actor_at(entry.substr(0, entry.find_first_of(":=")))};
}

void expect_that_nobody_else_loses_anything(const CrashPlan& plan) {
  CrashScenario scenario(plan);
  scenario.play();
  scenario.check_promises();
  if (testing::Test::HasFailure()) std::cerr << to_text(plan) << "\n" << scenario.stage().said();
}

// Every point, and every call that can fail.
std::vector<std::string> all_plans() {
  std::vector<std::string> plans;
  for (const CrashPointEntry& entry : kCrashPoints) {
    plans.emplace_back(entry.name);
    if (entry.can_fail) plans.push_back(std::string(entry.name) + "=fail");
  }
  return plans;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return c == '.' || c == '=' || c == ':'; }, '_');
  return name;
}

class CrashPoints : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "several tenants are several users: only root can start them";
  }
};
INSTANTIATE_TEST_SUITE_P(Alone, CrashPoints, testing::ValuesIn(all_plans()), test_name);

TEST_P(CrashPoints, CostNobodyElseAnything) { expect_that_nobody_else_loses_anything(plan_for(GetParam())); }

}  // namespace
}  // namespace gpumem::test
