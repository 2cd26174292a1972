#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/model/world.h"
#include "tests/unit/core/policies.h"

// Random events against an independent, naive reference. GPUMEM_MODEL_STEPS (all shapes together) and
// GPUMEM_MODEL_SEED repeat a run.

namespace gpumem::core::model {
namespace {

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

Quota pieces(std::uint64_t guarantee, std::uint64_t limit, std::uint32_t weight = kDefaultWeight,
             std::uint32_t priority = kDefaultPriority) {
  return {mebibytes(2 * guarantee), mebibytes(2 * limit), weight, priority};
}

Shape shape(std::string name, std::vector<std::uint64_t> pools, std::vector<TenantRule> tenants,
            std::optional<std::vector<Quota>> others, std::uint64_t largest) {
  Policy policy;
  for (std::size_t i = 0; i < pools.size(); ++i) {
    policy.devices.push_back(device("GPU-" + std::to_string(i), mebibytes(2 * pools[i])));
  }
  policy.tenants = std::move(tenants);
  policy.others = std::move(others);
  policy.max_sessions = 10;
  policy.max_slices_per_session = 4;
  policy.max_requests_per_session = 5;
  policy.aging = std::chrono::seconds(3);
  return {std::move(name), std::move(policy), 6, number(mebibytes(2 * largest))};
}

/// A group of two, whose members' guarantees fill its own in part; one besides, of a higher priority.
std::vector<TenantRule> family() {
  return {parent("lab", {pieces(24, 40, 300)}), user("ann", 1, {pieces(8, 40, 1)}, "lab"),
          user("bob", 2, {pieces(4, 20, 7)}, "lab"), user("eve", 3, {pieces(0, 64, 100, 7)})};
}

Shape lending(std::string name, Escalation escalation) {
  Shape one = shape(std::move(name), {64}, family(), {{pieces(2, 64)}}, 40);
  one.policy.devices[0].reclaim.lend_guarantees = true;
  one.policy.devices[0].reclaim.escalation = escalation;
  return one;
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  all.push_back(
      shape("OnePiece", {1}, {user("ann", 1, {pieces(1, 1)}), user("bob", 2, {pieces(0, 1)})}, {}, 2));
  all.push_back(shape("Tiny", {8}, {user("ann", 1, {pieces(3, 6)}), user("bob", 2, {pieces(0, 8)})},
                      {{pieces(1, 4)}}, 6));
  all.push_back(shape("Small", {32}, {user("ann", 1, {pieces(8, 32)}), user("bob", 2, {pieces(8, 16)})},
                      {{pieces(0, 32)}}, 24));
  all.push_back(shape("NoGuarantees", {100},
                      {user("ann", 1, {pieces(0, 100)}), user("bob", 2, {pieces(0, 300)})}, {{pieces(0, 40)}},
                      90));
  all.push_back(shape("AllGuaranteed", {64},
                      {user("ann", 1, {pieces(40, 64)}), user("bob", 2, {pieces(24, 64)})}, {}, 48));
  all.push_back(shape(
      "TwoDevices", {64, 24},
      {user("ann", 1, {pieces(16, 64), pieces(0, 24)}), user("bob", 2, {pieces(0, 40), pieces(12, 24)})},
      {{pieces(6, 20), pieces(2, 24)}}, 40));
  all.push_back(shape("Large", {12'288},
                      {user("ann", 1, {pieces(4096, 12'288)}), user("bob", 2, {pieces(0, 8192)})},
                      {{pieces(512, 2048)}}, 3000));
  all.push_back(shape("Groups", {64}, family(), {{pieces(2, 64)}}, 40));
  all.push_back(lending("Lending", Escalation::kWait));
  all.push_back(lending("LendingThatDenies", Escalation::kDeny));
  all.push_back(lending("LendingThatEndsSessions", Escalation::kEndSession));
  return all;
}

void add(const World::Seen& one, World::Seen& sum) {
  sum.grants += one.grants;
  sum.refusals += one.refusals;
  sum.waits += one.waits;
  sum.unobtainable += one.unobtainable;
  sum.quarantines += one.quarantines;
  sum.shortages += one.shortages;
  sum.pressure += one.pressure;
  sum.signals += one.signals;
  sum.claims += one.claims;
  sum.quiet_looks += one.quiet_looks;
  sum.past_broker_looks += one.past_broker_looks;
  sum.other_looks += one.other_looks;
}

void expect_agreement(const Shape& shape, std::uint64_t all_steps) {
  constexpr std::uint64_t kStepsOfAWorld = 1500;
  const std::uint64_t seed = setting("GPUMEM_MODEL_SEED", 20'240'611);
  const std::uint64_t steps = setting("GPUMEM_MODEL_STEPS", all_steps) / shapes().size();
  std::printf("seed %llu, %llu steps\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(steps));
  std::mt19937_64 random(seed);
  World::Seen seen;
  for (std::uint64_t done = 0; done < steps;) {
    World world(shape, random);
    for (std::uint64_t i = 0; i < kStepsOfAWorld && done < steps; ++i, ++done) {
      world.step();
      ASSERT_EQ(world.fault(), "") << "at step " << done << ", GPUMEM_MODEL_SEED=" << seed;
    }
    world.finish();
    ASSERT_EQ(world.fault(), "") << "at step " << done << ", GPUMEM_MODEL_SEED=" << seed;
    add(world.seen(), seen);
  }
  std::printf(
      "%llu grants, %llu refusals, %llu unobtainable, %llu signals; steps with waiters %llu, claims %llu, "
      "pressure %llu, quarantine %llu, shortage %llu; looks with memory past the broker at rest %llu, others "
      "%llu\n",
      static_cast<unsigned long long>(seen.grants), static_cast<unsigned long long>(seen.refusals),
      static_cast<unsigned long long>(seen.unobtainable), static_cast<unsigned long long>(seen.signals),
      static_cast<unsigned long long>(seen.waits), static_cast<unsigned long long>(seen.claims),
      static_cast<unsigned long long>(seen.pressure), static_cast<unsigned long long>(seen.quarantines),
      static_cast<unsigned long long>(seen.shortages),
      static_cast<unsigned long long>(seen.past_broker_looks),
      static_cast<unsigned long long>(seen.other_looks));
  if (steps < 10'000) return;  // too few to have seen everything
  EXPECT_GT(seen.grants, 0u);
  EXPECT_GT(seen.refusals, 0u);
  EXPECT_GT(seen.waits, 0u);
  EXPECT_GT(seen.quarantines, 0u);
  EXPECT_GT(seen.shortages, 0u);
  EXPECT_GT(seen.quiet_looks, 0u);
  const bool has_room = shape.policy.devices[0].pool > kPiece;  // besides a lease
  EXPECT_TRUE(seen.past_broker_looks > 0 || !has_room);
  EXPECT_GT(seen.other_looks, 0u);
}

class Model : public testing::TestWithParam<Shape> {};

TEST_P(Model, AgreesWithTheReferenceAfterEveryRandomEvent) { expect_agreement(GetParam(), 150'000); }

class LongModel : public Model {};

TEST_P(LongModel, AgreesAndAccountsForEveryByteThroughAMillionEvents) {
  expect_agreement(GetParam(), 1'000'000);
}

INSTANTIATE_TEST_SUITE_P(OfEveryShape, Model, testing::ValuesIn(shapes()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(LongOfEveryShape, LongModel, testing::ValuesIn(shapes()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gpumem::core::model
