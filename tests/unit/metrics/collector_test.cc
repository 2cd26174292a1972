// Metrics of the core's events, by tenant.
#include "daemon/metrics/collector.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/unit/core/machine.h"

namespace gpumem::metrics {
namespace {

using core::Event;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct CollectorTest : testing::Test {
  void tell(Event event) {
    event.at = machine.now;
    collector.tell(std::make_shared<core::LoggedEvent>(core::LoggedEvent{++last, {}, std::move(event)}),
                   machine.broker);
  }
  // All that the broker has to tell.
  void tell_all() {
    machine.collect();
    for (Event& event : std::exchange(machine.events, {})) tell(std::move(event));
  }
  void tell_of(const std::string& tenant, Event::Kind kind = Event::Kind::kFreed, SessionId session = {}) {
    Event event;
    event.kind = kind;
    event.tenant = tenant;
    event.session = session;
    event.device = 0;
    event.bytes = mebibytes(2);
    tell(event);
  }
  std::map<std::string, Collector::ByDevice> all() { return collector.page("", 1000, machine.broker); }
  Counters of(const std::string& tenant) { return all()[tenant][0]; }

  core::Machine machine;
  Collector collector;
  std::uint64_t last = 0;
};

TEST(Histogram, CountsAnObservationInEachBucketThatItIsNotLongerThan) {
  Histogram histogram;
  histogram.observe(milliseconds(1));
  histogram.observe(milliseconds(700));
  histogram.observe(std::chrono::hours(2));
  histogram.observe(milliseconds(-5));
  const auto counts = histogram.cumulative();
  EXPECT_EQ(counts[0], 2u) << "a bound is part of its bucket, and less than nothing is nothing";
  EXPECT_EQ(counts[3], 2u);
  EXPECT_EQ(counts[4], 3u);
  EXPECT_EQ(counts[Histogram::kBounds.size() - 1], 3u);
  EXPECT_EQ(counts.back(), 4u);
  EXPECT_DOUBLE_EQ(histogram.sum(), 0.001 + 0.7 + 7200);
}

TEST_F(CollectorTest, CountsGrantsAndThePeakOfATenant) {
  const SessionId session = machine.connect(1);
  const SliceId slice = machine.slice(session);
  machine.grow(session, slice, mebibytes(8));
  tell_all();
  machine.grow(session, slice, mebibytes(12));
  tell_all();
  machine.die(session);
  tell_all();
  const Counters ann = of("ann");
  EXPECT_EQ(ann.granted, mebibytes(20));
  EXPECT_EQ(ann.freed, mebibytes(20));
  EXPECT_EQ(ann.peak, mebibytes(20)) << "what is gone has been there";
  EXPECT_EQ(ann.grant_wait.cumulative().back(), 2u);
  EXPECT_EQ(collector.events()[static_cast<std::size_t>(Event::Kind::kOpened)], 1u);
  EXPECT_EQ(collector.events()[static_cast<std::size_t>(Event::Kind::kGranted)], 2u);
}

TEST_F(CollectorTest, CountsHowLongADeniedRequestWaited) {
  const SessionId bob = machine.connect(2), ann = machine.connect(1);
  machine.get(bob, machine.slice(bob), mebibytes(40));
  machine.grow(ann, machine.slice(ann), mebibytes(40), seconds(3));
  machine.pass(seconds(4));
  tell_all();
  EXPECT_EQ(of("ann").denial_wait.cumulative().back(), 1u);
  EXPECT_GE(of("ann").denial_wait.sum(), 3);
}

TEST_F(CollectorTest, TimesAReclaimFromTheFirstQuestionUntilNothingIsAskedAnyMore) {
  tell_of("ann", Event::Kind::kPressure, SessionId{7});
  machine.now += seconds(1);
  tell_of("ann", Event::Kind::kPressure, SessionId{7});
  tell_of("bob", Event::Kind::kRelieved, SessionId{8});  // was never asked
  machine.now += seconds(1);
  tell_of("ann", Event::Kind::kRelieved, SessionId{7});
  EXPECT_DOUBLE_EQ(of("ann").reclaim.sum(), 2);
  EXPECT_EQ(of("ann").reclaim.cumulative().back(), 1u);
  EXPECT_EQ(of("bob").reclaim.cumulative().back(), 0u);
}

TEST_F(CollectorTest, EndsAReclaimWithTheProcess) {
  tell_of("ann", Event::Kind::kPressure, SessionId{7});
  machine.now += seconds(3);
  Event death;
  death.kind = Event::Kind::kDied;
  death.tenant = "ann";
  death.session = SessionId{7};
  tell(death);
  EXPECT_DOUBLE_EQ(of("ann").reclaim.sum(), 3);
  tell_of("ann", Event::Kind::kRelieved, SessionId{7});
  EXPECT_EQ(of("ann").reclaim.cumulative().back(), 1u) << "once";
}

TEST_F(CollectorTest, ForgetsReclaimsOfSessionsThatAreGone) {
  tell_of("ann", Event::Kind::kPressure, SessionId{7});
  collector.begin_round(machine.broker);
  machine.now += seconds(3);
  tell_of("ann", Event::Kind::kRelieved, SessionId{7});
  EXPECT_EQ(of("ann").reclaim.cumulative().back(), 0u);
}

TEST_F(CollectorTest, GivesNoMorePlacesToUsersThanThereAre) {
  for (std::size_t uid = 0; uid < 10 * Collector::kMostUsers; ++uid) tell_of("uid:" + std::to_string(uid));
  const auto tenants = all();
  EXPECT_EQ(tenants.size(), Collector::kMostUsers);
  EXPECT_TRUE(tenants.contains("uid:" + std::to_string(10 * Collector::kMostUsers - 1)))
      << "nobody has a session: the latest have the places";
}

TEST_F(CollectorTest, KeepsThePlacesOfConfiguredTenantsUnderManyUsers) {
  tell_of("ann");
  for (std::size_t uid = 0; uid < 10 * Collector::kMostUsers; ++uid) tell_of("uid:" + std::to_string(uid));
  EXPECT_EQ(of("ann").freed, mebibytes(2));
}

TEST_F(CollectorTest, ForgetsTenantsThatAreNotConfiguredAnyMore) {
  tell_of("ann");
  tell_of("carol");
  EXPECT_TRUE(all().contains("ann"));
  EXPECT_FALSE(all().contains("carol"));
}

TEST_F(CollectorTest, PagesAreBehindOneAnother) {
  for (const char* name : {"ann", "bob"}) tell_of(name);
  EXPECT_EQ(collector.page("", 1, machine.broker).begin()->first, "ann");
  EXPECT_EQ(collector.page("ann", 1, machine.broker).begin()->first, "bob");
  EXPECT_TRUE(collector.page("bob", 1, machine.broker).empty());
}

// Users who have sessions keep their places; who comes then is counted together with others.
TEST(CollectorOfACrowd, CountsUsersWithoutAPlaceTogether) {
  core::Policy policy = core::small_policy();
  policy.others = std::vector<core::Quota>{{{}, mebibytes(64)}};
  core::Machine machine(policy);
  Collector collector;
  std::uint64_t last = 0;
  const auto tell_all = [&] {
    machine.collect();
    for (Event& event : std::exchange(machine.events, {}))
      collector.tell(std::make_shared<core::LoggedEvent>(core::LoggedEvent{++last, {}, std::move(event)}),
                     machine.broker);
  };
  SessionId first;
  for (std::uint32_t i = 0; i <= Collector::kMostUsers; ++i) {
    const SessionId session = machine.connect(1000 + i);
    if (!first) first = session;
    EXPECT_EQ(collector.name_of("uid:" + std::to_string(1000 + i), machine.broker),
              i < Collector::kMostUsers ? "uid:" + std::to_string(1000 + i) : "uid:other");
    if (i < Collector::kMostUsers) continue;
    machine.grow(session, machine.slice(session), mebibytes(4));
  }
  tell_all();
  auto page = collector.page("", 1000, machine.broker);
  EXPECT_EQ(page.size(), Collector::kMostUsers + 1);
  EXPECT_EQ(page["uid:other"][0].granted, mebibytes(4));
  machine.die(first);
  tell_all();
  collector.begin_round(machine.broker);
  EXPECT_EQ(collector.name_of("uid:" + std::to_string(1000 + Collector::kMostUsers), machine.broker),
            "uid:" + std::to_string(1000 + Collector::kMostUsers))
      << "a place is free";
}

}  // namespace
}  // namespace gpumem::metrics
