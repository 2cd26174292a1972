// The kept events, and the events that subscribers get.
#include "daemon/host/state/event_log.h"

#include <gtest/gtest.h>

#include "tests/unit/core/policies.h"

namespace gpumem::host {
namespace {

using core::Event;
using std::chrono::microseconds;
using std::chrono::seconds;

struct Reader final : core::EventWatcher {
  bool tell(const std::shared_ptr<const core::LoggedEvent>& event, const core::Broker&) override {
    heard.push_back(event);
    return heard.size() < most;
  }
  bool caught_up() override {
    heard_before = heard.size();
    return follows;
  }
  void closed() override { ++ends; }

  std::vector<std::shared_ptr<const core::LoggedEvent>> heard;
  std::size_t most = std::numeric_limits<std::size_t>::max();
  std::size_t heard_before = 0;
  bool follows = true;
  int ends = 0;
};

struct EventLogTest : testing::Test {
  // An event `ago` before the clocks show `wall`.
  void happens(core::WallTime wall, core::Duration ago = {}, std::string words = {},
               std::string tenant = {}) {
    Event event;
    event.tenant = std::move(tenant);
    event.at = steady - ago;
    event.words = std::move(words);
    log.add({event}, broker, steady, wall);
  }
  std::shared_ptr<Reader> reader(std::optional<core::WallTime> since = {}) {
    auto made = std::make_shared<Reader>();
    log.watch(made, since, broker);
    return made;
  }

  const core::WallTime noon{seconds(1'893'585'600)};
  const core::TimePoint steady{seconds(1000)};
  core::Broker broker{core::small_policy()};
  EventLog log;
};

TEST_F(EventLogTest, TellsFollowersOfEachEventInItsOrder) {
  const auto one = reader();
  happens(noon);
  happens(noon + seconds(1));
  ASSERT_EQ(one->heard.size(), 2U);
  EXPECT_EQ(one->heard[0]->sequence, 1U);
  EXPECT_EQ(one->heard[1]->sequence, 2U);
  EXPECT_EQ(one->heard[1]->time, noon + seconds(1));
}

TEST_F(EventLogTest, TellsTheTimeOfTheEventAndNotOfItsLogging) {
  const auto one = reader();
  happens(noon, seconds(3));
  EXPECT_EQ(one->heard[0]->time, noon - seconds(3));
}

TEST_F(EventLogTest, GoesBackInTimeOnlyWithAClockThatIsSetBack) {
  const auto one = reader();
  happens(noon);
  happens(noon - std::chrono::milliseconds(10));
  EXPECT_EQ(one->heard[1]->time, noon) << "of two processors";
  happens(noon - std::chrono::hours(1));
  EXPECT_EQ(one->heard[2]->time, noon - std::chrono::hours(1)) << "nothing waits for the wrong time to come";
}

// A subscriber asks since the last event that it knows. It hears the later ones.
TEST_F(EventLogTest, TellsWhatCameAfterAnEventThoughTheClockWasSetBack) {
  using std::chrono::hours;
  for (const auto time : {noon, noon + hours(2), noon + hours(2), noon + seconds(1), noon + seconds(2)})
    happens(time);
  const auto first_of = [&](core::WallTime since) { return reader(since)->heard.at(0)->sequence; };
  EXPECT_EQ(first_of(noon + hours(2)), 2U);
  EXPECT_EQ(first_of(noon + seconds(1)), 4U) << "not again what the clock was ahead for";
  EXPECT_EQ(reader(noon + hours(1))->heard.size(), 2U) << "an instant of no event";
}

TEST_F(EventLogTest, TellsKeptEventsSinceAnInstantOnce) {
  for (int i = 0; i < 5; ++i) happens(noon + seconds(i));
  const auto one = reader(noon + seconds(3));
  EXPECT_EQ(one->heard_before, 2U);
  EXPECT_EQ(one->heard[0]->sequence, 4U);
  happens(noon + seconds(9));
  EXPECT_EQ(one->heard.size(), 3U);
  EXPECT_TRUE(reader()->heard.empty()) << "since now";
}

TEST_F(EventLogTest, KeepsTheLastOnly) {
  for (std::size_t i = 0; i < EventLog::kMostKept + 10; ++i) happens(noon);
  const auto one = reader(noon);
  EXPECT_EQ(one->heard.size(), EventLog::kMostKept);
  EXPECT_EQ(one->heard.front()->sequence, 11U);
}

TEST_F(EventLogTest, IsSharedByTenantsSoThatNoneLosesItsEventsToAnother) {
  happens(noon, {}, "why", "ann");
  for (std::size_t i = 0; i < 3 * EventLog::kMostKept; ++i) happens(noon, {}, {}, i % 2 == 0 ? "bob" : "cat");
  happens(noon, {}, "last", "ann");
  const auto one = reader(noon);
  EXPECT_EQ(one->heard.size(), EventLog::kMostKept);
  EXPECT_EQ(one->heard.front()->event.words, "why");
  EXPECT_EQ(one->heard.back()->event.words, "last");
}

TEST_F(EventLogTest, CutsLongWordsBetweenCharacters) {
  const auto one = reader();
  std::string words;
  while (words.size() < 2 * EventLog::kMostWords) words += "\xC3\xA9";
  happens(noon, {}, words);
  const std::string& kept = one->heard[0]->event.words;
  EXPECT_LE(kept.size(), EventLog::kMostWords);
  EXPECT_GT(kept.size(), EventLog::kMostWords - 8);
  EXPECT_EQ(kept.size() % 2, 1U) << "whole characters of two bytes, and three points";
  EXPECT_TRUE(kept.ends_with("..."));
}

TEST_F(EventLogTest, DropsSubscribersThatAreDone) {
  const auto one = std::make_shared<Reader>();
  one->most = 2;
  log.watch(one, {}, broker);
  for (int i = 0; i < 5; ++i) happens(noon);
  EXPECT_EQ(one->heard.size(), 2U);
  EXPECT_EQ(one.use_count(), 1);
}

TEST_F(EventLogTest, DropsSubscribersOfKeptEventsAlone) {
  happens(noon);
  const auto one = std::make_shared<Reader>();
  one->follows = false;
  log.watch(one, noon, broker);
  EXPECT_EQ(one->heard.size(), 1U);
  EXPECT_EQ(one.use_count(), 1);
}

TEST_F(EventLogTest, ForgetsSubscribersThatLeave) {
  const auto one = reader();
  log.unwatch(*one);
  happens(noon);
  EXPECT_TRUE(one->heard.empty());
}

TEST_F(EventLogTest, TellsItsEndOnceAlsoToLateSubscribers) {
  const auto one = reader();
  log.close();
  log.close();
  EXPECT_EQ(one->ends, 1);
  EXPECT_EQ(reader(noon)->ends, 1);
}

}  // namespace
}  // namespace gpumem::host
