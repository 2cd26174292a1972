// Many commands of one user at once: nothing that only informs ends one of them.
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
  for (const RunningCli& one : all) EXPECT_TRUE(one.has_said("waiting for 3GiB of GPU-"));
  EXPECT_TRUE(holder.shrink("a", {}).at("ok"));
  expect_that_each_runs(all);
}

TEST_F(ManyAtOnce, ReservationsAllBegin) {
  auto all = begin_many(30, {"reserve", "1GiB", "--wait", "--", "/bin/echo", "has run"});
  expect_that_each_runs(all);
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
}

}  // namespace
}  // namespace gpumem::test
