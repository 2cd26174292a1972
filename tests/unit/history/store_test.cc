#include "daemon/history/store.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <random>

#include "daemon/history/event_report.h"
#include "tests/unit/history/samples.h"

namespace gpumem::history {
namespace {

constexpr std::int64_t kStep = 10;  // seconds between two samples of the day

struct StoreTest : testing::Test {
  Store open(std::uint64_t most = kRoom) {
    auto store = Store::open(file, most);
    EXPECT_TRUE(store) << store.error().message;
    return std::move(*store);
  }
  test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "history.db";
};

// Known usage, on a machine whose broker is killed 18 times in a day, each time losing a second, and that
// starts anew twice, when accounts begin at zero.
class Day {
 public:
  static double level(int tenant, std::int64_t second) {
    return kGiB * static_cast<double>((second / 700 + 3 * tenant) % 5);
  }
  static double expected(int tenant) {
    double all = 0;
    for (std::int64_t second = 0; second < kDay; ++second) all += level(tenant, second);
    return all;
  }
  // Of each second of the day; made once, as a child process has the numbers from the test.
  Day() {
    for (int tenant = 0; tenant < kTenants; ++tenant) {
      double counted = 0;
      for (std::int64_t second = 0; second <= kDay; ++second) {
        counts_[tenant].push_back(counted);
        counted += level(tenant, second);
        if (second % 4320 == 4000) counted -= level(tenant, second);
        if (second % 30'000 == 29'999) counted = 0;
      }
    }
  }
  Sample at(std::int64_t second) const {
    const std::int64_t run = second / 30'000;
    Sample sample = sample_at(second, {}, "boot " + std::to_string(run));
    sample.steady = std::chrono::seconds(second - run * 30'000);
    for (int tenant = 0; tenant < kTenants; ++tenant)
      sample.accounts.push_back(
          account("tenant " + std::to_string(tenant), {}, counts_[tenant][static_cast<std::size_t>(second)]));
    return sample;
  }
  static constexpr int kTenants = 3;

 private:
  std::array<std::vector<double>, kTenants> counts_;
};

TEST_F(StoreTest, HasADayOfRestartsAndKillsToAThousandth) {
  const Day day;
  auto* progress = new (::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
      std::atomic<std::int64_t>(0);
  std::mt19937 random(7);
  for (int life = 0; life <= 3; ++life) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto store = Store::open(file, kRoom);
      bool is_good = store.has_value();
      for (; is_good && *progress <= kDay; *progress += kStep)
        is_good = store->add(day.at(*progress)).has_value();
      ::_exit(is_good ? 0 : 1);
    }
    const auto last = static_cast<std::int64_t>(random() % 20'000 + 22'000 * static_cast<unsigned>(life));
    while (life < 3 && *progress < last && ::waitpid(child, nullptr, WNOHANG) == 0) ::usleep(100);
    if (life < 3) ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_EQ(status, life < 3 ? SIGKILL : 0);
  }
  const Json totals = shown(file, by({By::kTenant, By::kDay}));
  const Json minutes = shown(file, by({By::kTenant}, kMonday + 60, kMonday + kDay - 60));
  for (int i = 0; i < Day::kTenants; ++i) {
    const std::string tenant = "tenant " + std::to_string(i);
    EXPECT_NEAR(sum(totals, tenant) / Day::expected(i), 1, 0.001);
    EXPECT_NEAR(sum(minutes, tenant) / Day::expected(i), 1, 0.003) << "without two minutes";
  }
  ::munmap(progress, 4096);
}

TEST_F(StoreTest, AddsWhatAccountsCountAndBeginsAnewWithThem) {
  Store store = open();
  struct Step {
    Sample sample;
    double sum;
  };
  const std::vector<Step> steps{
      {sample_at(10, {account("a", 7, 100)}), 100},           {sample_at(11, {account("a", 7, 150)}), 150},
      {sample_at(12, {account("a", 7, 140)}), 150},            // after a broker that lost a second
      {sample_at(13, {account("a", 7, 160)}), 160},            // of which 10 were counted before
      {sample_at(20, {account("a", 7, 30, 15)}), 190},         // another account of the name
      {sample_at(21, {account("a", 7, 35, 15)}), 195},         // which goes on
      {sample_at(40, {account("a", 7, 1000)}, "next"), 1195},  // the machine has started anew
      {sample_at(35, {account("a", 7, 1010)}, "next"), 1205},  // the clock was set back
  };
  for (const Step& step : steps) {
    add(store, step.sample);
    EXPECT_EQ(sum(shown(file, by({By::kTenant})), "a"), step.sum) << step.sample.time - kMonday;
  }
  EXPECT_EQ(sum(shown(file, by({By::kTenant}, kMonday + 11, kMonday + 14)), "a"), 60);
}

TEST_F(StoreTest, DropsTheFinestFirstAndNeverTheDays) {
  constexpr std::uint64_t kLittle = 400 << 10;
  Store store = open(kLittle);
  for (std::int64_t second = 0; second < 30 * kDay; second += 300) {
    std::vector<Account> accounts;
    for (int i = 0; i < 5; ++i)
      accounts.push_back(account("tenant " + std::to_string(i), {}, 1.1 * static_cast<double>(second + 1)));
    add(store, sample_at(second, accounts));
  }
  EXPECT_LT(std::filesystem::file_size(file), 2 * kLittle);
  const Json all = shown(file, by({By::kTenant, By::kDay}, kMonday));
  EXPECT_NEAR(sum(all, "tenant 3"), 1.1 * (30 * kDay - 299), 1);
  EXPECT_EQ(all["rows"].size(), 150U);
  const Json late = shown(file, by({By::kTenant}, kMonday + 30 * kDay - 900));
  EXPECT_NEAR(sum(late, "tenant 3"), 990, 1) << "the latest minutes are there";
  const Json early = shown(file, by({By::kTenant}, kMonday + 900, kMonday + 1800));
  EXPECT_EQ(early["until"], "2026-11-03T00:00:00Z") << "the oldest are not: a day is shown";
}

/// Counts a byte in each second. After two minutes, the clock is ten years ahead for `samples`, so many
/// seconds apart; after that it is right for four minutes. The second of the day when these begin.
std::int64_t leap(Store& store, int samples, std::int64_t step) {
  constexpr std::int64_t kTenYears = 3650 * kDay;
  std::int64_t second = 0;
  const auto take = [&](std::int64_t ahead) {
    Sample sample = sample_at(second, {account("a", 7, static_cast<double>(second))});
    sample.time += ahead;
    add(store, sample);
  };
  for (; second < 120; ++second) take(0);
  for (; samples > 0; --samples, second += step) take(kTenYears);
  const std::int64_t begin = second;
  for (; second < begin + 240; ++second) take(0);
  return begin;
}

TEST_F(StoreTest, DropsNothingBecauseTheClockWasAheadForAMoment) {
  Store store = open();
  leap(store, 60, 1);
  const Json answer = shown(file, by({By::kTenant}, kMonday + 10, kMonday + 40));
  EXPECT_EQ(answer["since"], "2026-11-02T00:00:10Z");
  EXPECT_EQ(sum(answer, "a"), 30);
}

TEST_F(StoreTest, IsAsExactAsBeforeOnceTheClockIsSetBack) {
  Store store = open();
  const std::int64_t begin = kMonday + leap(store, 180, 3600);
  const Json answer = shown(file, by({By::kTenant}, begin + 200, begin + 230));
  EXPECT_EQ(answer["since"], date_of(begin + 200));
  EXPECT_EQ(sum(answer, "a"), 30);
}

TEST_F(StoreTest, HasAllHoursThoughTheClockWasBehindForAMoment) {
  Store store = open();
  const auto take = [&](std::int64_t second, std::int64_t behind = 0) {
    Sample sample = sample_at(second, {account("a", 7, static_cast<double>(second))});
    sample.time -= behind;
    add(store, sample);
  };
  std::int64_t second = 0;
  for (; second < 8 * 3600; second += 30) take(second);
  for (const std::int64_t begin = second; second < begin + 70; ++second) take(second, 400 * kDay);
  for (const std::int64_t begin = second; second < begin + 240; ++second) take(second);
  EXPECT_NEAR(sum(shown(file, by({By::kTenant}, kMonday + 60)), "a"), static_cast<double>(second - 61 - 70),
              60);
}

TEST_F(StoreTest, HasNothingOfTheTimeAfterTheQuestions) {
  Store store = open();
  for (std::int64_t second = 0; second < 600; ++second)
    add(store, sample_at(second, {account("a", 7, static_cast<double>(second))}));
  EXPECT_NEAR(sum(shown(file, by({By::kTenant}, 0, kMonday + 200)), "a"), 200, 1);
}

TEST_F(StoreTest, MakesRoomThoughTheClockWasSetBack) {
  Store store = open(1);  // every row is too much
  const std::int64_t begin = leap(store, 180, 3600);
  EXPECT_EQ(sum(shown(file, by({By::kTenant})), "a"), static_cast<double>(begin + 239)) << "days stay";
}

TEST_F(StoreTest, HasEventsOncePeaksAndEnds) {
  Store store = open();
  Sample sample = sample_at(100, {account("a", 7, 5), account("", {}, 5)});
  sample.charged = {{{"a", "GPU-1"}, 70}, {{"", "GPU-1"}, 70}};
  sample.counts[{kMonday + 90, "a", "GPU-1"}] = {.denied = 3, .ended = 1};
  sample.ends.push_back({kMonday + 90, {"a", "GPU-1"}, 4, 1234, "a guarantee needs its memory"});
  sample.position = {77, 2};
  add(store, sample);
  sample = sample_at(101, {account("a", 7, 6)});
  sample.charged = {{{"a", "GPU-1"}, 60}};
  add(store, sample);
  EXPECT_EQ(open().position(), (EventPosition{77, 2}));
  Sample earlier = sample_at(102, {});
  earlier.position = {50, 1};
  add(store, earlier);
  EXPECT_EQ(open().position(), (EventPosition{50, 1})) << "the clock was set back";
  for (const std::string tenant : {"a", ""}) {
    const Json answer = shown(file, by({By::kTenant}));
    EXPECT_EQ(sum(answer, tenant, "denied"), 3);
    EXPECT_EQ(sum(answer, tenant, "ended"), 1);
    EXPECT_EQ(sum(answer, tenant, "peak"), 70);
    EXPECT_EQ(answer["ends"][0]["words"], "a guarantee needs its memory");
  }
}

/// So many bytes of an event, an end and a closing are its tenant's own choice.
struct RoomForEvents : StoreTest, testing::WithParamInterface<std::size_t> {};

TEST_P(RoomForEvents, IsSharedAmongTenants) {
  constexpr std::uint64_t kLittle = 400 << 10;
  const std::string text(GetParam(), '<');
  Store store = open(kLittle);
  for (std::int64_t second = 0; second < 121; ++second) {
    Sample sample = sample_at(second, {account("a", 7, static_cast<double>(second))});
    if (second < 5) sample.events.push_back(event(second, "quiet", {}));
    for (int i = 0; i < 20; ++i) sample.events.push_back(event(second, "loud", {}, {{"region", text}}));
    for (int i = 0; i < 20; ++i)
      sample.closed.push_back({.time = kMonday + second, .tenant = "loud", .session = 1, .name = text});
    for (int i = 0; i < 20; ++i) sample.ends.push_back({kMonday + second, {"loud", "GPU-1"}, 1, 1, text});
    sample.position = {second + 1, 1};
    add(store, sample);
  }
  const std::uint64_t of_a_minute = std::uint64_t{60} * 60 * text.size();
  EXPECT_LT(std::filesystem::file_size(file), 2 * kLittle + 2 * of_a_minute);
  const auto events = history::events(file, by({}), 0, {true});
  ASSERT_TRUE(events);
  const auto of = [&](const std::string& tenant) {
    return std::ranges::count_if((*events)["events"],
                                 [&](const Json& one) { return one["tenant"] == tenant; });
  };
  EXPECT_EQ(of("quiet"), 5) << "another tenant's do not drive them out";
  EXPECT_GT(of("loud"), 100);
  EXPECT_EQ(sum(shown(file, by({By::kTenant}, kMonday + 60, kMonday + 90)), "a"), 30)
      << "nor are rows of usage";
}

INSTANTIATE_TEST_SUITE_P(Texts, RoomForEvents, testing::Values(0, 1000));

}  // namespace
}  // namespace gpumem::history
