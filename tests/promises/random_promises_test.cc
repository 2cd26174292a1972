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
  std::uint64_t covered = 0;  ///< growths within what their job had reserved
  std::uint64_t contexts_of_pool = 0;
  std::uint64_t pins = 0;
  std::uint64_t refused_pins = 0;
  Duration claim_beyond = Duration::min();  ///< deadline and grace, the longest
};

void run_world(std::uint64_t seed, std::uint64_t events, Workload::Habits habits, Seen& seen) {
  std::mt19937_64 random(seed);
  Configuration configuration = random_configuration(random);
  configuration.policy.reserve_idle = std::chrono::seconds(5);
  for (DevicePolicy& device : configuration.policy.devices)
    if (habits.elastic) device.pool_mode = PoolMode::kElastic;
  if (habits.host) {
    configuration.policy.devices.back().uuid = kHostStore;
    configuration.policy.devices.back().context_overhead = {};
  }
  World world(configuration.policy, random());
  if (habits.read_late) world.read_late(seed);
  if (habits.contexts) world.make_contexts_explicit();
  Workload workload(world, configuration.users, habits, random);
  while (world.events() < events && world.fault().empty()) workload.step();
  if (world.fault().empty()) world.finish();
  ASSERT_EQ(world.fault(), "") << world.history() << "after " << world.events()
                               << " events of the world of GPUMEM_MODEL_SEED=" << seed;
  seen.events += world.events();
  seen.claims += world.promises().claims().seen();
  seen.claim_beyond = std::max(seen.claim_beyond, world.promises().claims().longest_beyond());
  seen.signals += world.signals().size();
  seen.asked += world.asked_ever().size();
  seen.covered += world.covered();
  seen.contexts_of_pool += world.contexts_of_pool();
  seen.pins += world.pins();
  seen.refused_pins += world.refused_pins();
}

void run(std::uint64_t events, Workload::Habits habits) {
  std::uint64_t seed = setting("GPUMEM_MODEL_SEED", 20261122);
  habits.read_late = true;
  std::printf("GPUMEM_MODEL_SEED=%llu\n", static_cast<unsigned long long>(seed));
  Seen seen;
  for (; seen.events < events && !testing::Test::HasFatalFailure(); ++seed)
    run_world(seed, std::min(kEventsOfAWorld, events - seen.events), habits, seen);
  std::printf(
      "%llu events, %llu claims, at most %lld ms beyond deadline and grace, %llu processes asked, %llu "
      "signals, %llu growths within reservations\n",
      static_cast<unsigned long long>(seen.events), static_cast<unsigned long long>(seen.claims),
      static_cast<long long>(seen.claim_beyond / std::chrono::milliseconds(1)),
      static_cast<unsigned long long>(seen.asked), static_cast<unsigned long long>(seen.signals),
      static_cast<unsigned long long>(seen.covered));
  if (testing::Test::HasFatalFailure() || events < 40'000) return;  // too few to have seen everything
  EXPECT_GT(seen.claims, 0u);
  EXPECT_GT(seen.asked, 0u);
  EXPECT_GT(seen.signals, 0u);
  if (habits.jobs) {
    EXPECT_GT(seen.covered, 0u);
  }
  if (habits.contexts) {
    EXPECT_GT(seen.contexts_of_pool, 0u);
  }
  if (habits.host) {
    EXPECT_GT(seen.pins, 0u);
    EXPECT_GT(seen.refused_pins, 0u);
  }
}

TEST(Promises, HoldWhateverProcessesDo) { run(setting("GPUMEM_MODEL_STEPS", 40'000), {}); }

TEST(Promises, HoldWhereProcessesShareRegions) {
  run(setting("GPUMEM_MODEL_STEPS", 40'000), {.shares = true});
}

TEST(Promises, HoldWhereProcessesAreOfJobs) { run(setting("GPUMEM_MODEL_STEPS", 40'000), {.jobs = true}); }

TEST(Promises, HoldWhereProcessesOfJobsShareRegions) {
  run(setting("GPUMEM_MODEL_STEPS", 40'000), {.shares = true, .jobs = true});
}

TEST(Promises, HoldWhereContextsTakeRoomOfThePool) {
  run(setting("GPUMEM_MODEL_STEPS", 40'000), {.contexts = true});
}

TEST(Promises, HoldWherePoolsAreElastic) {
  run(setting("GPUMEM_MODEL_STEPS", 40'000), {.jobs = true, .elastic = true});
}

TEST(Promises, HoldForTheHostStore) {
  run(setting("GPUMEM_MODEL_STEPS", 40'000), {.shares = true, .jobs = true, .elastic = true, .host = true});
}

// A session that had nothing to give, and whose time was up first, hid the one that had.
TEST(Promises, HoldInAWorldWhereAClaimWasLate) {
  Seen seen;
  run_world(20340078, kEventsOfAWorld, {.shares = true}, seen);
}

// A session that had said that it has nothing to give inherited a region, and its readers were not asked any
// more.
TEST(Promises, HoldInAWorldWhereReadersOutlivedAHolder) {
  Seen seen;
  run_world(20271803, kEventsOfAWorld, {.shares = true}, seen);
}

// A session was asked for a debt, and later for a request of its tenant. It returned the memory for the debt,
// and kept it mapped.
TEST(Promises, HoldInAWorldWhereTheEarlierOfTwoDeadlinesIsMissed) {
  Seen seen;
  run_world(20261207, kEventsOfAWorld, {}, seen);
}

// A process let go of a region as it ended. The memory passed as a proof for a liar's, and an honest reader
// of the region was ended for what was not proved free.
TEST(Promises, HoldInAWorldWhereALiarTookAnothersProof) {
  Seen seen;
  run_world(20310020, kEventsOfAWorld, {.shares = true, .jobs = true, .contexts = true}, seen);
}

// A session without a lane was ended for a request that had come after the one that it was first asked for.
TEST(Promises, HoldInAWorldWhereOneClaimFollowsAnother) {
  Seen seen;
  run_world(33000024, kEventsOfAWorld,
            {.shares = true, .jobs = true, .elastic = true, .host = true, .read_late = true}, seen);
}

// A claim was met, and an older request became one. A session that shared memory with a liar was ended by the
// deadline of the first, before the one that it had been told since.
TEST(Promises, HoldInAWorldWhereAnOlderRequestIsAClaimLater) {
  Seen seen;
  run_world(42000053, kEventsOfAWorld, {.shares = true, .read_late = true}, seen);
}

// Memory of a region came to a tenant two levels below the group that was granted memory in the same event.
TEST(Promises, HoldInAWorldWhereAGroupOfAGroupInheritsARegion) {
  Seen seen;
  run_world(46000004, kEventsOfAWorld, {.shares = true, .read_late = true}, seen);
}

TEST(LongPromises, HoldWhateverProcessesDo) { run(setting("GPUMEM_LONG_MODEL_STEPS", 1'000'000), {}); }

TEST(LongPromises, HoldWhereProcessesShareRegions) {
  run(setting("GPUMEM_LONG_MODEL_STEPS", 400'000), {.shares = true});
}

TEST(LongPromises, HoldWherePoolsAreElastic) {
  run(setting("GPUMEM_LONG_MODEL_STEPS", 400'000), {.jobs = true, .elastic = true});
}

TEST(LongPromises, HoldForTheHostStore) {
  run(setting("GPUMEM_LONG_MODEL_STEPS", 1'000'000),
      {.shares = true, .jobs = true, .elastic = true, .host = true});
}

TEST(LongPromises, HoldWhereProcessesOfJobsShareRegionsAndMakeContexts) {
  run(setting("GPUMEM_LONG_MODEL_STEPS", 400'000), {.shares = true, .jobs = true, .contexts = true});
}

}  // namespace
}  // namespace gpumem::core::promises
