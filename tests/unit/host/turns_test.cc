// Deficit round robin, in virtual time: the clock advances by what each piece of work is said to cost.
#include "daemon/host/loop/turns.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "daemon/host/loop/processor_clock.h"

namespace gpumem::host {
namespace {

using core::Duration;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Flow kAnn{Flow::Kind::kUser, 1};
constexpr Flow kBob{Flow::Kind::kUser, 2};
constexpr Flow kEve{Flow::Kind::kUser, 3};
constexpr Flow kRoot{Flow::Kind::kAdministrator, 0};
constexpr Flow kRootOfContainer{Flow::Kind::kUser, 0};

struct TurnsTest : testing::Test {
  void add(const Flow& flow, Duration cost, int count = 1) {
    for (int i = 0; i < count; ++i) {
      turns.add(flow, [this, flow, cost] {
        now += cost;
        used[flow] += cost;
        done.push_back(flow);
      });
    }
  }
  // As a client that asks anew as soon as it is answered.
  void keep_asking(const Flow& flow, Duration cost) {
    turns.add(flow, [this, flow, cost] {
      now += cost;
      used[flow] += cost;
      keep_asking(flow, cost);
    });
  }
  void run_until_done() {
    while (turns.run_stretch()) continue;
  }
  /// How long `flow` waits until a piece of its work is done that comes now.
  Duration wait_of(const Flow& flow, Duration cost = {}) {
    const core::TimePoint asked = now;
    bool served = false;
    turns.add(flow, [&] {
      now += cost;
      served = true;
    });
    while (!served) turns.run_stretch();
    return now - asked - cost;
  }

  core::TimePoint now{};
  Turns turns{[this] { return now; }};
  std::map<Flow, Duration> used;
  std::vector<Flow> done;
};

TEST_F(TurnsTest, WorkOfOneFlowIsDoneInItsOrder) {
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) {
    turns.add(kAnn, [&order, i, this] {
      now += milliseconds(2);
      order.push_back(i);
    });
  }
  run_until_done();
  EXPECT_EQ(order, (std::vector{0, 1, 2, 3, 4}));
  EXPECT_TRUE(turns.empty());
}

TEST_F(TurnsTest, TurnEndsAfterTheWorkThatPassesTheQuantum) {
  add(kAnn, microseconds(400), 5);
  add(kBob, microseconds(400), 5);
  run_until_done();
  // Before the round by stretches, until the first quantum is used up; then in turns.
  EXPECT_EQ(done, (std::vector{kAnn, kBob, kAnn, kBob, kAnn, kBob, kAnn, kAnn, kBob, kBob}));
}

TEST_F(TurnsTest, FlowThatUsesLessThanItsShareWaitsForAStretchAndNotForTurns) {
  for (const Flow& flow : {kOwnFlow, kConnectionsFlow, kRoot, kBob, kEve})
    keep_asking(flow, microseconds(100));
  while (used[kEve] < 2 * Turns::kQuantum) turns.run_stretch();
  for (int i = 0; i < 2'000; ++i) {  // a round has about 11 ms
    for (int k = 0; k < 4; ++k) turns.run_stretch();
    EXPECT_LE(wait_of(kAnn, microseconds(20)), Turns::kStretch + microseconds(100));
  }
}

TEST_F(TurnsTest, FlowThatUsesMoreThanItsShareWaitsForItsPlaceInTheRound) {
  for (const Flow& flow : {kBob, kEve}) keep_asking(flow, microseconds(100));
  for (int i = 0; i < 2'000; ++i) {  // Ann asks a moment after each answer
    wait_of(kAnn);
    now += microseconds(1);
    add(kAnn, milliseconds(1));
    turns.run_stretch();
  }
  EXPECT_LE(used[kAnn], used[kEve] + 2 * Turns::kQuantum);
}

TEST_F(TurnsTest, NumberOfPiecesBuysNoTime) {
  add(kEve, microseconds(100), 30'000);  // of very many sessions
  add(kAnn, microseconds(100));
  EXPECT_LE(wait_of(kAnn), Turns::kQuantum + microseconds(200));
}

TEST_F(TurnsTest, LongWorkIsPaidBackInLaterRounds) {
  keep_asking(kEve, milliseconds(20));
  keep_asking(kAnn, microseconds(50));
  while (now < core::TimePoint{} + std::chrono::seconds(4)) turns.run_stretch();
  EXPECT_NEAR(static_cast<double>(used[kEve] / microseconds(1)),
              static_cast<double>(used[kAnn] / microseconds(1)), 25'000);
}

TEST_F(TurnsTest, FlowThatWasIdleStillOwes) {
  keep_asking(kAnn, microseconds(500));
  add(kEve, milliseconds(50));
  while (used[kEve].count() == 0) turns.run_stretch();
  EXPECT_GE(wait_of(kEve), milliseconds(45));  // since Ann has work all the time
}

TEST_F(TurnsTest, DebtDelaysNothingWhereNobodyElseWaits) {
  add(kEve, milliseconds(50));
  run_until_done();
  EXPECT_EQ(wait_of(kEve), Duration::zero());
}

TEST_F(TurnsTest, NobodyIsStarvedByWorkThatServesAll) {
  for (const Flow& flow : {kOwnFlow, kConnectionsFlow, kRoot, kBob}) keep_asking(flow, microseconds(100));
  const Duration round = 2 * Turns::kQuantaForAll * Turns::kQuantum + 2 * Turns::kQuantum;
  EXPECT_LE(wait_of(kAnn), round + microseconds(400));
}

TEST_F(TurnsTest, RootOfAContainerHasTheTurnsOfAUser) {
  keep_asking(kRootOfContainer, microseconds(100));
  add(kEve, microseconds(100), 50);
  EXPECT_LE(wait_of(kRoot), 2 * Turns::kQuantum + microseconds(200));
}

struct ProcessorClockTest : testing::Test {
  /// Microseconds that the clock counts for a piece of work.
  std::int64_t charged(microseconds passes, microseconds runs) {
    const auto before = clock();
    wall += passes;
    processor += runs;
    return std::chrono::duration_cast<microseconds>(clock() - before).count();
  }

  static inline core::TimePoint wall, processor;
  ProcessorClock clock{[] { return wall; }, [] { return processor; }};
};

TEST_F(ProcessorClockTest, TimeOfOthersOnTheProcessorDoesNotCount) {
  EXPECT_EQ(charged(microseconds(4000), microseconds(100)), 100);
  EXPECT_EQ(charged(microseconds(300), microseconds(300)), 300);
}

TEST_F(ProcessorClockTest, ShortTimesCountWholeAndOnce) {
  EXPECT_EQ(charged(microseconds(30), microseconds(10)), 30);
  EXPECT_EQ(charged(microseconds(20), microseconds(20)), 20);
  EXPECT_EQ(charged(microseconds(4000), microseconds(100)), 80) << "20 more were counted than it had run";
  EXPECT_EQ(charged(microseconds(4000), microseconds(100)), 100);
}

}  // namespace
}  // namespace gpumem::host
