// The events of the last day reach the next broker, and neither a disk nor a damaged file harms this one.
#include "daemon/host/state/event_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "daemon/host/state/event_log.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/core/policies.h"

namespace gpumem::host {
namespace {

using core::Event;
using std::chrono::hours;
using std::chrono::seconds;
using test::read_file;
using test::write_file;
using testing::HasSubstr;

struct History : testing::Test {
  std::unique_ptr<EventHistory> open(std::vector<std::string> devices = {"GPU-a", "GPU-b"}) {
    auto opened = EventHistory::open(folder_.path(), std::move(devices));
    EXPECT_TRUE(opened) << opened.error().message;
    return opened ? std::move(*opened) : nullptr;
  }
  static std::shared_ptr<const core::LoggedEvent> event(core::WallTime time, std::string words,
                                                        std::string tenant = "ann") {
    Event one;
    one.kind = Event::Kind::kDenied;
    one.tenant = std::move(tenant);
    one.words = std::move(words);
    return std::make_shared<const core::LoggedEvent>(core::LoggedEvent{1, time, std::move(one)});
  }
  void keep(const EventHistory::Events& events) { open()->add(events); }
  std::vector<std::string> words_kept(core::WallTime now) {
    std::vector<std::string> words;
    for (const auto& one : open()->read(now)) words.push_back(one->event.words);
    return words;
  }
  std::filesystem::path file() const { return folder_ / "events.log"; }

  const core::WallTime noon{seconds(1'893'585'600)};
  test::TemporaryFolder folder_;
};

TEST_F(History, KeepsAllThatIsToldOfAnEvent) {
  Event one;
  one.kind = Event::Kind::kPressure;
  one.at = core::TimePoint(seconds(5));
  one.tenant = "group \"x\"";
  one.session = SessionId{7};
  one.job = core::CommandJobId{8};
  one.device = 1;
  one.bytes = gibibytes(3);
  one.request = RequestId{9};
  one.waited = std::chrono::milliseconds(1500);
  one.deadline = one.at + seconds(2);
  one.pid = 4711;
  one.words = "line\nand \xff";
  one.uid = 1001;
  one.closing =
      std::make_shared<const core::Closing>(core::Closing{seconds(60), "train", 1.5e12, gibibytes(2), 4});
  keep({std::make_shared<const core::LoggedEvent>(core::LoggedEvent{3, noon, one})});
  const auto kept = open({"GPU-b", "GPU-c"})->read(noon + seconds(1));
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0]->time, noon);
  const Event& same = kept[0]->event;
  EXPECT_EQ(same.kind, one.kind);
  EXPECT_EQ(same.tenant, one.tenant);
  EXPECT_EQ(same.session, one.session);
  EXPECT_EQ(same.job, one.job);
  EXPECT_EQ(same.device, 0U) << "the same UUID has another place now";
  EXPECT_EQ(same.bytes, one.bytes);
  EXPECT_EQ(same.request, one.request);
  EXPECT_EQ(same.waited, one.waited);
  EXPECT_EQ(same.deadline - same.at, seconds(2));
  EXPECT_EQ(same.pid, one.pid);
  EXPECT_EQ(same.words, "line\nand \xEF\xBF\xBD");
  EXPECT_EQ(same.uid, one.uid);
  ASSERT_NE(same.closing, nullptr);
  EXPECT_EQ(same.closing->lasted, one.closing->lasted);
  EXPECT_EQ(same.closing->name, one.closing->name);
  EXPECT_EQ(same.closing->charged, one.closing->charged);
  EXPECT_EQ(same.closing->peak, one.closing->peak);
  EXPECT_EQ(same.closing->denied, one.closing->denied);
}

TEST_F(History, IsOfTheLastDay) {
  keep({event(noon - hours(25), "old"), event(noon - hours(23), "new"), event(noon + hours(1), "future")});
  const auto kept = open()->read(noon);
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0]->event.words, "new");
  EXPECT_EQ(kept[1]->time, noon + hours(1)) << "an event has the same time in each list";
}

TEST_F(History, LosesLinesThatAreDamagedAndNoOthers) {
  keep({event(noon, "one"), event(noon, "two"), event(noon, "three")});
  std::string text = read_file(file());
  text[text.find("two") - 4] = '{';
  write_file(file(), "\x01garbage\n{\"kind\":7}\n[]\n" + text + text.substr(0, 40));
  EXPECT_THAT(words_kept(noon), testing::ElementsAre("one", "three"));
  keep({event(noon, "four")});
  EXPECT_THAT(words_kept(noon), testing::ElementsAre("one", "three", "four")) << "behind a part of a line";
}

TEST_F(History, IsBoundedOnTheDisk) {
  const std::string words(EventLog::kMostWords, 'x');
  for (int i = 0; i < 3; ++i) keep(EventHistory::Events(5'000, event(noon, words)));
  std::uintmax_t bytes = 0;
  for (const auto& one : std::filesystem::directory_iterator(folder_.path())) bytes += one.file_size();
  EXPECT_LE(bytes, 3 * EventHistory::kMostBytes);
  EXPECT_GE(words_kept(noon).size(), 3'000U);
}

TEST_F(History, IsSharedByTenantsSoThatNoneLosesItsEventsToAnother) {
  keep({event(noon, "why")});
  const std::string words(EventLog::kMostWords, 'x');
  for (int i = 0; i < 3; ++i) keep(EventHistory::Events(5'000, event(noon, words, "bob")));
  EXPECT_EQ(words_kept(noon).front(), "why");
}

TEST_F(History, OfATenantIsWrittenThoughAnotherHasMoreEventsThanWaitToBeWritten) {
  EventHistory::Events events(2 * EventHistory::kMostUnwritten, event(noon, "loud", "bob"));
  events.push_back(event(noon, "quiet"));
  keep(events);
  EXPECT_EQ(words_kept(noon).back(), "quiet");
}

TEST_F(History, OfAFullDiskIsLostAndGoesOnWhenThereIsRoom) {
  keep({event(noon, "before")});
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{std::filesystem::file_size(file()) + 10, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  keep({event(noon, "lost")});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  keep({event(noon, "after")});
  EXPECT_THAT(words_kept(noon), testing::ElementsAre("before", "after"));
}

TEST_F(History, ThatCannotBeOpenedSaysWhy) {
  std::filesystem::create_directory(file());
  const auto opened = EventHistory::open(folder_.path(), {});
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr(file().string()));
}

struct NextLog : History, core::EventWatcher {
  bool tell(const std::shared_ptr<const core::LoggedEvent>& event, const core::Broker&) override {
    heard.push_back(event);
    return true;
  }
  bool caught_up() override { return true; }
  void closed() override {}

  core::Broker broker{core::small_policy()};
  std::vector<std::shared_ptr<const core::LoggedEvent>> heard;
};

TEST_F(NextLog, GoesOnWhereTheBrokerBeforeEnded) {
  Event one;
  one.words = "second";
  for (const char* words : {"first", "second"}) {
    EventLog log;
    log.begin(open(), noon);
    one.words = words;
    log.add({one}, broker, one.at, noon);
  }
  EventLog log;
  log.begin(open(), noon);
  log.watch(std::shared_ptr<EventWatcher>(std::shared_ptr<void>(), this), core::WallTime{}, broker);
  one.words = "third";
  log.add({one}, broker, one.at, noon);
  ASSERT_EQ(heard.size(), 3U);
  for (std::size_t i = 0; i < heard.size(); ++i) EXPECT_EQ(heard[i]->sequence, i + 1);
  EXPECT_EQ(heard[0]->event.words, "first");
  EXPECT_EQ(heard[2]->event.words, "third");
}

}  // namespace
}  // namespace gpumem::host
