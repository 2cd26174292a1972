// Publisher, readers and broker die at every step of a region: nobody reads a wrong byte, and nothing stays.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "base/crash_points.h"
#include "tests/survive/region_scenario.h"

namespace gpumem::test {
namespace {

enum class Keeper { kNone, kManager };

struct RegionPlan {
  CrashPlan plan;
  Keeper keeper = Keeper::kNone;
};

std::string nth(std::string_view point, int n) { return std::string(point) + ":" + std::to_string(n); }

// Both sides let go of regions by the points of sharing.
bool is_of_broker(std::string_view point) {
  return point.starts_with("broker.region.") || point.starts_with("broker.share.release");
}
bool is_of_publisher(std::string_view point) {
  return point.starts_with("client.region.") && !point.starts_with("client.region.map_");
}
bool is_of_reader(std::string_view point) {
  return point.starts_with("client.region.map_") ||
         (point.starts_with("client.share.") && point != "client.share.exported" &&
          !point.starts_with("client.share.import_"));
}

// With a service manager regions outlive their broker; without one they end with it.
std::vector<RegionPlan> region_plans() {
  std::vector<RegionPlan> plans;
  for (const CrashPointEntry& entry : kCrashPoints) {
    for (const int n : {1, 2, 4}) {
      const std::string plan = nth(entry.name, n);
      if (is_of_broker(entry.name)) {
        for (const Keeper keeper : {Keeper::kNone, Keeper::kManager}) plans.push_back({{{plan}, {}}, keeper});
      } else if (is_of_publisher(entry.name)) {
        plans.push_back({{{}, {{"ann", plan}}}});
      } else if (is_of_reader(entry.name)) {
        for (const char* reader : {"mate", "bob"}) plans.push_back({{{}, {{reader, plan}}}});
      }
    }
    if (entry.can_fail && is_of_reader(entry.name))
      plans.push_back({{{}, {{"mate", std::string(entry.name) + "=fail"}}}});
  }
  // Whatever is written down, and not told to anybody.
  for (int n = 5; n <= 60; n += 5)
    plans.push_back({{{nth("broker.journal.written", n)}, {}}, Keeper::kManager});
  for (const char* plan : {"broker.session.closed", "broker.session.ended", "broker.send:20=fail"})
    plans.push_back({{{plan}, {{"ann", "client.region.published:2"}}}, Keeper::kManager});
  return plans;
}

std::string plan_name(const testing::TestParamInfo<RegionPlan>& info) {
  std::string name = to_text(info.param.plan) + (info.param.keeper == Keeper::kManager ? "kept" : "");
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

struct RegionPoints : testing::TestWithParam<RegionPlan> {
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "several tenants are several users: only root can start them";
  }
};
INSTANTIATE_TEST_SUITE_P(Alone, RegionPoints, testing::ValuesIn(region_plans()), plan_name);

TEST_P(RegionPoints, CostNobodyElseAnything) {
  std::optional<StandInManager> manager;
  if (GetParam().keeper == Keeper::kManager) manager.emplace();
  RegionScenario scenario(GetParam().plan, manager ? &*manager : nullptr);
  scenario.play();
  scenario.check_promises();
  if (HasFailure()) std::cerr << to_text(GetParam().plan) << "\n" << scenario.stage().said();
}

}  // namespace
}  // namespace gpumem::test
