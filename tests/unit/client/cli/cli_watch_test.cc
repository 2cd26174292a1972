// What `gpumem events` and `gpumem why` print.
#include <gtest/gtest.h>

#include <set>

#include "base/text/time_format.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"

namespace gpumem::cli::test {
namespace {

constexpr std::uint64_t kGibibyte = std::uint64_t{1} << 30;

TEST(Span, IsAsExactAsItIsShort) {
  EXPECT_EQ(span_text(std::chrono::milliseconds(20)), "20ms");
  EXPECT_EQ(span_text(std::chrono::milliseconds(1500)), "1.5s");
  EXPECT_EQ(span_text(std::chrono::seconds(75)), "1m 15s");
}

v1::Event event(const std::string& kind) {
  v1::Event event;
  event.set_sequence(5);
  event.set_time("2030-01-02T12:00:00.123456Z");
  event.set_kind(kind);
  event.set_tenant("red");
  event.set_session(7);
  event.set_pid(123);
  event.set_device("GPU-12345678-aaaa");
  event.set_bytes(2 * kGibibyte);
  return event;
}

TEST(EventsView, SaysInOneLineWhatHappened) {
  v1::Event granted = event("granted");
  granted.set_waited_ms(1500);
  EXPECT_EQ(
      event_line(granted),
      "2030-01-02T12:00:00.123456Z  granted      red  session 7 (pid 123)  GPU-12345678  2GiB granted after "
      "1.5s\n");
  v1::Event pressure = event("pressure");
  pressure.set_within_ms(2000);
  EXPECT_NE(event_line(pressure).find("asked to give 2GiB back within 2.0s"), std::string::npos);
}

TEST(EventsView, OfWordsFromElsewhereIsStillOneHarmlessLine) {
  v1::Event denied = event("denied");
  denied.set_words("a\nb\033[2J");
  EXPECT_NE(event_line(denied).find(": a?b?[2J\n"), std::string::npos) << event_line(denied);
  denied.set_words("\xFF");
  EXPECT_TRUE(Json::accept(event_json_line(denied)));
}

TEST(EventsView, ShowsAKindThatItDoesNotKnow) {
  EXPECT_NE(event_line(event("danced")).find("danced"), std::string::npos);
}

TEST(EventsView, HasStableJson) {
  const std::string line = event_json_line(event("freed"));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const Json json = Json::parse(line);
  EXPECT_EQ(json["sequence"], 5);
  EXPECT_EQ(json["kind"], "freed");
  EXPECT_EQ(json["bytes"], 2 * kGibibyte);
  EXPECT_TRUE(json["words"].is_null());
  for (const char* key : {"time", "tenant", "session", "pid", "device", "request", "waited_ms", "within_ms"})
    EXPECT_TRUE(json.contains(key)) << key;
}

v1::ExplainResponse explained() {
  v1::ExplainResponse explained;
  explained.set_tenant("red");
  v1::Standing& standing = *explained.add_devices();
  standing.set_device("GPU-1");
  standing.set_charged(3 * kGibibyte);
  standing.set_limit(8 * kGibibyte);
  v1::Denial& denial = *explained.add_waiting();
  denial.set_reason(v1::Denial::REASON_NO_MEMORY);
  denial.set_request(12);
  denial.set_session(7);
  denial.set_asked(4 * kGibibyte);
  denial.set_waited_ms(4200);
  denial.set_wait_limit_ms(60'000);
  denial.set_waiters_ahead(2);
  denial.set_pool(24 * kGibibyte);
  denial.set_free(kGibibyte);
  denial.mutable_soonest()->set_known(true);
  denial.mutable_soonest()->set_within_ms(2000);
  denial.mutable_soonest()->set_why("memory is on its way back");
  return explained;
}

TEST(WhyView, TellsPeopleEverything) {
  const std::string text = why_text(explained());
  for (const char* words :
       {"tenant red\n", "charged 3GiB of at most 8GiB", "request 12 of session 7 waits for 4GiB",
        "for 4.2s of 1m 0s, ahead of it: 2\n", "of the pool of 24GiB, 1GiB are free",
        "soonest: within 2.0s: memory is on its way back"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " in\n" << text;
  }
  EXPECT_EQ(text.find("beyond"), std::string::npos) << "there is none";
}

TEST(WhyView, SaysThatNothingWaits) {
  v1::ExplainResponse idle = explained();
  idle.clear_waiting();
  EXPECT_NE(why_text(idle).find("no request waits"), std::string::npos);
}

TEST(WhyView, HasWordsForEveryReason) {
  std::set<std::string> words;
  for (int reason = 1; reason < v1::Denial::Reason_ARRAYSIZE; ++reason) {
    v1::Denial denial;
    denial.set_reason(static_cast<v1::Denial::Reason>(reason));
    words.insert(obstacle_words(denial));
    EXPECT_EQ(obstacle_words(denial).find("does not know"), std::string::npos) << reason;
  }
  EXPECT_EQ(words.size(), static_cast<std::size_t>(v1::Denial::Reason_ARRAYSIZE - 1));
}

TEST(WhyView, HasStableJson) {
  const Json json = why_json(explained());
  EXPECT_EQ(json["tenant"], "red");
  EXPECT_EQ(json["devices"][0]["charged"], 3 * kGibibyte);
  const Json& waiting = json["waiting"][0];
  EXPECT_EQ(waiting["reason"], "no-memory");
  EXPECT_EQ(waiting["waiters_ahead"], 2);
  EXPECT_EQ(waiting["soonest_ms"], 2000);
  EXPECT_TRUE(waiting["limiting_tenant"].is_null());
}

}  // namespace
}  // namespace gpumem::cli::test
