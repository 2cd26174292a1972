// What one scrape shows of a broker.
#include "daemon/metrics/sampler.h"

#include <gtest/gtest.h>

#include "tests/support/no_executor.h"
#include "tests/unit/core/machine.h"

namespace gpumem::metrics {
namespace {

using core::Charge;
using std::chrono::seconds;

/// Does the work on the thread that posts it, or drops it once it has stopped.
struct MachineExecutor final : test::NoExecutor {
  explicit MachineExecutor(core::Policy policy) : machine(std::move(policy)) {}

  void post(Work work) override {
    if (stopped) return;
    machine.collect();
    tell();
    ++posts;
    work(machine.broker, machine.now);
  }
  void watch(std::shared_ptr<core::EventWatcher> one, std::optional<core::WallTime>) override {
    watcher = std::move(one);
  }
  // Every session says that it uses half of what it is charged.
  std::optional<ClientFigures> client_figures(SessionId, core::DeviceIndex, Bytes charged) const override {
    return ClientFigures{.reserved = 0, .committed = 0, .in_use = charged.count / 2, .peak = 0};
  }
  void tell() {
    for (core::Event& event : std::exchange(machine.events, {}))
      if (watcher)
        watcher->tell(std::make_shared<core::LoggedEvent>(core::LoggedEvent{1, {}, event}), machine.broker);
  }

  core::Machine machine;
  std::shared_ptr<core::EventWatcher> watcher;
  bool stopped = false;
  int posts = 0;
};

core::Policy family_policy() {
  core::Policy policy = core::small_policy();
  policy.devices.push_back(core::device("GPU-1", mebibytes(32)));
  const core::Quota all{{}, mebibytes(32)};
  policy.tenants = {core::parent("lab", {all, all}),
                    core::user("ann", 1, {{mebibytes(16), mebibytes(32)}, all}, "lab"),
                    core::user("bob", 2, {{{}, mebibytes(64)}, all})};
  policy.devices[0].reclaim.lend_guarantees = true;
  policy.others = std::vector<core::Quota>{all, all};
  return policy;
}

struct SamplerTest : testing::Test {
  Snapshot sample() {
    auto taken = sampler.sample();
    EXPECT_TRUE(taken);
    return taken ? std::move(*taken) : Snapshot{};
  }
  MachineExecutor executor{family_policy()};
  Sampler sampler{executor, {.version = "1", .driver = "2", .started = {}}};
};

TEST_F(SamplerTest, ShowsDevicesAndTenantsWithChargesUseAndPeaks) {
  const SessionId ann = executor.machine.connect(1);
  executor.machine.get(ann, executor.machine.slice(ann), mebibytes(8));
  const Snapshot snapshot = sample();
  ASSERT_EQ(snapshot.devices.size(), 2u);
  EXPECT_EQ(snapshot.sessions, 1u);
  EXPECT_EQ(snapshot.devices[0].view.charges[Charge::kActive], mebibytes(8));
  EXPECT_FALSE(snapshot.devices[0].view.claim_asked);
  EXPECT_EQ(snapshot.tenants.at("ann").parent, "lab");
  EXPECT_EQ(snapshot.tenants.at("ann").sessions, 1u);
  EXPECT_EQ(snapshot.usage.at({"ann", 0}).charges[Charge::kActive], mebibytes(8));
  EXPECT_EQ(snapshot.usage.at({"ann", 0}).quota->guarantee, mebibytes(16));
  EXPECT_EQ(snapshot.usage.at({"ann", 0}).in_use, mebibytes(4));
  EXPECT_EQ(snapshot.usage.at({"lab", 0}).in_use, mebibytes(4)) << "what is used below it";
  EXPECT_EQ(snapshot.usage.at({"ann", 1}).in_use, Bytes{});
  EXPECT_EQ(snapshot.usage.at({"bob", 0}).charges.total(), Bytes{});
  EXPECT_EQ(snapshot.counters.at({"ann", 0}).granted, mebibytes(8));
  EXPECT_EQ(snapshot.counters.at({"ann", 0}).peak, mebibytes(8));
  EXPECT_EQ(snapshot.events[static_cast<std::size_t>(core::Event::Kind::kOpened)], 1u);
}

TEST_F(SamplerTest, CountsRegionsWithTheirTenantAndThoseAboveIt) {
  core::Machine& machine = executor.machine;
  const SessionId ann = machine.connect(1);
  const SliceId slice = machine.slice(ann);
  const auto leases = core::Machine::leases_of(machine.get(ann, slice, mebibytes(8)));
  core::Publish terms;
  terms.name = "weights";
  terms.bytes = mebibytes(3);
  ASSERT_TRUE(machine.broker.publish(ann, of_leases(terms, slice, leases), machine.now));
  ASSERT_TRUE(machine.broker.publish(ann, of_leases(terms, slice, leases), machine.now));
  const Snapshot snapshot = sample();
  for (const char* tenant : {"ann", "lab"}) {
    EXPECT_EQ(snapshot.usage.at({tenant, 0}).regions.count, 2u) << tenant;
    EXPECT_EQ(snapshot.usage.at({tenant, 0}).regions.bytes, mebibytes(6)) << tenant;
    EXPECT_EQ(snapshot.usage.at({tenant, 1}).regions.count, 0u) << tenant;
  }
  EXPECT_EQ(snapshot.usage.at({"bob", 0}).regions.count, 0u);
  EXPECT_EQ(snapshot.events[static_cast<std::size_t>(core::Event::Kind::kPublished)], 2u);
}

TEST_F(SamplerTest, CountsKeptRegionsMappingsAndWhoWaitsForOne) {
  core::Machine& machine = executor.machine;
  const SessionId ann = machine.connect(1), bob = machine.connect(2);
  const SliceId slice = machine.slice(ann);
  const auto leases = core::Machine::leases_of(machine.get(ann, slice, mebibytes(8)));
  core::Publish terms;
  terms.name = "weights";
  terms.bytes = mebibytes(3);
  terms.sharing = core::Sharing::kPublic;
  ASSERT_TRUE(machine.broker.publish(ann, of_leases(terms, slice, leases), machine.now));
  terms.keep = true;
  ASSERT_TRUE(machine.broker.publish(ann, of_leases(terms, slice, leases), machine.now));
  ASSERT_TRUE(machine.broker.map_region(bob, {.owner = "ann", .name = "weights"}, machine.now));
  ASSERT_TRUE(machine.broker.map_region(bob, {.owner = "ann", .name = "weights"}, machine.now));
  machine.broker.map_or_wait(RequestId{7}, bob, {.owner = "ann", .name = "none", .wait = seconds(60)},
                             machine.now);
  Snapshot snapshot = sample();
  for (const char* tenant : {"ann", "lab"}) {
    EXPECT_EQ(snapshot.usage.at({tenant, 0}).regions.kept_count, 1u) << tenant;
    EXPECT_EQ(snapshot.usage.at({tenant, 0}).regions.kept, mebibytes(3)) << tenant;
  }
  EXPECT_EQ(snapshot.tenants.at("bob").mappings, 2u);
  EXPECT_EQ(snapshot.tenants.at("bob").region_waits, 1u);
  EXPECT_EQ(snapshot.usage.at({"bob", 0}).imported, mebibytes(8)) << "whole extents, once";
  EXPECT_EQ(snapshot.tenants.at("ann").mappings, 0u);
  EXPECT_EQ(snapshot.usage.at({"ann", 0}).imported, Bytes{});
  ASSERT_TRUE(machine.broker.remove_region(ann, {"weights"}, machine.now));
  snapshot = sample();
  EXPECT_EQ(snapshot.usage.at({"ann", 0}).regions.count, 1u);
  EXPECT_EQ(snapshot.usage.at({"ann", 0}).regions.kept_count, 0u);
  EXPECT_EQ(snapshot.usage.at({"ann", 0}).regions.kept, Bytes{});
}

TEST_F(SamplerTest, ShowsSinceWhenTheOldestClaimWaits) {
  const SessionId bob = executor.machine.connect(2), ann = executor.machine.connect(1);
  executor.machine.get(bob, executor.machine.slice(bob), mebibytes(56));
  const core::TimePoint asked = executor.machine.now;
  executor.machine.grow(ann, executor.machine.slice(ann), mebibytes(16), seconds(60));
  executor.machine.pass(seconds(1));
  EXPECT_EQ(sample().devices[0].view.claim_asked, asked);
  executor.machine.die(bob);
  EXPECT_FALSE(sample().devices[0].view.claim_asked);
}

TEST_F(SamplerTest, CountsUsersBeyondThePlacesTogetherAndShowsNoQuotaOfThem) {
  const std::uint32_t users = Collector::kMostUsers + 3;
  for (std::uint32_t i = 0; i < users; ++i) {
    const SessionId session = executor.machine.connect(1000 + i);
    executor.machine.slice(session);
  }
  const Snapshot snapshot = sample();
  EXPECT_EQ(snapshot.sessions, users);
  EXPECT_EQ(snapshot.tenants.size(), Collector::kMostUsers + 1 + 3) << "and those that are configured";
  EXPECT_EQ(snapshot.tenants.at("uid:other").sessions, 3u);
  EXPECT_FALSE(snapshot.usage.at({"uid:other", 0}).quota);
  EXPECT_TRUE(snapshot.usage.at({"uid:1000", 0}).quota);
}

// However many there are, no piece of work on the core's thread grows with them.
TEST_F(SamplerTest, CopiesInPages) {
  sample();
  const int of_few = std::exchange(executor.posts, 0);
  for (std::uint32_t i = 0; i < 1000; ++i) executor.machine.slice(executor.machine.connect(1000 + i));
  sample();
  EXPECT_GE(executor.posts, of_few + 1000 / 64 + 1000 / 256);
}

TEST_F(SamplerTest, EndsWithACoreThatHasStopped) {
  executor.stopped = true;
  EXPECT_FALSE(sampler.sample());
}

}  // namespace
}  // namespace gpumem::metrics
