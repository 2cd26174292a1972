#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/promises/workload.h"

// Random processes under random policies. GPUMEM_MODEL_STEPS (events of the broker, all worlds together) and
// GPUMEM_MODEL_SEED repeat a run.

namespace gpumem::core::promises {
namespace {

constexpr std::uint64_t kEventsOfAWorld = 5000;

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

struct Seen {
  std::uint64_t events = 0;
  std::uint64_t claims = 0;
  std::uint64_t signals = 0;
  std::uint64_t asked = 0;
  Duration claim_beyond = Duration::min();  ///< deadline and grace, the longest
};

void run_world(std::uint64_t seed, std::uint64_t events, bool shares, Seen& seen) {
  std::mt19937_64 random(seed);
  const Configuration configuration = random_configuration(random);
  World world(configuration.policy, random());
  Workload workload(world, configuration.users, shares, random);
  while (world.events() < events && world.fault().empty()) workload.step();
  if (world.fault().empty()) world.finish();
  ASSERT_EQ(world.fault(), "") << world.history() << "after " << world.events()
                               << " events of the world of GPUMEM_MODEL_SEED=" << seed;
  seen.events += world.events();
  seen.claims += world.promises().claims().seen();
  seen.claim_beyond = std::max(seen.claim_beyond, world.promises().claims().longest_beyond());
  seen.signals += world.signals().size();
  seen.asked += world.asked_ever().size();
}

void run(std::uint64_t events, bool shares) {
  std::uint64_t seed = setting("GPUMEM_MODEL_SEED", 20261122);
  std::printf("GPUMEM_MODEL_SEED=%llu\n", static_cast<unsigned long long>(seed));
  Seen seen;
  for (; seen.events < events && !testing::Test::HasFatalFailure(); ++seed)
    run_world(seed, std::min(kEventsOfAWorld, events - seen.events), shares, seen);
  std::printf(
      "%llu events, %llu claims, at most %lld ms beyond deadline and grace, %llu processes asked, %llu "
      "signals\n",
      static_cast<unsigned long long>(seen.events), static_cast<unsigned long long>(seen.claims),
      static_cast<long long>(seen.claim_beyond / std::chrono::milliseconds(1)),
      static_cast<unsigned long long>(seen.asked), static_cast<unsigned long long>(seen.signals));
  if (testing::Test::HasFatalFailure() || events < 40'000) return;  // too few to have seen everything
  EXPECT_GT(seen.claims, 0u);
  EXPECT_GT(seen.asked, 0u);
  EXPECT_GT(seen.signals, 0u);
}

TEST(Promises, HoldWhateverProcessesDo) { run(setting("GPUMEM_MODEL_STEPS", 40'000), false); }

TEST(Promises, HoldWhereProcessesShareRegions) { run(setting("GPUMEM_MODEL_STEPS", 40'000), true); }

// A session that had nothing to give, and whose time was up first, hid the one that had.
TEST(Promises, HoldInAWorldWhereAClaimWasLate) {
  Seen seen;
  run_world(20340078, kEventsOfAWorld, true, seen);
}

// A session that had said that it has nothing to give inherited a region, and its readers were not asked any
// more.
TEST(Promises, HoldInAWorldWhereReadersOutlivedAHolder) {
  Seen seen;
  run_world(20271803, kEventsOfAWorld, true, seen);
}

// A session was asked for a debt, and later for a request of its tenant. It returned the memory for the debt,
// and kept it mapped.
TEST(Promises, HoldInAWorldWhereTheEarlierOfTwoDeadlinesIsMissed) {
  Seen seen;
  run_world(20261207, kEventsOfAWorld, false, seen);
}

TEST(LongPromises, HoldWhateverProcessesDo) { run(setting("GPUMEM_LONG_MODEL_STEPS", 1'000'000), false); }

TEST(LongPromises, HoldWhereProcessesShareRegions) { run(setting("GPUMEM_LONG_MODEL_STEPS", 400'000), true); }

}  // namespace
}  // namespace gpumem::core::promises
