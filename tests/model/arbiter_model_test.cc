#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/model/arbiter_world.h"

// Random events for the ledger and the arbiter, against the rules of docs/arbiter.md stated the slow way.
// Every world has a number, from which its shape and its events follow. GPUMEM_MODEL_EVENTS: how many events;
// GPUMEM_MODEL_SEED: the first world's number; GPUMEM_MODEL_TRACE: tells the events.

namespace gpumem::core::model {
namespace {

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

ArbiterWorld::Seen live_through(std::uint64_t events) {
  constexpr std::uint64_t kEventsOfAWorld = 300;
  ArbiterWorld::Seen seen;
  std::uint64_t seed = setting("GPUMEM_MODEL_SEED", 1);
  for (std::uint64_t done = 0; done < events; ++seed) {
    ArbiterWorld world(seed);
    for (std::uint64_t i = 0; i < kEventsOfAWorld && done < events && world.fault().empty(); ++i, ++done) {
      world.step();
    }
    if (world.fault().empty()) world.finish();
    EXPECT_EQ(world.fault(), "") << "GPUMEM_MODEL_SEED=" << seed;
    if (!world.fault().empty()) break;
    seen.add(world.seen());
  }
  return seen;
}

void expect_agreement(std::uint64_t events) {
  const auto seen = live_through(setting("GPUMEM_MODEL_EVENTS", events));
  if (testing::Test::HasFailure()) return;
  std::printf("%llu grants (%llu joint, %llu partial); events with waiters %llu, claims %llu, overdue %llu\n",
              static_cast<unsigned long long>(seen.grants), static_cast<unsigned long long>(seen.joint),
              static_cast<unsigned long long>(seen.partial), static_cast<unsigned long long>(seen.waits),
              static_cast<unsigned long long>(seen.claims), static_cast<unsigned long long>(seen.overdue));
  EXPECT_GT(seen.joint, 0u);
  EXPECT_GT(seen.partial, 0u);
  EXPECT_GT(seen.claims, 0u);
  EXPECT_GT(seen.overdue, 0u);
  EXPECT_GT(seen.debts, 0u);
  EXPECT_GT(seen.covered, 0u);
}

TEST(ArbiterModel, AgreesWithTheRulesAfterEveryRandomEvent) { expect_agreement(30'000); }

TEST(LongArbiterModel, AgreesWithTheRulesThroughAMillionEvents) { expect_agreement(1'200'000); }

}  // namespace
}  // namespace gpumem::core::model
