// What viewers are sent of a broker.
#include <gtest/gtest.h>

#include "daemon/rpc/watch/viewing.h"
#include "tests/support/no_executor.h"
#include "tests/unit/core/machine.h"

namespace gpumem::rpc {
namespace {

using std::chrono::seconds;

core::Policy lab_policy() {
  core::Policy policy = core::small_policy();
  const core::Quota all{{}, mebibytes(64)};
  policy.tenants = {core::parent("lab", {all}), core::user("ann", 1, {{mebibytes(16), mebibytes(64)}}, "lab"),
                    core::user("bob", 2, {all}, "lab"), core::user("cat", 3, {all})};
  policy.devices[0].reclaim.lend_guarantees = true;
  return policy;
}

/// Does the work on the thread that posts it. Viewers are callers by their connections' numbers.
struct ViewedMachine final : test::NoExecutor {
  void post(Work work) override {
    machine.collect();
    ++posts;
    work(machine.broker, machine.now);
  }
  std::optional<core::Caller> caller_of(int connection) const override {
    const auto caller = callers.find(connection);
    return caller == callers.end() ? std::nullopt : std::optional(caller->second);
  }

  core::Machine machine{lab_policy()};
  std::map<int, core::Caller> callers{{1, {{}, "ann", false}}, {2, {{}, "bob", false}},
                                      {3, {{}, "cat", false}}, {4, {{}, "lab", false}},
                                      {5, {{}, "", false}},    {6, {{}, "cat", true}}};
  int posts = 0;
};

struct ViewSamplerTest : testing::Test {
  v1::Sample sample_for(int connection) {
    const auto taken = sampler.take({connection});
    EXPECT_TRUE(taken && taken->callers.size() == 1 && taken->callers[0]);
    if (!taken || !taken->callers[0]) return {};
    SampleMessages messages(*taken, sampler);
    v1::Sample all;
    for (grpc::ByteBuffer& message : messages.of(*taken->callers[0], true)) {
      grpc::Slice whole;
      EXPECT_TRUE(message.DumpToSingleSlice(&whole).ok());
      EXPECT_TRUE(all.MergeFromString(std::string(whole.begin(), whole.end())));
    }
    return all;
  }
  ViewedMachine executor;
  ViewSampler sampler{executor, [] { return std::vector<core::DeviceLoad>{{40, 70}}; }};
};

TEST_F(ViewSamplerTest, ShowsDevicesWithTheirLoad) {
  const v1::Sample sample = sample_for(5);
  ASSERT_EQ(sample.devices_size(), 1);
  EXPECT_EQ(sample.devices(0).status().pool(), mebibytes(64).count);
  EXPECT_EQ(sample.devices(0).utilization(), 40U);
  EXPECT_EQ(sample.devices(0).temperature(), 70U);
  EXPECT_TRUE(sample.last());
}

TEST_F(ViewSamplerTest, TellsOfWaitingOnlyThoseWhomItConcerns) {
  core::Machine& machine = executor.machine;
  const SessionId cat = machine.connect(3), bob = machine.connect(2);
  machine.get(cat, machine.slice(cat), mebibytes(48));
  machine.grow(bob, machine.slice(bob), mebibytes(32), seconds(60));
  struct Case {
    int viewer;
    int lines;
  };
  for (const Case& one : {Case{1, 0}, {2, 1}, {3, 0}, {4, 1}, {5, 0}, {6, 1}})
    EXPECT_EQ(sample_for(one.viewer).waiting_size(), one.lines) << one.viewer;
  const v1::Denial denial = sample_for(2).waiting(0);
  EXPECT_EQ(denial.tenant(), "bob");
  EXPECT_EQ(denial.asked(), mebibytes(32).count);
  EXPECT_EQ(denial.reason(), v1::Denial::REASON_NO_MEMORY);
  EXPECT_TRUE(denial.holders().empty());
}

TEST_F(ViewSamplerTest, CopiesWaitingRequestsThatOneOfManyViewersMaySee) {
  core::Machine& machine = executor.machine;
  const SessionId cat = machine.connect(3), bob = machine.connect(2);
  machine.get(cat, machine.slice(cat), mebibytes(48));
  machine.grow(bob, machine.slice(bob), mebibytes(32), seconds(60));
  const auto copied = [&](const ViewSampler::Connections& viewers) {
    const auto taken = sampler.take(viewers);
    v1::Sample all;
    for (const TakenSample::Line& line : taken->lines) EXPECT_TRUE(all.MergeFromString(line.bytes));
    return all.waiting_size();
  };
  EXPECT_EQ(copied({1, 3, 5}), 0);
  EXPECT_EQ(copied({1, 3, 4}), 1) << "of a tenant below one of them";
  EXPECT_EQ(copied({1, 6, 7}), 1) << "one is an administrator, and one is gone";
}

TEST_F(ViewSamplerTest, TellsOfMemoryThatIsAskedBackOnlyThoseWhomItConcerns) {
  core::Machine& machine = executor.machine;
  const SessionId cat = machine.connect(3), ann = machine.connect(1);
  machine.get(cat, machine.slice(cat), mebibytes(64));
  machine.grow(ann, machine.slice(ann), mebibytes(16), seconds(60));
  machine.collect();
  for (const auto& [viewer, lines] : {std::pair{1, 0}, {2, 0}, {3, 1}, {4, 0}, {5, 0}, {6, 1}})
    EXPECT_EQ(sample_for(viewer).asked_back_size(), lines) << viewer;
  const v1::AskedBack asked = sample_for(3).asked_back(0);
  EXPECT_EQ(asked.session(), cat.value);
  EXPECT_EQ(asked.bytes(), mebibytes(16).count);
}

TEST_F(ViewSamplerTest, TellsOfSoManyWaitingRequestsOfATenant) {
  core::Machine& machine = executor.machine;
  const SessionId cat = machine.connect(3), bob = machine.connect(2);
  machine.get(cat, machine.slice(cat), mebibytes(64));
  const SliceId other = machine.slice(cat);
  for (const SessionId session : {bob, bob, machine.connect(2), machine.connect(2)}) {
    const SliceId slice = machine.slice(session);
    for (int i = 0; i < 25; ++i) machine.grow(session, slice, mebibytes(2), seconds(60));
  }
  machine.grow(cat, other, mebibytes(2), seconds(60));
  const v1::Sample sample = sample_for(6);
  ASSERT_EQ(sample.waiting_size(), 65);
  EXPECT_EQ(sample.waiting(64).tenant(), "cat") << "the other tenant's is not crowded out";
}

TEST_F(ViewSamplerTest, CopiesManySessionsPageByPage) {
  for (int i = 0; i < 600; ++i) executor.machine.connect(1);
  executor.posts = 0;
  const v1::Sample sample = sample_for(5);
  EXPECT_EQ(sample.sessions_size(), 600);
  EXPECT_GE(executor.posts, 5 + 2);
}

}  // namespace
}  // namespace gpumem::rpc
