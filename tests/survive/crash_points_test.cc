// Whichever process dies, at whichever point, the promises to the others hold.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <random>

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
  if (entry.starts_with("broker.")) return {{entry}, {}};
  return {{}, {{actor_at(entry.substr(0, entry.find_first_of(":="))), entry}}};
}

// Every point, and every call that can fail, but for those of the descriptor store (store_test), of regions
// (region_points_test) and of gpumem-dra (kubernetes_crash_test).
bool has_own_scenario(std::string_view point) {
  return point.starts_with("broker.store.") || point.starts_with("dra.") ||
         point.find(".region.") != std::string_view::npos;
}
std::vector<std::string> all_plans() {
  std::vector<std::string> plans;
  for (const CrashPointEntry& entry : kCrashPoints) {
    if (has_own_scenario(entry.name)) continue;
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

// Bob stops at a point of the library, with whatever he has; also when he has grown before, and has more.
std::vector<std::string> all_stops() {
  std::vector<std::string> plans;
  for (const CrashPointEntry& entry : kCrashPoints) {
    const auto is_of = [&](std::string_view protocol) { return entry.name.starts_with(protocol); };
    if (!is_of("client.") || is_of("client.share.") || is_of("client.region.")) continue;
    // By these he comes when he leaves, if at all; by the last one Cat comes alone.
    if (is_of("client.slice.close") || entry.point == CrashPoint::kClientGoodbye ||
        entry.point == CrashPoint::kClientLeft || entry.point == CrashPoint::kClientSpent)
      continue;
    plans.push_back(std::string(entry.name) + "=stop");
    if (is_of("client.grow.")) plans.push_back(std::string(entry.name) + ":2=stop");
  }
  return plans;
}

using Random = std::mt19937;

// Plans that end the session itself: a client keeps memory for ever that its driver does not unmap.
bool costs_a_session(const std::string& plan) { return plan == "client.return.unmap=fail"; }

// Twice somebody dies or fails, at any of the first times that a point is come by.
CrashPlan random_pair(unsigned seed) {
  std::vector<std::string> plans = all_plans();
  std::erase_if(plans, costs_a_session);
  Random random(seed);
  CrashPlan pair;
  for (int i = 0; i < 2; ++i) {
    std::string plan = plans[random() % plans.size()];
    const std::string name = plan.substr(0, plan.find('='));
    plan.insert(name.size(), ":" + std::to_string(1 + random() % 4));
    if (name.starts_with("broker.")) {
      pair.brokers.push_back(plan);
      continue;
    }
    constexpr std::array<const char*, 4> kActors{"ann", "mate", "bob", "cat"};
    const bool of_one = name.starts_with("client.share.") || name.starts_with("client.pressure.");
    pair.clients.push_back({of_one ? actor_at(name) : kActors[random() % kActors.size()], plan});
  }
  return pair;
}

unsigned seed_of_tests() {
  const char* const told = std::getenv("GPUMEM_TEST_SEED");
  return told == nullptr ? 20'261'123 : static_cast<unsigned>(std::stoul(told));
}

class CrashTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "several tenants are several users: only root can start them";
  }

  static void play_alone(const CrashPlan& plan) {
    CrashScenario scenario(plan);
    scenario.play();
    scenario.await_plan();
    scenario.check_promises();
    tell_of_failure(scenario, to_text(plan));
  }

  static void play_pair(unsigned seed) {
    const CrashPlan plan = random_pair(seed);
    CrashScenario scenario(plan);
    scenario.play();
    scenario.stage().disarm();
    scenario.check_promises();
    tell_of_failure(scenario, "GPUMEM_TEST_SEED=" + std::to_string(seed) + ": " + to_text(plan));
  }

 private:
  static void tell_of_failure(CrashScenario& scenario, const std::string& what) {
    if (HasFailure()) std::cerr << what << "\n" << scenario.stage().said();
  }
};

struct CrashPoints : CrashTest, testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Alone, CrashPoints, testing::ValuesIn(all_plans()), test_name);
TEST_P(CrashPoints, CostNobodyElseAnything) { play_alone(plan_for(GetParam())); }

struct StopPoints : CrashTest, testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Alone, StopPoints, testing::ValuesIn(all_stops()), test_name);
TEST_P(StopPoints, KeepNothingFromOthers) { play_alone({{}, {{"bob", GetParam()}}}); }

struct CrashPairs : CrashTest, testing::WithParamInterface<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Random, CrashPairs, testing::Range(0U, 12U));
TEST_P(CrashPairs, CostNobodyElseAnything) { play_pair(seed_of_tests() + GetParam()); }

// Fifty pairs each.
struct LongCrashPairs : CrashPairs {};
INSTANTIATE_TEST_SUITE_P(Random, LongCrashPairs, testing::Range(0U, 20U));
TEST_P(LongCrashPairs, CostNobodyElseAnything) {
  constexpr unsigned kPairs = 50;
  for (unsigned i = 0; i < kPairs && !HasFailure(); ++i)
    play_pair(seed_of_tests() + 1000 + GetParam() * kPairs + i);
}

}  // namespace
}  // namespace gpumem::test
