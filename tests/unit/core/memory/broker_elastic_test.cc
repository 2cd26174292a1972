// A broker whose pool is elastic: when it creates memory, when it gives it back, what it says.
#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

namespace gpumem::core {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Bytes kGuarantee = mebibytes(512);
constexpr Bytes kAtRest = kGuarantee + Elastic::kStock;

// 8 of 10 GiB are lent, of which 512 MiB are ann's for sure. 1.5 GiB stay free when the pool grows.
Policy elastic_policy(bool is_elastic = true) {
  Policy policy = small_policy();
  policy.devices[0] = device("GPU-0", gibibytes(8));
  policy.devices[0].total = gibibytes(10);
  policy.devices[0].pool_mode = PoolMode::kByDisplay;
  policy.devices[0].has_display = is_elastic;
  policy.past_broker.allowance = gibibytes(10);
  policy.tenants = {user("ann", 1, {{kGuarantee, gibibytes(8)}}), user("bob", 2, {{{}, gibibytes(8)}})};
  return policy;
}

struct ElasticPool : testing::Test {
  explicit ElasticPool(bool is_elastic = true) : machine(elastic_policy(is_elastic)) {}
  Bytes created() const { return machine.driver.handled(0); }
  DeviceView view() const { return machine.broker.devices()[0]; }
  // Runs jobs until the request is answered. Returns how many there were.
  int run_until_answered(RequestId id) {
    int jobs = 0;
    for (; !machine.is_answered(id) && machine.run_job(); ++jobs) continue;
    return jobs;
  }
  // Another process has taken memory, or given some back.
  void observe() {
    Observation seen;
    seen.used = *machine.driver.used(0);
    seen.broker = created();
    machine.broker.begin_observation(0);
    machine.broker.observe(seen, machine.now);
    machine.collect();
  }

  Machine machine;
  const SessionId ann = machine.connect(1);
  const SessionId bob = machine.connect(2);
  const SliceId of_ann = machine.slice(ann);
  const SliceId of_bob = machine.slice(bob);
};

struct PoolThatBecomesElastic : ElasticPool {
  PoolThatBecomesElastic() : ElasticPool(false) {}
  void become_elastic(Bytes guarantee = kGuarantee) {
    Policy policy = elastic_policy();
    policy.tenants[0].quotas[0].guarantee = guarantee;
    EXPECT_TRUE(machine.broker.apply(policy, machine.now));
    machine.broker.set_display(0, true, machine.now);
    machine.collect();
  }
};

TEST_F(ElasticPool, CreatesWhatGuaranteesNeedAndAStock) {
  EXPECT_EQ(created(), kAtRest);
  EXPECT_EQ(view().free, gibibytes(8)) << "what can be created is free for clients";
  EXPECT_EQ(view().missing, Bytes{});
  EXPECT_EQ(machine.broker.figures(bob).devices[0].available, (gibibytes(8) - kGuarantee).count);
}

TEST_F(ElasticPool, GrowsByOneJobForARequestThatMayNotWait) {
  machine.jobs_run_at_once = false;
  struct Case {
    Bytes bytes, largest;
    std::uint64_t creations;
  };
  for (const Case& one : {Case{gibibytes(2), {}, 1}, Case{mebibytes(512), {}, 1},
                          Case{mebibytes(700), kOneExtent, 1}, Case{mebibytes(1536), mebibytes(32), 3}}) {
    const std::uint64_t before = machine.driver.creations();
    const RequestId id = machine.grow(bob, {{of_bob, one.bytes, {}, one.largest}});
    EXPECT_EQ(run_until_answered(id), 1) << one.bytes.count;
    EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
    EXPECT_EQ(machine.driver.creations() - before, one.creations) << one.bytes.count;
    machine.run_jobs();
  }
  EXPECT_THAT(machine.events_of(Event::Kind::kWaiting), IsEmpty());
}

TEST_F(ElasticPool, LendsEverythingAndAsksBorrowersForNothingThatCanBeCreated) {
  machine.get(bob, of_bob, gibibytes(6));
  const RequestId id = machine.grow(ann, of_ann, mebibytes(1500), seconds(60));
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
  EXPECT_EQ(machine.bells[bob], 0);
  machine.get(bob, of_bob, mebibytes(548));
  EXPECT_EQ(view().free, Bytes{});
  EXPECT_EQ(created(), gibibytes(8));
}

// The driver has refused one of bob's contexts. So his next ones wait for memory of the pool.
TEST_F(ElasticPool, GrowsThoughContextsWaitUncharged) {
  Policy policy = elastic_policy();
  policy.tenants[1].quotas[0].limit = gibibytes(1);
  ASSERT_TRUE(machine.broker.apply(policy, machine.now));
  const auto announce = [&](Duration wait) {
    machine.broker.announce_context(machine.request_ids.next(), bob, {"GPU-0", wait}, machine.now);
    machine.collect();
  };
  announce({});
  machine.broker.context_done(bob, {"GPU-0", ContextDone::Outcome::kOutOfMemory}, machine.now);
  machine.collect();
  for (int i = 0; i < 20; ++i) announce(std::chrono::hours(1));
  const RequestId id = machine.grow(ann, of_ann, gibibytes(1));
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
}

TEST_F(ElasticPool, GivesReturnedMemoryBackToTheDevice) {
  const Grant grant = machine.get(bob, of_bob, gibibytes(3));
  ASSERT_TRUE(machine.give_back(bob, of_bob, grant));
  EXPECT_EQ(machine.charged("bob"), Bytes{});
  EXPECT_EQ(created(), kAtRest);
  EXPECT_EQ(view().free, gibibytes(8));
}

TEST_F(PoolThatBecomesElastic, GivesBackWhatNobodyNeedsForAWhileAndFillsAgain) {
  EXPECT_EQ(created(), gibibytes(8));
  EXPECT_TRUE(machine.broker.set_display(0, true, machine.now));
  machine.collect();
  machine.pass_in_steps(Elastic::kIdle / 2);
  EXPECT_EQ(created(), gibibytes(8));
  const Grant grant = machine.get(bob, of_bob, gibibytes(2));
  ASSERT_TRUE(machine.give_back(bob, of_bob, grant));
  machine.pass_in_steps(Elastic::kIdle / 2);
  EXPECT_EQ(created(), kAtRest) << "the least surplus of the time";
  EXPECT_TRUE(machine.broker.set_display(0, false, machine.now));
  machine.run_jobs();
  machine.pass_in_steps(seconds(1));
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(PoolThatBecomesElastic, GivesBackOnlyWhatNobodyNeededInAllThatTime) {
  become_elastic();
  machine.pass_in_steps(Elastic::kIdle / 2);
  become_elastic(gibibytes(4));
  become_elastic();
  machine.pass_in_steps(Elastic::kIdle / 2);
  EXPECT_EQ(created(), gibibytes(4) + Elastic::kStock);
  machine.pass_in_steps(Elastic::kIdle);
  EXPECT_EQ(created(), kAtRest);
}

TEST_F(PoolThatBecomesElastic, KeepsASurplusThatIsNotWorthADriverCall) {
  for (const auto& [surplus, kept] : {std::pair(mebibytes(30), mebibytes(30)), {mebibytes(32), Bytes{}}}) {
    const Bytes needed = gibibytes(8) - surplus;
    become_elastic(needed - Elastic::kStock);
    machine.pass_in_steps(2 * Elastic::kIdle);
    EXPECT_EQ(created(), needed + kept);
  }
}

TEST_F(ElasticPool, CreatesNothingForAContextWhichNeedsTheMemoryOfTheDriver) {
  machine.driver.steal(0, machine.driver.room(0));
  const RequestId context = machine.request_ids.next();
  machine.broker.announce_context(context, bob, {"GPU-0", seconds(60)}, machine.now);
  machine.run_jobs();
  EXPECT_EQ(machine.why(context), "waits");
  EXPECT_EQ(view().missing, Bytes{}) << "nothing was refused";
}

// Of two claims of one tenant, the first uses up what its group is guaranteed.
TEST(ElasticPoolOfAGroup, CreatesNoMoreAtTheExpenseOfOthersThanIsGuaranteed) {
  Policy policy = elastic_policy();
  policy.tenants = {parent("lab", {{gibibytes(1), gibibytes(8)}}),
                    user("ann", 1, {{kGuarantee, gibibytes(8)}}, "lab")};
  Machine machine(policy, Machine::Start::kEmpty);
  machine.driver.steal(0, gibibytes(10));
  machine.pass({});
  const SessionId ann = machine.connect(1);
  const SliceId slice = machine.slice(ann);
  const RequestId first = machine.grow(ann, slice, gibibytes(1), seconds(60));
  const RequestId second = machine.grow(ann, slice, kGuarantee, seconds(60));
  machine.driver.restore(0, gibibytes(2));
  machine.pass_in_steps(Store::kLongestPause);
  EXPECT_EQ(machine.why(first), "granted");
  EXPECT_EQ(machine.why(second), "waits");
  EXPECT_EQ(machine.driver.room(0), gibibytes(1));
}

TEST_F(ElasticPool, KeepsForAGuaranteeWhatItsTenantReturns) {
  const Grant grant = machine.get(ann, of_ann, kGuarantee);
  machine.driver.steal(0, machine.driver.room(0));
  observe();
  EXPECT_TRUE(machine.give_back(ann, of_ann, grant));
  EXPECT_GE(created(), kGuarantee) << "nobody else got it, and nothing is left to others";
  EXPECT_TRUE(machine.is_granted(machine.grow(ann, of_ann, kGuarantee)));
}

TEST_F(PoolThatBecomesElastic, GivesNothingBackWhileMemoryIsReshapedThatTheDriverMayRefuse) {
  EXPECT_TRUE(machine.broker.set_display(0, true, machine.now));
  machine.jobs_run_at_once = false;
  const RequestId id = machine.grow(bob, {{of_bob, mebibytes(600), {}, kOneExtent}});
  machine.pass_in_steps(Elastic::kIdle);
  machine.driver.fails = [](const Extent&) { return true; };
  machine.run_jobs();
  machine.cancel(id);
  machine.run_jobs();
  machine.driver.fails = {};
  machine.jobs_run_at_once = true;
  machine.pass_in_steps(5 * Elastic::kIdle);
  EXPECT_LE(created(), kAtRest + Elastic::kStock);
  EXPECT_EQ(view().free, gibibytes(8));
  EXPECT_TRUE(machine.broker.settled());
}

TEST_F(ElasticPool, KeepsMemoryChargedThatAProcessStillUses) {
  const Grant kept = machine.get(bob, of_bob, mebibytes(256));
  const Grant let_go = machine.get(bob, of_bob, mebibytes(512));
  ASSERT_TRUE(machine.keep_but_give_back(bob, of_bob, kept));
  EXPECT_EQ(machine.charges("bob")[Charge::kQuarantined], mebibytes(256));
  ASSERT_TRUE(machine.give_back(bob, of_bob, let_go));
  machine.pass_in_steps(seconds(5));
  EXPECT_EQ(machine.charges("bob").total(), mebibytes(256)) << "one return proves one lease";
  machine.stop_using(bob, kept);
  machine.pass_in_steps(seconds(5));
  EXPECT_EQ(machine.charged("bob"), Bytes{});
  EXPECT_EQ(created(), kAtRest);
}

TEST_F(PoolThatBecomesElastic, ProvesMemoryByUseThatCouldNotBeCreatedAnew) {
  const Grant kept = machine.get(bob, of_bob, mebibytes(256));
  machine.driver.steal(0, gibibytes(2));
  ASSERT_TRUE(machine.keep_but_give_back(bob, of_bob, kept));
  ASSERT_EQ(machine.charges("bob")[Charge::kQuarantined], mebibytes(256));
  EXPECT_TRUE(machine.broker.set_display(0, true, machine.now));
  machine.collect();
  machine.pass_in_steps(seconds(30));
  EXPECT_EQ(machine.charges("bob")[Charge::kQuarantined], mebibytes(256)) << "the device has free memory";
  machine.stop_using(bob, kept);
  machine.pass_in_steps(seconds(5));
  EXPECT_EQ(machine.charged("bob"), Bytes{});
}

TEST_F(ElasticPool, LeavesMemoryToOthersAndSaysSo) {
  machine.driver.steal(0, gibibytes(7));
  observe();
  const Bytes room = gibibytes(3) - kAtRest - mebibytes(1536);
  EXPECT_EQ(view().free, kAtRest + room);
  const RequestId refused = machine.grow(bob, of_bob, gibibytes(2));
  EXPECT_THAT(machine.why(refused), HasSubstr("are missing at present, because others use the device"));
  EXPECT_GE(machine.driver.room(0), mebibytes(1536));
  const RequestId waiting = machine.grow(bob, of_bob, gibibytes(2), seconds(60));
  EXPECT_EQ(machine.events_of(Event::Kind::kWaiting).size(), 1);
  machine.driver.restore(0);
  machine.pass_in_steps(Store::kLongestPause);
  EXPECT_TRUE(machine.is_granted(waiting)) << machine.why(waiting);
}

TEST_F(ElasticPool, CreatesNothingToProveWhatOneProcessAloneHasUsed) {
  for (int i = 0; i < 4; ++i) machine.get(bob, of_bob, mebibytes(64));
  const std::uint64_t before = machine.driver.creations();
  machine.die(bob);
  machine.run_jobs();
  EXPECT_EQ(machine.charged("bob"), Bytes{});
  EXPECT_EQ(machine.driver.creations(), before);
}

TEST_F(ElasticPool, SeesWhatOthersGaveBackThoughNobodyAsksForMemory) {
  machine.driver.steal(0, gibibytes(7));
  observe();
  machine.driver.restore(0);
  EXPECT_LT(view().free, gibibytes(8));
  machine.pass_in_steps(Refill::kLongestPause);
  EXPECT_EQ(view().free, gibibytes(8));
  EXPECT_EQ(created(), kAtRest);
  EXPECT_EQ(machine.broker.next_deadline(), std::nullopt) << "there is nothing left to look for";
}

TEST_F(ElasticPool, CreatesMemoryOfWhichItDidNotKnowThatItIsFree) {
  machine.driver.steal(0, gibibytes(7));
  observe();
  machine.driver.restore(0);
  machine.get(bob, of_bob, gibibytes(4));
}

TEST_F(ElasticPool, IsTakenOverWithItsLoans) {
  const Grant grant = machine.get(bob, of_bob, gibibytes(3));
  machine.restart(elastic_policy());
  EXPECT_EQ(machine.charged("bob"), gibibytes(3));
  EXPECT_EQ(created(), kAtRest);
  ASSERT_TRUE(machine.resume(bob, {of_bob}, {grant}));
  machine.say_goodbye(bob);
  EXPECT_EQ(view().free, gibibytes(8));
  EXPECT_EQ(created(), kAtRest);
}

}  // namespace
}  // namespace gpumem::core
