#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// Listings come in pages: nothing is listed twice, and nothing that stays is left out.

namespace gpumem::core {
namespace {

class Listings : public testing::Test {
 protected:
  Listings() {
    for (std::uint32_t uid = 1; uid <= 2; ++uid) {
      for (int i = 0; i < 5; ++i) {
        ids.push_back(machine.connect(uid));
        for (int slices = 0; slices < 3; ++slices) machine.slice(ids.back());
      }
    }
  }
  Machine machine;
  std::vector<SessionId> ids;
};

TEST_F(Listings, OfSessionsComeInPagesThatTogetherAreAll) {
  std::vector<SessionId> seen;
  for (SessionId after;;) {
    const auto page = machine.broker.sessions(after, 7);
    if (page.empty()) break;
    std::size_t work = 0;
    for (const SessionView& one : page) {
      seen.push_back(one.id);
      EXPECT_EQ(one.slices.size(), 3u);
      work += 1 + one.slices.size();
    }
    EXPECT_LE(work, 7u + 4u) << "a page ends with the session that exceeds it";
    after = page.back().id;
  }
  EXPECT_EQ(seen, ids);
}

TEST_F(Listings, GoOnBehindASessionThatHasGone) {
  const auto page = machine.broker.sessions({}, 1);
  ASSERT_EQ(page.size(), 1u);
  machine.die(ids[0]);
  machine.die(ids[1]);
  EXPECT_EQ(machine.broker.sessions(page.back().id, 1).front().id, ids[2]);
}

TEST_F(Listings, OfTenantsComeInTheOrderOfTheirNames) {
  const auto first = machine.broker.tenants({}, 1);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].name, "ann");
  EXPECT_EQ(first[0].sessions, 5u);
  const auto second = machine.broker.tenants("ann", 1);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].name, "bob");
  EXPECT_TRUE(machine.broker.tenants("bob", 1).empty());
}

TEST_F(Listings, CountWhatWaitsBelowAGroup) {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64))};
  policy.tenants = {parent("lab", {{{}, mebibytes(64)}}), user("ann", 1, {{{}, mebibytes(64)}}, "lab"),
                    user("bob", 2, {{{}, mebibytes(64)}}, "lab")};
  Machine grouped(policy);
  const SessionId ann = grouped.connect(1), bob = grouped.connect(2);
  grouped.get(ann, grouped.slice(ann), mebibytes(64));
  for (int i = 0; i < 3; ++i) grouped.grow(bob, grouped.slice(bob), mebibytes(2), std::chrono::seconds(60));
  for (const TenantView& one : grouped.broker.tenants()) {
    EXPECT_EQ(one.waiting, one.name == "ann" ? 0u : 3u) << one.name;
    EXPECT_EQ(one.sessions, one.name == "lab" ? 2u : 1u) << one.name;
  }
}

TEST(DeviceListings, NameProcessesWithTheirChargesAndWhatIsIdle) {
  Machine machine;
  const SessionId ann = machine.connect(1), bob = machine.connect(2), another_of_bob = machine.connect(2);
  machine.get(ann, machine.slice(ann), mebibytes(8));
  machine.get(bob, machine.slice(bob), mebibytes(16));
  machine.get(another_of_bob, machine.slice(another_of_bob), mebibytes(4));
  ASSERT_TRUE(machine.broker.charge(bob, {"GPU-0", mebibytes(3)}, machine.now));
  const auto listed = [&] {
    const auto listing = std::make_unique<DeviceListing>();
    machine.broker.list(0, *listing);
    std::map<std::uint64_t, Bytes> used{{0, Bytes{listing->idle}}};
    for (std::size_t i = 0; i < listing->process_count; ++i)
      used[listing->processes[i].pid] = Bytes{listing->processes[i].used};
    return used;
  };
  using Listed = std::map<std::uint64_t, Bytes>;
  const std::uint64_t of_ann = 1001, of_bob = 1002;
  EXPECT_EQ(listed(), (Listed{{0, mebibytes(36)}, {of_ann, mebibytes(8)}, {of_bob, mebibytes(23)}}));
  machine.die(ann);
  EXPECT_EQ(listed(), (Listed{{0, mebibytes(44)}, {of_bob, mebibytes(23)}}));
}

TEST(DeviceListings, LeaveOutTheSmallestWhereThereAreTooMany) {
  Machine machine;
  for (std::uint64_t i = 0; i <= kMaxListedProcesses; ++i) {
    Peer peer = peer_of(2);
    peer.pid += static_cast<std::int64_t>(i);
    const SessionId session = machine.broker.open_session(peer, "", machine.now).value();
    ASSERT_TRUE(machine.broker.charge(session, {"GPU-0", Bytes{1 + i}}, machine.now));
  }
  const auto listing = std::make_unique<DeviceListing>();
  machine.broker.list(0, *listing);
  ASSERT_EQ(listing->process_count, kMaxListedProcesses);
  for (const ListedProcess& one : listing->processes) EXPECT_GT(one.used, 1U);
}

TEST(Explaining, TellsOfTheFirstRequestsAndHowManyThereAre) {
  Machine machine;
  const SessionId bob = machine.connect(2);
  machine.get(bob, machine.slice(bob), mebibytes(48));
  std::vector<RequestId> asked;
  for (int session = 0; session < 3; ++session) {
    const SessionId more = machine.connect(2);
    for (int i = 0; i < 40; ++i)
      asked.push_back(machine.grow(more, machine.slice(more), mebibytes(2), std::chrono::minutes(5)));
  }
  const auto explained = machine.broker.explain_tenant("bob", true, machine.now);
  ASSERT_TRUE(explained);
  EXPECT_EQ(explained->requests, 120u);
  ASSERT_EQ(explained->waiting.size(), Explainer::kMostExplained);
  EXPECT_EQ(explained->waiting.front().request, asked.front());
}

}  // namespace
}  // namespace gpumem::core
