#include "daemon/core/sessions/usage_meters.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/core/machine.h"

namespace gpumem::core {
namespace {

using namespace std::chrono_literals;

constexpr double kMiB = 1 << 20;

/// A device of 64 MiB. 32 are guaranteed to ann and to all below her; bob is one of these.
Policy policy_of_usage() {
  Policy policy = small_policy();
  policy.tenants = {user("ann", 1, {{mebibytes(32), mebibytes(64)}}),
                    user("bob", 2, {{{}, mebibytes(64)}}, "team"),
                    parent("team", {{mebibytes(16), mebibytes(64)}})};
  return policy;
}

class UsageTest : public testing::Test {
 protected:
  /// In MiB times seconds.
  double used(const std::string& tenant, Use use) const {
    for (const UsageView& view : machine.broker.usage({}, Broker::kAll, machine.now).views) {
      if (view.tenant == tenant) return view.usage[static_cast<std::size_t>(use)].byte_seconds() / kMiB;
    }
    return 0;
  }
  SessionId connect(std::uint32_t uid) {
    const SessionId session = machine.connect(uid);
    slices[session] = machine.slice(session);
    return session;
  }
  Grant get(SessionId session, Bytes bytes) { return machine.get(session, slices.at(session), bytes); }

  Machine machine{policy_of_usage()};
  std::map<SessionId, SliceId> slices;
};

TEST_F(UsageTest, CountsWhatATenantHasAndWhatIsKeptForIt) {
  const SessionId bob = connect(2);
  machine.pass(10s);
  const Grant grant = get(bob, mebibytes(4));
  machine.pass(5s);
  ASSERT_TRUE(machine.give_back(bob, slices[bob], grant));
  machine.pass(5s);
  for (const std::string tenant : {"bob", "team", ""})
    EXPECT_DOUBLE_EQ(used(tenant, Use::kLent), 20) << tenant << ": 4 MiB for 5 s";
  EXPECT_DOUBLE_EQ(used("team", Use::kKept), 10 * 16 + 5 * 12 + 5 * 16);
  EXPECT_DOUBLE_EQ(used("ann", Use::kKept), 20 * 32);
  EXPECT_DOUBLE_EQ(used("", Use::kKept), 20 * 32 + 10 * 16 + 5 * 12 + 5 * 16);
  EXPECT_EQ(used("bob", Use::kKept), 0);
}

TEST_F(UsageTest, CountsMemoryThatIsNotProvedFreeForWhoeverHadIt) {
  const SessionId bob = connect(2);
  const Grant grant = get(bob, mebibytes(4));
  ASSERT_TRUE(machine.keep_but_give_back(bob, slices[bob], grant));
  machine.pass(10s);
  EXPECT_EQ(used("bob", Use::kLent), 0);
  EXPECT_DOUBLE_EQ(used("bob", Use::kReturning), 40);
}

TEST_F(UsageTest, CountsWhatIsWaitedForInOneSum) {
  const SessionId bob = connect(2);
  get(bob, mebibytes(28));
  machine.grow(bob, slices[bob], mebibytes(8), 60s);
  const SessionId other = connect(2);
  machine.grow(other, slices[other], mebibytes(6), 10s);
  machine.pass_in_steps(20s);
  EXPECT_DOUBLE_EQ(used("bob", Use::kWaiting), 8 * 20 + 6 * 10);
  EXPECT_DOUBLE_EQ(used("", Use::kWaiting), 8 * 20 + 6 * 10);
}

TEST_F(UsageTest, CountsWhatAJobWaitsForWithItsTenantThatMoves) {
  const SessionId bob = connect(2);
  get(bob, mebibytes(28));
  ASSERT_TRUE(machine.broker.begin_job(bob, {}, machine.now));
  machine.broker.reserve_for_job(machine.request_ids.next(), bob, {"GPU-0", mebibytes(8), 60s}, machine.now);
  machine.collect();
  machine.pass(10s);
  Policy policy = policy_of_usage();
  policy.tenants[1].name = "rob";
  ASSERT_TRUE(machine.broker.apply(policy, machine.now));
  machine.collect();
  machine.pass(5s);
  EXPECT_DOUBLE_EQ(used("bob", Use::kWaiting), 80);
  EXPECT_DOUBLE_EQ(used("rob", Use::kWaiting), 40);
}

TEST_F(UsageTest, CountsMemoryOfAJobForItsTenant) {
  const SessionId owner = connect(2);
  ASSERT_TRUE(machine.broker.begin_job(owner, {}, machine.now));
  machine.broker.reserve_for_job(machine.request_ids.next(), owner, {"GPU-0", mebibytes(8), {}}, machine.now);
  machine.collect();
  machine.pass(10s);
  EXPECT_DOUBLE_EQ(used("bob", Use::kReserved), 80);
  EXPECT_DOUBLE_EQ(used("team", Use::kReserved), 80);
}

TEST_F(UsageTest, SumsUpASessionAndAJobAtTheirEnd) {
  const SessionId other = connect(2), owner = connect(2);
  const Grant before = get(other, mebibytes(20));
  const CommandJobId job = machine.broker.begin_job(owner, {"the job", {}}, machine.now)->job;
  const SessionId member = machine.broker.open_session(peer_of(2), "test", machine.now, job).value();
  slices[member] = machine.slice(member);
  const Grant grant = get(member, mebibytes(8));
  machine.pass(10s);
  machine.restart(policy_of_usage());  // which loses nothing of what stays as it is
  ASSERT_TRUE(machine.resume(other, {slices[other]}, {before}));
  ASSERT_TRUE(machine.resume(owner, {slices[owner]}, {}));
  ASSERT_TRUE(machine.resume(member, {slices[member]}, {grant}));
  machine.grow(member, slices[member], mebibytes(16), 5s);
  machine.pass_in_steps(10s);
  machine.die(member);
  machine.pass(10s);
  machine.die(owner);
  const std::vector<Event> closed = machine.events_of(Event::Kind::kClosed);
  ASSERT_EQ(closed.size(), 3U) << "the member, the owner and the job";
  for (const Event& one : closed) {
    const bool is_owner = one.session == owner;
    EXPECT_EQ(one.uid, 2U);
    EXPECT_EQ(one.tenant, "bob");
    EXPECT_DOUBLE_EQ(one.closing->charged / kMiB, is_owner ? 0 : 8 * 20);
    EXPECT_EQ(one.closing->peak, mebibytes(is_owner ? 0 : 8));
    EXPECT_EQ(one.closing->denied, is_owner ? 0U : 1U);
    EXPECT_EQ(one.waited, Duration(is_owner ? 0s : 5s));
    EXPECT_EQ(one.closing->lasted, Duration(one.session == member ? 20s : 30s));
    EXPECT_EQ(one.closing->name == "the job", !one.session);
  }
}

TEST_F(UsageTest, GoesOnAtTheNextBroker) {
  const SessionId bob = connect(2);
  const Grant first = get(bob, mebibytes(4));
  machine.pass_in_steps(100s);
  const Grant second = get(bob, mebibytes(8));
  machine.pass_in_steps(500ms);
  ASSERT_TRUE(machine.give_back(bob, slices[bob], second));
  machine.pass_in_steps(100s);
  machine.now += 50s;  // nobody is there
  machine.restart(policy_of_usage());
  ASSERT_TRUE(machine.resume(bob, {slices[bob]}, {first}));
  machine.pass_in_steps(50s);
  EXPECT_NEAR(used("bob", Use::kLent), 4 * 300.5 + 8 * 0.5, 8)
      << "a second of what was lent last may be missed";
  EXPECT_NEAR(used("ann", Use::kKept), 32 * 300.5, 1e-6);
}

// A reservation, a request and memory past the broker are not known until their programs are back.
TEST_F(UsageTest, CountsWhatStaysAsItIsOverARestart) {
  const SessionId owner = connect(2);
  ASSERT_TRUE(machine.broker.begin_job(owner, {}, machine.now));
  machine.broker.reserve_for_job(machine.request_ids.next(), owner, {"GPU-0", mebibytes(8), {}}, machine.now);
  machine.collect();
  machine.pass_in_steps(500ms);
  const SessionId other = connect(2);
  ASSERT_TRUE(machine.broker.charge(other, {"GPU-0", mebibytes(4)}, machine.now));
  get(other, mebibytes(20));
  machine.grow(other, slices[other], mebibytes(8), 3600s);
  machine.pass_in_steps(2s);
  machine.now += 1000s;
  const std::array uses{Use::kReserved, Use::kOutside, Use::kWaiting, Use::kKept};
  std::array<double, uses.size()> before{};
  for (std::size_t i = 0; i < uses.size(); ++i) before[i] = used(i == 3 ? "ann" : "bob", uses[i]);
  machine.restart(policy_of_usage());
  for (std::size_t i = 0; i < uses.size(); ++i) {
    EXPECT_GT(before[i], 1000) << i;
    EXPECT_NEAR(used(i == 3 ? "ann" : "bob", uses[i]), before[i], 1e-6) << i;
  }
}

TEST_F(UsageTest, KeepsTheAccountOfATenantThatIsGone) {
  Policy policy = small_policy();
  policy.others = {{{}, mebibytes(64)}};
  machine.restart(policy);
  const SessionId guest = connect(77);
  get(guest, mebibytes(2));
  machine.pass(10s);
  machine.die(guest);
  ASSERT_FALSE(machine.knows_tenant("uid:77"));
  EXPECT_DOUBLE_EQ(used("uid:77", Use::kLent), 20);
  machine.pass(2s);
  machine.restart(policy);
  EXPECT_DOUBLE_EQ(used("uid:77", Use::kLent), 20) << "also at the next broker";
  get(connect(77), mebibytes(2));
  machine.pass(10s);
  EXPECT_DOUBLE_EQ(used("uid:77", Use::kLent), 40) << "it has come again";
}

TEST_F(UsageTest, ForgetsTheAccountsOfManyThatAreGoneAndSaysSo) {
  Policy policy = small_policy();
  policy.others = {{{}, mebibytes(64)}};
  Broker broker(policy);
  broker.outbox().keep_changes();
  Checkpoint written;
  std::vector<Checkpoint::Change> changes;
  for (std::uint32_t uid = 1; uid <= UsageMeters::kMostGone + 10; ++uid) {
    const auto session = broker.open_session(peer_of(uid), "", machine.now);
    ASSERT_TRUE(session);
    const auto slice = broker.open_slice(*session, {"GPU-0", {}, ""});
    ASSERT_TRUE(slice);
    broker.grow(RequestId{uid}, *session, Grow{{{slice->id, mebibytes(2)}}, 1h}, machine.now);
    broker.session_ended(*session, SessionEnd::kExited, machine.now);
    broker.outbox().take_changes(changes);
    for (const Checkpoint::Change& change : changes) written.apply(change);
  }
  EXPECT_GE(written.accounts.size(), UsageMeters::kMostGone);
  EXPECT_LT(written.accounts.size(), UsageMeters::kMostGone + 10) << "the first ones are forgotten";
  EXPECT_EQ(written, broker.checkpoint());
}

// A day with brokers that are killed at any moment. The account is compared with the charges after each
// event.
TEST_F(UsageTest, LosesNoMoreThanASecondOfAChangeByADayWithTwentyKilledBrokers) {
  std::mt19937_64 random(20'261'128);  // NOLINT: the same day each time
  const SessionId ann = connect(1), bob = connect(2);
  std::map<SessionId, std::vector<Grant>> held;
  std::map<std::string, double> expected;
  double changed = 0;  // MiB that came or went within a second before a kill
  constexpr int kSteps = 24'000;
  for (int step = 1; step <= kSteps; ++step) {
    const SessionId session = random() % 2 == 0 ? ann : bob;
    auto& grants = held[session];
    if (grants.size() < 3) {
      grants.push_back(get(session, mebibytes(2 + 2 * (random() % 3))));
    } else {
      ASSERT_TRUE(machine.give_back(session, slices[session], grants.back()));
      grants.pop_back();
    }
    const bool is_peak = step % 1000 > 500;
    const Duration time = is_peak ? Duration(250us) : Duration(std::chrono::milliseconds(random() % 14'400));
    for (const std::string tenant : {"ann", "bob"})
      expected[tenant] += static_cast<double>(machine.charged(tenant).count) / kMiB *
                          std::chrono::duration<double>(time).count();
    machine.pass_in_steps(time);
    if (step % 1200 != 0) continue;
    changed += 6 * 4;
    machine.restart(policy_of_usage());
    for (const SessionId one : {ann, bob}) {
      for (Grant& grant : held[one]) grant = machine.before(grant);
      ASSERT_TRUE(machine.resume(one, {slices[one]}, held[one]));
    }
  }
  for (const auto& [tenant, sum] : expected) {
    EXPECT_NEAR(used(tenant, Use::kLent), sum, std::min(changed, sum / 1000)) << tenant;
    EXPECT_GT(sum, 100'000) << tenant << " has used something";
  }
}

}  // namespace
}  // namespace gpumem::core
