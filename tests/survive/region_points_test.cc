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

using Part = RegionScenario::Part;

struct RegionPlan {
  CrashPlan plan;
  Keeper keeper = Keeper::kNone;
  Part part = Part::kLife;
};

std::string nth(std::string_view point, int n) { return std::string(point) + ":" + std::to_string(n); }

// The points that each process reaches in a part, by the prefixes of their names.
struct Comers {
  Part part;
  std::vector<std::string_view> broker, ann, mate, bob;
};

// Both sides let go of regions by the points of sharing.
std::vector<Comers> all_comers() {
  return {
      {Part::kReservations,
       {"broker.region.reserve", "broker.region.release", "broker.region.wait", "broker.region.publish"},
       {"client.region.reserve", "client.region.publish"},
       {"client.region.reserve", "client.region.release"},
       {}},
  };
}

bool begins_with_one(std::string_view point, const std::vector<std::string_view>& beginnings) {
  return std::ranges::any_of(beginnings, [&](std::string_view one) { return point.starts_with(one); });
}

bool has_other_part(std::string_view point) {
  return begins_with_one(point, {"broker.region.reserve", "broker.region.release", "client.region.reserve",
                                 "client.region.release"});
}
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
void add_other_parts(std::vector<RegionPlan>& plans, const std::vector<int>& times) {
  for (const Comers& comers : all_comers()) {
    for (const CrashPointEntry& entry : kCrashPoints) {
      for (const int n : times) {
        const std::string plan = nth(entry.name, n);
        if (begins_with_one(entry.name, comers.broker)) {
          for (const Keeper keeper : {Keeper::kNone, Keeper::kManager})
            plans.push_back({{{plan}, {}}, keeper, comers.part});
        }
        const std::pair<const char*, const std::vector<std::string_view>&> clients[] = {
            {"ann", comers.ann}, {"mate", comers.mate}, {"bob", comers.bob}};
        for (const auto& one : clients)
          if (begins_with_one(entry.name, one.second))
            plans.push_back({{{}, {{one.first, plan}}}, Keeper::kNone, comers.part});
      }
    }
  }
}

// Somebody dies when he has come by a point so many times.
std::vector<RegionPlan> plans_of(const std::vector<int>& times) {
  std::vector<RegionPlan> plans;
  add_other_parts(plans, times);
  for (const CrashPointEntry& entry : kCrashPoints) {
    if (has_other_part(entry.name)) continue;
    for (const int n : times) {
      const std::string plan = nth(entry.name, n);
      if (is_of_broker(entry.name)) {
        for (const Keeper keeper : {Keeper::kNone, Keeper::kManager}) plans.push_back({{{plan}, {}}, keeper});
      } else if (is_of_publisher(entry.name)) {
        plans.push_back({{{}, {{"ann", plan}}}});
      } else if (is_of_reader(entry.name)) {
        for (const char* reader : {"mate", "bob"}) plans.push_back({{{}, {{reader, plan}}}});
      }
    }
  }
  return plans;
}

std::vector<RegionPlan> region_plans() {
  std::vector<RegionPlan> plans = plans_of({1});
  for (const CrashPointEntry& entry : kCrashPoints) {
    if (entry.can_fail && is_of_reader(entry.name))
      plans.push_back({{{}, {{"mate", std::string(entry.name) + "=fail"}}}});
  }
  // The broker dies after it has written a change, and before anybody learns of it.
  for (const Comers& comers : all_comers()) {
    for (int n = 8; n <= 28; n += 4)
      plans.push_back({{{nth("broker.journal.written", n)}, {}}, Keeper::kManager, comers.part});
  }
  for (int n = 5; n <= 60; n += 5)
    plans.push_back({{{nth("broker.journal.written", n)}, {}}, Keeper::kManager});
  for (const char* plan : {"broker.session.closed", "broker.session.ended", "broker.send:20=fail"})
    plans.push_back({{{plan}, {{"ann", "client.region.published:2"}}}, Keeper::kManager});
  return plans;
}

std::string plan_name(const testing::TestParamInfo<RegionPlan>& info) {
  constexpr const char* kParts[] = {"life", "reservations", "handles"};
  std::string name = std::string(kParts[static_cast<int>(info.param.part)]) + " " + to_text(info.param.plan) +
                     (info.param.keeper == Keeper::kManager ? "kept" : "");
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

void play(const RegionPlan& plan) {
  std::optional<StandInManager> manager;
  if (plan.keeper == Keeper::kManager) manager.emplace();
  RegionScenario scenario(plan.plan, plan.part, manager ? &*manager : nullptr);
  scenario.play();
  scenario.check_promises();
  if (testing::Test::HasFailure()) std::cerr << to_text(plan.plan) << "\n" << scenario.stage().said();
}

TEST_P(RegionPoints, CostNobodyElseAnything) { play(GetParam()); }

/// Plans for the second and the fourth time that a point is reached.
struct LongRegionPoints : RegionPoints {};
INSTANTIATE_TEST_SUITE_P(Again, LongRegionPoints, testing::ValuesIn(plans_of({2, 4})), plan_name);
TEST_P(LongRegionPoints, CostNobodyElseAnything) { play(GetParam()); }

}  // namespace
}  // namespace gpumem::test
