// Many commands at once: nothing that only informs ends one of them, and each has what it reserves.
#include <random>

#include "tests/run/fixture.h"

namespace gpumem::test {
namespace {

struct ManyAtOnce : RunTest {
  ManyAtOnce() : RunTest({.simulate = "1x24GiB", .config = "[broker]\nreserve = \"all-but 8GiB\"\n"}) {}

  std::vector<RunningCli> begin_many(int count, const std::vector<std::string>& words) const {
    std::vector<RunningCli> all;
    for (int i = 0; i < count; ++i) all.push_back(begin(words));
    return all;
  }
  static void expect_that_each_runs(std::vector<RunningCli>& all) {
    for (RunningCli& one : all) {
      EXPECT_EQ(one.wait(), 0) << one.said();
      EXPECT_TRUE(says(one.said(), "has run\n"));
    }
  }
};

TEST_F(ManyAtOnce, RunsAllBegin) {
  auto all = begin_many(24, {"run", "--limit", "3GiB", "--wait", "1h", "--", "/bin/echo", "has run"});
  expect_that_each_runs(all);
}

TEST_F(ManyAtOnce, RunsThatWaitAllSaySoAndBegin) {
  ClientProcess holder(broker_.folder());
  ASSERT_TRUE(holder.connect().at("ok"));
  ASSERT_TRUE(holder.open("a").at("ok"));
  ASSERT_TRUE(holder.grow("a", {broker_.device().free()}).at("ok"));
  auto all = begin_many(24, {"run", "--limit", "3GiB", "--wait", "1h", "--", "/bin/echo", "has run"});
  for (const RunningCli& one : all) EXPECT_TRUE(one.has_said("waiting for 3GiB of gpu0"));
  EXPECT_TRUE(holder.shrink("a", {}).at("ok"));
  expect_that_each_runs(all);
}

TEST_F(ManyAtOnce, ReservationsAllBegin) {
  auto all = begin_many(30, {"reserve", "1GiB", "--wait", "--", "/bin/echo", "has run"});
  expect_that_each_runs(all);
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
}

// Jobs of five users, which start within a second. Each reserves so much, then takes it all. Some are killed
// at a random moment: what they had is free again, and no other notices.
constexpr const char* kTenants = R"(
[broker]
socket_group = 10000
[[tenant]]
name = "first"
user = 61000
guarantee = "4GiB"
)";

struct JobsOfManyUsers : RunTest {
  static constexpr int kJobs = 200;

  JobsOfManyUsers() : RunTest({.simulate = "1x24GiB", .config = ::geteuid() == 0 ? kTenants : ""}) {}

  RunningCli begin_job(int number) {
    const Bytes bytes = gibibytes(1 + static_cast<std::uint64_t>(number % 6));
    const auto user = static_cast<uid_t>(61'000 + number % 5);
    return {{"run", "--limit", std::to_string(bytes.count), "--wait", "1h", "--", actor_program(), "borrow",
             "driver", std::to_string(bytes.count), "exit"},
            with({{"GPUMEM_SHIM_FOLDER", ""}}),
            User{user, BrokerProcess::kGroup}};
  }
};

TEST_F(JobsOfManyUsers, AllGetWhatTheyReserveUnlessTheyAreKilled) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  std::minstd_rand random(1);
  std::vector<RunningCli> jobs;
  std::vector<int> killed;
  for (int i = 0; i < kJobs; ++i) {
    jobs.push_back(begin_job(i));
    if (i % 4 == 3) {
      killed.push_back(std::max(0, i - static_cast<int>(random() % 20)));
      jobs[static_cast<std::size_t>(killed.back())].child().signal(SIGKILL);
    }
  }
  for (int i = 0; i < kJobs; ++i) {
    const int status = jobs[static_cast<std::size_t>(i)].wait();
    if (std::ranges::find(killed, i) != killed.end()) continue;
    EXPECT_EQ(status, 0) << jobs[static_cast<std::size_t>(i)].said();
    EXPECT_TRUE(says(jobs[static_cast<std::size_t>(i)].said(), "has it\n"));
  }
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
}

// One user's commands reserve all that there is, and do nothing with it. A claim of `first` must come within
// the deadline of the reclaim: its wait is shorter than two of them.
constexpr const char* kHoarded = R"(
[broker]
socket_group = 10000
reserve_idle_seconds = 1
lend_guarantees = true
escalation = "end-session"
reclaim_deadline_ms = 2000
[[tenant]]
name = "first"
user = 61001
guarantee = "4GiB"
[[tenant]]
name = "hoarder"
user = 61000
)";

struct Hoarders : RunTest, testing::WithParamInterface<int> {
  Hoarders() : RunTest({.simulate = "1x24GiB", .config = ::geteuid() == 0 ? kHoarded : ""}) {}

  RunningCli run_of(uid_t user, const std::vector<std::string>& words, const std::string& wait) const {
    std::vector<std::string> all{"run", "--wait", wait};
    all.insert(all.end(), words.begin(), words.end());
    return {std::move(all), with({{"GPUMEM_SHIM_FOLDER", ""}}), User{user, BrokerProcess::kGroup}};
  }
  RunningCli borrow(uid_t user, Bytes bytes, const std::string& wait) const {
    return run_of(user, {"--", actor_program(), "borrow", "driver", std::to_string(bytes.count), "exit"},
                  wait);
  }
  void expect_claims_and_a_line_that_moves() {
    for (int i = 0; i < 3; ++i) {
      RunningCli claim = borrow(61'001, gibibytes(4), "3s");
      EXPECT_EQ(claim.wait(), 0) << claim.said();
    }
    RunningCli other = run_of(61'002, {"--limit", "2GiB", "--", "/bin/echo", "has run"}, "1h");
    EXPECT_EQ(other.wait(), 0) << other.said();
  }
};

TEST_P(Hoarders, CostNobodyElseAnything) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  std::vector<RunningCli> hoarders;
  for (int i = 0; i < GetParam(); ++i) {
    hoarders.push_back(run_of(61'000, {"--limit", "100%", "--", "/bin/sleep", "1h"}, "1h"));
    // A thousand processes that start at once would leave the broker no processor.
    if (i % 20 == 19) {
      ASSERT_TRUE(hoarders.back().has_said("waiting for "));
    }
  }
  expect_claims_and_a_line_that_moves();
  broker_.reload(std::string(kHoarded) +
                 "weight = 7\n[[tenant]]\nname = \"third\"\nuser = 61002\nguarantee = \"2GiB\"\n");
  expect_claims_and_a_line_that_moves();
  broker_.kill();
  broker_.start_again();
  expect_claims_and_a_line_that_moves();
  for (RunningCli& one : hoarders) EXPECT_TRUE(one.child().running()) << one.said();
  for (RunningCli& one : hoarders) one.child().signal(SIGTERM);
  for (RunningCli& one : hoarders) one.wait();
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
}
INSTANTIATE_TEST_SUITE_P(Of, Hoarders, testing::Values(30));
INSTANTIATE_TEST_SUITE_P(Long, Hoarders, testing::Values(1000));

}  // namespace
}  // namespace gpumem::test
