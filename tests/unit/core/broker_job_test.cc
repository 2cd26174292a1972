#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// Jobs: the limit of all sessions of a command together, and what it has reserved.

namespace gpumem::core {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

class BrokerJob : public testing::Test {
 protected:
  explicit BrokerJob(const Policy& policy = small_policy()) : machine(policy) {}

  CommandJobId begin(SessionId owner, Bytes limit) {
    const auto begun = machine.broker.begin_job(owner, {"train", limit}, machine.now);
    machine.collect();
    return begun.value().job;
  }
  // A session in a job.
  SessionId join(std::uint32_t uid, CommandJobId job) {
    return machine.broker.open_session(peer_of(uid), "test", machine.now, job).value();
  }
  RequestId reserve(SessionId owner, Bytes bytes, Duration wait = minutes(1)) {
    const ReserveForJob request{"GPU-0", bytes, wait};
    const auto place = machine.broker.place_kept(owner, request, machine.now);
    const RequestId id = place ? *place : machine.request_ids.next();
    machine.answers.erase(id);
    machine.broker.reserve_for_job(id, owner, request, machine.now);
    machine.collect();
    return id;
  }

  // The process of `to` maps what `from` has been granted.
  ImportId share(SessionId from, SliceId slice, const Grant& grant, SessionId to) {
    const HandleBytes handle{'1'};
    EXPECT_TRUE(machine.broker.export_handle(from, {slice, Machine::leases_of(grant)}, handle, machine.now));
    return map(to, machine.broker.import_handle(to, {handle}, machine.now).value());
  }
  ImportId map(SessionId session, const Imported& imported) {
    for (const auto& [lease, extent] : imported.leases) {
      machine.driver.hold(extent.id);
      machine.held[session].push_back(extent.id);
    }
    machine.collect();
    return imported.id;
  }
  void apply(const Policy& policy) {
    ASSERT_TRUE(machine.broker.apply(policy, machine.now));
    machine.collect();
  }

  Machine machine;
  SessionId owner = machine.connect(2);  ///< of bob's job
};

TEST_F(BrokerJob, LimitsAllItsSessionsTogether) {
  const CommandJobId job = begin(owner, mebibytes(8));
  const SessionId one = join(2, job);
  const SessionId other = join(2, job);
  machine.get(one, machine.slice(one), mebibytes(6));
  const SliceId slice = machine.slice(other);
  const RequestId denied = machine.grow(other, slice, mebibytes(4));
  EXPECT_EQ(machine.code(denied), Code::kResourceExhausted);
  EXPECT_THAT(machine.why(denied), testing::AllOf(HasSubstr("its job's limit of 8MiB"),
                                                  HasSubstr("6MiB are charged"), HasSubstr("--limit")));
  machine.get(other, slice, mebibytes(2));
  EXPECT_THAT(machine.why(machine.grow(other, slice, mebibytes(10))), HasSubstr("whole limit of its job"));
  const SessionId outside = machine.connect(2);
  machine.get(outside, machine.slice(outside), mebibytes(40));
  EXPECT_EQ(machine.charged("bob"), mebibytes(48));
}

TEST_F(BrokerJob, IsJoinedByItsUserAlone) {
  const CommandJobId job = begin(owner, mebibytes(8));
  EXPECT_EQ(machine.broker.job_of(join(2, job)), job);
  EXPECT_FALSE(machine.broker.job_of(join(1, job)));
  EXPECT_FALSE(machine.broker.job_of(join(2, {job.value + 1})));
  EXPECT_EQ(machine.broker.begin_job(owner, {"again", {}}, machine.now).error().code,
            Code::kFailedPrecondition);
  machine.die(owner);
  EXPECT_EQ(machine.broker.job_of(join(2, job)), job) << "as long as a session of it lives";
}

TEST_F(BrokerJob, KeepsItsPlaceInTheLineWithAReservation) {
  const CommandJobId job = begin(owner, mebibytes(24));
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(24))));
  EXPECT_EQ(machine.charged("bob"), mebibytes(24));
  const SessionId second = machine.connect(2);
  begin(second, mebibytes(30));
  const RequestId waits = reserve(second, mebibytes(30));
  EXPECT_EQ(machine.why(waits), "waits") << "16 MiB are ann's";
  const SessionId member = join(2, job);
  const SliceId slice = machine.slice(member);
  const Grant grant = machine.get(member, slice, mebibytes(20));
  EXPECT_EQ(machine.charged("bob"), mebibytes(24)) << "it comes from the reservation";
  ASSERT_TRUE(machine.give_back(member, slice, grant));
  EXPECT_EQ(machine.charged("bob"), mebibytes(24)) << "and goes back to it";
  machine.get(member, slice, mebibytes(24));
  machine.die(owner);
  EXPECT_EQ(machine.why(waits), "waits");
  machine.die(member);
  EXPECT_TRUE(machine.is_granted(waits));
  machine.die(second);
  EXPECT_TRUE(machine.is_as_new());
  EXPECT_EQ(machine.written.jobs.size(), 0U);
}

Policy policy_with_host() {
  Policy policy = small_policy();
  policy.devices.push_back(device("host", mebibytes(64)));
  for (TenantRule& tenant : policy.tenants) tenant.quotas.push_back({{}, mebibytes(48)});
  return policy;
}

struct BrokerJobOnTheHost : BrokerJob {
  BrokerJobOnTheHost() : BrokerJob(policy_with_host()) {}

  SessionId join_bounded(Bytes host_limit) {
    const auto begun = machine.broker.begin_job(owner, {.label = "", .host_limit = host_limit}, machine.now);
    return join(2, begun.value().job);
  }
  std::string pin(SessionId session, Bytes bytes) {
    const auto pinned = machine.broker.charge(session, {"host", bytes, true}, machine.now);
    machine.collect();
    return pinned ? "" : pinned.error().message;
  }
};

TEST_F(BrokerJobOnTheHost, LimitsLentAndPinnedMemoryTogether) {
  const SessionId one = join_bounded(mebibytes(16));
  const SliceId slice = machine.slice(one, {}, "host");
  EXPECT_EQ(pin(one, mebibytes(8)), "");
  machine.get(one, slice, mebibytes(4));
  EXPECT_THAT(pin(one, mebibytes(14)), HasSubstr("12MiB of the host_limit of job 1, 16MiB, are charged"));
  EXPECT_THAT(machine.why(machine.grow(one, slice, mebibytes(8))),
              testing::AllOf(HasSubstr("its job's limit of 16MiB"), HasSubstr("higher --host-limit")));
  EXPECT_EQ(pin(one, mebibytes(12)), "");
  const JobView view = machine.broker.jobs({}, 1).at(0);
  EXPECT_EQ(view.devices.at(1).charged, mebibytes(16));
  EXPECT_EQ(view.devices.at(1).peak, mebibytes(16));
  EXPECT_EQ(view.devices.at(1).outside, mebibytes(12));
  EXPECT_EQ(view.denied, 2U);
  const auto probed = machine.broker.charge(one, {"host", mebibytes(14), true, true}, machine.now);
  EXPECT_FALSE(probed.has_value());
  EXPECT_EQ(machine.broker.jobs({}, 1).at(0).denied, view.denied) << "a probe is no denial";
  const auto denied = machine.events_of(Event::Kind::kDenied);
  ASSERT_EQ(denied.size(), 2U);
  EXPECT_EQ(denied[0].bytes, mebibytes(6));
  EXPECT_THAT(denied[0].words, HasSubstr("6MiB more may not be pinned: 12MiB of the host_limit of job 1"));
  EXPECT_EQ(machine.broker.job_account(owner).value().peak, mebibytes(16)) << "it had nothing of a GPU";
  machine.get(one, machine.slice(one), mebibytes(4));
  EXPECT_EQ(machine.broker.job_account(owner).value().peak, mebibytes(4));
  const SessionId outside = machine.connect(2);
  EXPECT_THAT(pin(outside, mebibytes(34)), HasSubstr("16MiB of the host_limit of tenant bob, 48MiB"));
  EXPECT_THAT(pin(outside, mebibytes(50)),
              HasSubstr("50MiB alone are more than the host_limit of tenant bob, 48MiB; ask for less"));
  EXPECT_EQ(pin(outside, mebibytes(32)), "");
  EXPECT_EQ(machine.broker.charge(outside, {"host", mebibytes(40)}, machine.now).has_value(), true)
      << "what is there already is not refused";
  for (const SessionId session : {one, outside, owner}) machine.die(session);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerJobOnTheHost, IsChargedForWhatAMemberHasPinnedBeyondItsLimit) {
  const SessionId one = join_bounded(mebibytes(16));
  EXPECT_TRUE(machine.broker.charge(one, {"host", mebibytes(40)}, machine.now));
  EXPECT_EQ(machine.broker.jobs({}, 1).at(0).devices.at(1).outside, mebibytes(40));
  machine.restart(policy_with_host());
  EXPECT_EQ(machine.broker.jobs({}, 1).at(0).devices.at(1).outside, mebibytes(40));
  EXPECT_TRUE(machine.broker.charge(one, {"host", mebibytes(44)}, machine.now));
}

TEST_F(BrokerJobOnTheHost, FollowsItsTenantAndARestart) {
  const SessionId one = join_bounded(mebibytes(16));
  EXPECT_EQ(pin(one, mebibytes(8)), "");
  Policy renamed = policy_with_host();
  renamed.tenants.back().name = "rob";
  apply(renamed);
  EXPECT_EQ(machine.broker.jobs({}, 1).at(0).devices.at(1).charged, mebibytes(8));
  machine.restart(renamed);
  EXPECT_EQ(machine.broker.jobs({}, 1).at(0).devices.at(1).charged, mebibytes(8));
  EXPECT_EQ(machine.broker.jobs({}, 1).at(0).devices.at(1).limit, mebibytes(16));
}

TEST_F(BrokerJob, HasNoHostLimitWithoutAHostStore) {
  const auto begun = machine.broker.begin_job(owner, {.label = "", .host_limit = mebibytes(8)}, machine.now);
  ASSERT_FALSE(begun);
  EXPECT_THAT(begun.error().message, HasSubstr("no host store"));
}

Policy policy_with_reserve() {
  Policy policy = small_policy();
  for (TenantRule& tenant : policy.tenants) tenant.quotas[0].reserve = mebibytes(24);
  return policy;
}

struct BrokerJobWithReserve : BrokerJob {
  BrokerJobWithReserve() : BrokerJob(policy_with_reserve()) {}
};

TEST_F(BrokerJobWithReserve, ReservesNoMoreThanAllJobsOfItsTenantMay) {
  const CommandJobId job = begin(owner, {});
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(16))));
  const SessionId second = machine.connect(2);
  begin(second, {});
  const RequestId waits = reserve(second, mebibytes(12));
  EXPECT_EQ(machine.why(waits), "waits");
  const SessionId member = join(2, job);
  const SliceId slice = machine.slice(member);
  machine.get(member, slice, mebibytes(20));
  EXPECT_EQ(machine.why(waits), "waits") << "what is on loan is reserved, too";
  const SessionId third = machine.connect(2);
  begin(third, {});
  EXPECT_THAT(machine.why(reserve(third, mebibytes(12), {})),
              testing::AllOf(HasSubstr("`reserve`"), HasSubstr("of 24MiB, of which 16MiB are reserved")));
  ASSERT_TRUE(machine.is_granted(reserve(third, mebibytes(8))))
      << "there are 8 MiB, and the other is not overdue";
  machine.die(owner);
  EXPECT_TRUE(machine.is_granted(waits));
  machine.die(member);
  machine.die(second);
  const RequestId larger = reserve(third, mebibytes(64));
  EXPECT_TRUE(machine.is_granted(larger)) << "as much as may be reserved";
  EXPECT_EQ(machine.charged("bob"), mebibytes(24));
  machine.die(third);
  EXPECT_TRUE(machine.is_as_new());
}

// A growth within the reservation does not wait behind one of the same job that needs more.
TEST_F(BrokerJob, ServesWhatItHasReservedAtOnce) {
  const CommandJobId job = begin(owner, {});
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(8))));
  const SessionId other = machine.connect(2);
  machine.get(other, machine.slice(other), mebibytes(40));
  const SessionId large = join(2, job);
  const SessionId small = join(2, job);
  EXPECT_EQ(machine.why(machine.grow(large, machine.slice(large), mebibytes(10), minutes(1))), "waits");
  machine.get(small, machine.slice(small), mebibytes(6));
}

TEST_F(BrokerJob, LosesToTheLineWhatItDoesNotUse) {
  const CommandJobId job = begin(owner, mebibytes(40));
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(40))));
  const SessionId member = join(2, job);
  machine.pass_in_steps(seconds(60));
  machine.get(member, machine.slice(member), mebibytes(10));
  const SessionId other = machine.connect(2);
  const RequestId waits = machine.grow(other, machine.slice(other), mebibytes(20), minutes(10));
  machine.pass_in_steps(seconds(119));
  EXPECT_EQ(machine.why(waits), "waits");
  machine.pass_in_steps(seconds(2));
  EXPECT_TRUE(machine.is_granted(waits));
  EXPECT_EQ(machine.charged("bob"), mebibytes(48)) << "it gives as much as the line needs";
  EXPECT_TRUE(machine.signals.empty());
}

TEST_F(BrokerJob, LosesToTheLineWhatItDoesNotUseNoLaterBesideAYoungerJob) {
  for (const SessionId one : {owner, machine.connect(2)}) {
    begin(one, {});
    ASSERT_TRUE(machine.is_granted(reserve(one, mebibytes(16))));
    machine.pass_in_steps(seconds(50));
  }
  const SessionId other = machine.connect(2);
  const SliceId slice = machine.slice(other);
  machine.get(other, slice, mebibytes(16));
  const RequestId waits = machine.grow(other, slice, mebibytes(16), minutes(10));
  machine.pass_in_steps(seconds(19));
  EXPECT_EQ(machine.why(waits), "waits");
  machine.pass_in_steps(seconds(2));
  EXPECT_TRUE(machine.is_granted(waits)) << "the older one has used nothing for two minutes";
}

// It lacks free memory, and memory that is reserved already is not free.
TEST_F(BrokerJob, ReservesMoreFromFreeMemoryAlone) {
  begin(owner, {});
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(8))));
  const SessionId other = machine.connect(2), third = machine.connect(2);
  const SliceId slice = machine.slice(other);
  machine.get(other, slice, mebibytes(32));
  const Grant small = machine.get(other, slice, mebibytes(8));
  const RequestId more = reserve(owner, mebibytes(8));
  const RequestId waits = machine.grow(third, machine.slice(third), mebibytes(8), minutes(1));
  ASSERT_TRUE(machine.give_back(other, slice, small));
  EXPECT_TRUE(machine.is_granted(more));
  EXPECT_EQ(machine.why(waits), "waits");
  const SessionId ann = machine.connect(1);
  machine.get(ann, machine.slice(ann), mebibytes(16));
}

TEST_F(BrokerJob, IsRefusedAtOnceWhatItsLimitCannotHoldReserved) {
  begin(owner, mebibytes(8));
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(8))));
  EXPECT_EQ(machine.code(reserve(owner, mebibytes(2))), Code::kResourceExhausted);
}

// Nobody else waits, and this request would not.
TEST_F(BrokerJob, LosesWhatItDoesNotUseToARequestThatCannotWait) {
  begin(owner, {});
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(40))));
  machine.pass_in_steps(seconds(121));
  const SessionId other = machine.connect(2);
  machine.get(other, machine.slice(other), mebibytes(20));
}

// What is within ann's guarantee would be kept for her.
TEST_F(BrokerJob, KeepsFromTheLineWhatWouldNotHelpIt) {
  const SessionId ann = machine.connect(1), bob = machine.connect(2);
  begin(ann, {});
  ASSERT_TRUE(machine.is_granted(reserve(ann, mebibytes(16))));
  const SliceId slice = machine.slice(bob);
  machine.get(bob, slice, mebibytes(40));
  const RequestId waits = machine.grow(bob, slice, mebibytes(16), minutes(10));
  machine.pass_in_steps(minutes(5));
  EXPECT_EQ(machine.why(waits), "waits");
  EXPECT_EQ(machine.charged("ann"), mebibytes(16));
}

TEST_F(BrokerJob, RefusesAnyAmountThatCannotBe) {
  const Bytes most{~std::uint64_t{0} - mebibytes(2).count + 1};
  const SessionId beside = machine.connect(2);
  for (const Bytes limit : {Bytes{}, most}) {
    const SessionId of = machine.connect(2);
    const SessionId member = join(2, begin(of, limit));
    for (const SessionId one : {member, beside}) {
      const SliceId slice = machine.slice(one);
      machine.get(one, slice, mebibytes(4));
      EXPECT_EQ(machine.code(machine.grow(one, slice, most, minutes(1))), Code::kResourceExhausted);
    }
  }
}

// ---- Beside others of its tenant ----

TEST_F(BrokerJob, LetsSmallerRequestsPassOneThatItsTenantHasNoRoomFor) {
  Policy policy = small_policy();
  policy.tenants[1].quotas[0].limit = mebibytes(48);
  apply(policy);
  const SessionId member = join(2, begin(owner, {}));
  const SessionId large = machine.connect(2), small = machine.connect(2);
  machine.get(member, machine.slice(member), mebibytes(40));
  EXPECT_EQ(machine.why(machine.grow(large, machine.slice(large), mebibytes(16), minutes(1))), "waits");
  machine.get(small, machine.slice(small), mebibytes(4));
}

// Only bob himself can make room for it.
TEST_F(BrokerJob, HoldsUpNobodyElseByWhatItsTenantHasNoRoomFor) {
  Policy policy = small_policy();
  policy.tenants.push_back(user("cid", 3, {{{}, mebibytes(64)}}));
  apply(policy);
  const SessionId member = join(2, begin(owner, {}));
  const SessionId beside = machine.connect(2), cid = machine.connect(3);
  machine.get(member, machine.slice(member), mebibytes(40));
  const RequestId waits = machine.grow(beside, machine.slice(beside), mebibytes(10), minutes(30));
  machine.pass_in_steps(minutes(11));
  EXPECT_EQ(machine.why(waits), "waits");
  machine.get(cid, machine.slice(cid), mebibytes(4));
}

TEST_F(BrokerJob, TellsSinceWhenItsRequestsWait) {
  const CommandJobId job = begin(owner, mebibytes(56));
  const SessionId member = join(2, job), beside = machine.connect(2);
  const SliceId slice = machine.slice(member);
  const Grant grant = machine.get(beside, machine.slice(beside), mebibytes(40));
  const TimePoint begun = machine.now;
  machine.grow(member, slice, mebibytes(16), minutes(60));
  machine.pass_in_steps(seconds(10));
  reserve(owner, mebibytes(32));
  machine.grow(beside, machine.slice(beside), mebibytes(16), minutes(60));
  EXPECT_THAT(machine.broker.jobs()[0].waiting_since,
              testing::UnorderedElementsAre(begun, begun + seconds(10)));
  machine.die(beside);
  EXPECT_THAT(machine.broker.jobs()[0].waiting_since, testing::IsEmpty());
  EXPECT_EQ(machine.broker.jobs()[0].waited, seconds(10));
}

// A request of the rest that is overdue gets its turn before later ones of the job.
TEST_F(BrokerJob, WaitsBehindAnOverdueRequestThatItsTenantHasNoRoomFor) {
  const SessionId member = join(2, begin(owner, {}));
  const SliceId slice = machine.slice(member);
  std::vector<Grant> grants;
  for (int i = 0; i < 6; ++i) grants.push_back(machine.get(member, slice, mebibytes(8)));
  const SessionId beside = machine.connect(2);
  const RequestId large = machine.grow(beside, machine.slice(beside), mebibytes(16), minutes(60));
  machine.pass_in_steps(minutes(11));
  const RequestId later = machine.grow(member, slice, mebibytes(8), minutes(60));
  ASSERT_TRUE(machine.give_back(member, slice, grants[0]));
  EXPECT_EQ(machine.why(later), "waits");
  ASSERT_TRUE(machine.give_back(member, slice, grants[1]));
  EXPECT_TRUE(machine.is_granted(large));
}

TEST_F(BrokerJob, CoversWithItsReservationMemoryThatPassesToIt) {
  const CommandJobId job = begin(owner, {});
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(16))));
  const SessionId publisher = machine.connect(2);
  const SliceId slice = machine.slice(publisher);
  std::vector<LeaseId> leases;
  for (int i = 0; i < 2; ++i) {
    for (const LeaseId id : Machine::leases_of(machine.get(publisher, slice, mebibytes(4))))
      leases.push_back(id);
  }
  Publish weights;
  weights.name = "weights";
  weights.keep = true;
  ASSERT_TRUE(machine.broker.publish(publisher, of_leases(weights, slice, leases), machine.now));
  machine.die(publisher);
  EXPECT_EQ(machine.charged("bob"), mebibytes(24));
  const SessionId member = join(2, job);
  map(member,
      machine.broker.map_region(member, {.owner = "bob", .name = "weights"}, machine.now).value().imported);
  EXPECT_EQ(machine.charged("bob"), mebibytes(16));
  machine.die(member);
  EXPECT_EQ(machine.charged("bob"), mebibytes(16)) << "8 are kept, 8 are left of the reservation";
  machine.die(owner);
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
}

TEST_F(BrokerJob, TellsWhatItHasUsed) {
  const CommandJobId job = begin(owner, mebibytes(8));
  const SessionId member = join(2, job);
  const SliceId slice = machine.slice(member);
  ASSERT_TRUE(machine.give_back(member, slice, machine.get(member, slice, mebibytes(6))));
  const RequestId waits = machine.grow(member, slice, mebibytes(8), seconds(5));
  EXPECT_TRUE(machine.is_granted(waits));
  machine.grow(member, slice, mebibytes(2), seconds(5));
  machine.pass(seconds(5));
  machine.die(member);
  const JobAccount account = machine.broker.job_account(owner).value();
  EXPECT_EQ(account.peak, mebibytes(8));
  EXPECT_EQ(account.denied, 1U);
  EXPECT_EQ(account.waited, seconds(5));
}

TEST_F(BrokerJob, ShowsItsSessionsWhatItHasBesideWhatTheTenantHas) {
  const SessionId one = join(2, begin(owner, mebibytes(8)));
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(8))));
  const SessionId other = join(2, machine.broker.job_of(one));
  const SessionId outside = machine.connect(2);
  machine.get(one, machine.slice(one), mebibytes(2));
  machine.get(other, machine.slice(other), mebibytes(4));
  machine.get(outside, machine.slice(outside), mebibytes(10));
  const DeviceFigures page = machine.broker.figures(one).devices[0];
  EXPECT_EQ(page.limit, mebibytes(8).count);
  EXPECT_EQ(page.charged, mebibytes(6).count);
  EXPECT_EQ(page.held, mebibytes(2).count);
  EXPECT_EQ(page.tenant_charged, mebibytes(16).count);
  const DeviceFigures without = machine.broker.figures(outside).devices[0];
  EXPECT_EQ(without.charged, mebibytes(18).count) << "with what is reserved and not used";
  EXPECT_EQ(page.tenant_limit, without.limit);
}

// As the library asks: without a wait, and then with one.
TEST_F(BrokerJob, CountsARequestThatIsRepeatedOnce) {
  const SessionId member = join(2, begin(owner, mebibytes(8)));
  const SessionId other = join(2, machine.broker.job_of(member));
  const SliceId slice = machine.slice(member), held = machine.slice(other);
  machine.get(other, held, mebibytes(4));
  const auto account = [&] { return machine.broker.job_account(owner).value(); };
  const auto ask = [&](Duration wait, bool is_probe) {
    return machine.grow(member, {{{slice, mebibytes(6)}}, wait, is_probe});
  };
  for (int i = 0; i < 5; ++i) {
    ask({}, true);
    ask({}, false);
    machine.pass(seconds(1) / 4);
  }
  EXPECT_EQ(account().denied, 5U) << "each was asked for twice";
  EXPECT_EQ(machine.events_of(Event::Kind::kDenied).size(), 5U);
  ask({}, true);
  const RequestId waits = ask(seconds(10), false);
  machine.pass(seconds(2));
  machine.cancel(waits);
  EXPECT_EQ(account().waited, seconds(2));
  ask(seconds(10), false);
  machine.pass(seconds(3));
  machine.die(member);
  EXPECT_EQ(account().denied, 5U);
  EXPECT_EQ(account().waited, seconds(5));
}

TEST_F(BrokerJob, KeepsItsAccountWhenItsBrokerIsRestarted) {
  const SessionId member = join(2, begin(owner, mebibytes(8)));
  const SliceId slice = machine.slice(member), other = machine.slice(member);
  ASSERT_TRUE(machine.give_back(member, slice, machine.get(member, slice, mebibytes(6))));
  const Grant grant = machine.get(member, other, mebibytes(4));
  const Grow asked{{{slice, mebibytes(6)}}, seconds(10)};
  machine.grow(member, asked);
  machine.restart();
  ASSERT_TRUE(machine.resume(owner, {}, {}));
  ASSERT_TRUE(machine.resume(member, {slice, other}, {grant}));
  const RequestId waits = machine.grow(member, asked);
  EXPECT_EQ(machine.why(waits), "waits");
  const auto account = [&] { return machine.broker.job_account(owner).value(); };
  EXPECT_EQ(account().denied, 0U);
  EXPECT_EQ(account().peak, mebibytes(6));
  machine.pass(seconds(10));
  EXPECT_EQ(account().denied, 1U);
}

TEST_F(BrokerJob, GetsNoNumberOfAJobThatNoJournalKnows) {
  machine.broker.number_jobs_after({1'900'000'000});
  machine.written = machine.broker.checkpoint();
  EXPECT_EQ(begin(owner, {}).value, 1'900'000'001U);
}

TEST_F(BrokerJob, NamesWhatIsReservedAndNotUsed) {
  Policy policy = small_policy();
  policy.tenants[1].quotas[0].limit = mebibytes(24);
  apply(policy);
  const SessionId member = join(2, begin(owner, {}));
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(20))));
  machine.get(member, machine.slice(member), mebibytes(4));
  const SessionId second = machine.connect(2);
  begin(second, {});
  EXPECT_THAT(machine.why(reserve(second, mebibytes(8), {})),
              testing::AllOf(HasSubstr("(16MiB of it reserved by the tenant's jobs and not used)"),
                             HasSubstr("`gpumem job list`"), testing::Not(HasSubstr("give memory back"))));
}

TEST_F(BrokerJob, SurvivesItsBroker) {
  const CommandJobId job = begin(owner, mebibytes(24));
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(20))));
  const SessionId member = join(2, job);
  const SliceId slice = machine.slice(member);
  const Grant grant = machine.get(member, slice, mebibytes(8));
  machine.restart();
  EXPECT_EQ(machine.charged("bob"), mebibytes(20));
  ASSERT_TRUE(machine.resume(owner, {}, {}));
  ASSERT_TRUE(machine.resume(member, {slice}, {grant}));
  machine.get(member, slice, mebibytes(16));
  EXPECT_THAT(machine.why(machine.grow(member, slice, mebibytes(2))), HasSubstr("job's limit"));
  EXPECT_NE(begin(machine.connect(2), {}), job) << "numbers are not given out again";
}

TEST_F(BrokerJob, KeepsItsReservationOverARestartWhereOthersHaveTheRest) {
  const SessionId member = join(2, begin(owner, {})), other = machine.connect(1);
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(40))));
  machine.get(member, machine.slice(member), mebibytes(32));
  machine.get(other, machine.slice(other), mebibytes(24));
  machine.restart();
  EXPECT_EQ(machine.charged("bob"), mebibytes(40));
}

class BrokerJobBesideContexts : public BrokerJob {
 protected:
  static Policy with_contexts() {
    Policy policy = small_policy();
    policy.devices[0].context_overhead = mebibytes(4);
    policy.tenants[1].quotas[0].limit = mebibytes(40);
    return policy;
  }
  BrokerJobBesideContexts() : BrokerJob(with_contexts()) {}
};

TEST_F(BrokerJobBesideContexts, ReservesWhatTheyLeave) {
  const SessionId beside = machine.connect(2);
  const SliceId slice = machine.slice(beside);
  const Grant grant = machine.get(beside, slice, mebibytes(2));
  begin(owner, {});
  const RequestId waits = reserve(owner, mebibytes(64));
  EXPECT_EQ(machine.why(waits), "waits");
  ASSERT_TRUE(machine.give_back(beside, slice, grant));
  EXPECT_TRUE(machine.is_granted(waits)) << machine.why(waits);
}

TEST_F(BrokerJobBesideContexts, StartsItsProgramOnWhatItHasReserved) {
  const CommandJobId job = begin(owner, {});
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(40))));
  const SessionId member = join(2, job);
  const SliceId slice = machine.slice(member);
  EXPECT_EQ(machine.charged("bob"), mebibytes(36)) << "the reservation has paid for the context";
  machine.get(member, slice, mebibytes(36));
  Peer another = peer_of(2);
  ++another.pid;
  const SessionId beside = machine.broker.open_session(another, "test", machine.now).value();
  const auto refused = machine.broker.open_slice(beside, {"GPU-0", {}, "test"});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("of which 40MiB are charged already"));
}

// ann is guaranteed 16 MiB, which are lent meanwhile.
class BrokerJobWithLending : public BrokerJob {
 protected:
  static Policy lending() {
    Policy policy = small_policy();
    policy.devices[0].reclaim.lend_guarantees = true;
    policy.devices[0].reclaim.escalation = Escalation::kEndSession;
    return policy;
  }
  BrokerJobWithLending() : BrokerJob(lending()) {}
};

TEST_F(BrokerJobWithLending, GivesClaimsWhatItDoesNotUseAtOnce) {
  const CommandJobId job = begin(owner, {});
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(64))));
  const SessionId member = join(2, job);
  machine.get(member, machine.slice(member), mebibytes(40));
  const SessionId ann = machine.connect(1);
  machine.get(ann, machine.slice(ann), mebibytes(16));
  EXPECT_TRUE(machine.signals.empty());
  EXPECT_EQ(machine.charged("bob"), mebibytes(48));
  EXPECT_EQ(machine.asked_of(member), Bytes{0});
}

// Memory that is asked back for a claim is not reserved again when it comes.
TEST_F(BrokerJobWithLending, ReturnsToClaimsWhatItUses) {
  const CommandJobId job = begin(owner, {});
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(64))));
  machine.cooperative = true;
  const SessionId member = join(2, job);
  const SliceId slice = machine.slice(member);
  for (int i = 0; i < 32; ++i) machine.get(member, slice, mebibytes(2));
  const SessionId ann = machine.connect(1);
  const RequestId claim = machine.grow(ann, machine.slice(ann), mebibytes(16), seconds(10));
  EXPECT_TRUE(machine.is_granted(claim)) << machine.why(claim);
  EXPECT_EQ(machine.charged("bob"), mebibytes(48));
}

// ---- With others of other tenants: memory is lent, and sessions are ended ----

// ann and bob are guaranteed 16 MiB each, cid nothing.
class BrokerJobAmongThree : public BrokerJob {
 protected:
  static Policy three() {
    Policy policy = small_policy();
    policy.devices[0].reclaim.lend_guarantees = true;
    policy.devices[0].reclaim.escalation = Escalation::kEndSession;
    policy.tenants[1].quotas[0].guarantee = mebibytes(16);
    policy.tenants.push_back(user("cid", 3, {{{}, mebibytes(64)}}));
    return policy;
  }
  BrokerJobAmongThree() : BrokerJob(three()) {}
  SessionId come_with(std::uint32_t uid, Bytes bytes) {
    const SessionId session = machine.connect(uid);
    machine.get(session, machine.slice(session), bytes);
    return session;
  }
  RequestId claim(SessionId session, Bytes bytes) {
    return machine.grow(session, machine.slice(session), bytes, minutes(1));
  }
};

TEST_F(BrokerJobAmongThree, ClaimsWhatItsTenantIsGuaranteedBesideALargerRequest) {
  const SessionId member = join(2, begin(owner, {}));
  machine.get(member, machine.slice(member), mebibytes(10));
  const SessionId cid = come_with(3, mebibytes(54));
  claim(machine.connect(2), mebibytes(12));
  claim(member, mebibytes(6));
  machine.pass_in_steps(seconds(3));
  EXPECT_THAT(machine.signals, testing::ElementsAre(testing::Pair(cid, Signal::kTerminate)));
}

TEST_F(BrokerJobAmongThree, EndsNobodyByAReservation) {
  come_with(3, mebibytes(64));
  begin(owner, {});
  const RequestId waits = reserve(owner, mebibytes(16));
  machine.pass_in_steps(seconds(30));
  EXPECT_EQ(machine.why(waits), "waits");
  EXPECT_TRUE(machine.signals.empty());
}

// ann's jobs have 24 MiB reserved, 8 of them beyond her guarantee. bob needs 12.
struct BrokerJobsReserveBesideAGuarantee : BrokerJobAmongThree {
  BrokerJobsReserveBesideAGuarantee() {
    for (const Bytes bytes : {mebibytes(12), mebibytes(12)}) {
      const SessionId of_ann = machine.connect(1);
      begin(of_ann, {});
      EXPECT_TRUE(machine.is_granted(reserve(of_ann, bytes)));
    }
  }
};

TEST_F(BrokerJobsReserveBesideAGuarantee, GiveTheLineAllThatIsLentIfTheDeviceLends) {
  come_with(3, mebibytes(40));
  const SessionId bob = machine.connect(2);
  const RequestId waits = machine.grow(bob, machine.slice(bob), mebibytes(12), minutes(10));
  machine.pass_in_steps(seconds(121));
  EXPECT_TRUE(machine.is_granted(waits));
}

TEST_F(BrokerJobsReserveBesideAGuarantee, GiveTheLineNothingIfTheyMayNotGiveEnough) {
  Policy policy = three();
  policy.devices[0].reclaim.lend_guarantees = false;
  apply(policy);
  come_with(3, mebibytes(12));
  come_with(2, mebibytes(28));
  const SessionId bob = machine.connect(2);
  const RequestId waits = machine.grow(bob, machine.slice(bob), mebibytes(12), minutes(10));
  machine.pass_in_steps(seconds(121));
  EXPECT_EQ(machine.why(waits), "waits");
  EXPECT_EQ(machine.charged("ann"), mebibytes(24));
}

// The debt is bob's.
TEST_F(BrokerJobsReserveBesideAGuarantee, PayNoDebtOfAnotherTenant) {
  come_with(2, mebibytes(30));
  Policy policy = three();
  policy.tenants[1].quotas[0].limit = mebibytes(24);
  apply(policy);
  EXPECT_EQ(machine.charged("ann"), mebibytes(24));
}

// What it reserves would only be needed by the same request.
TEST_F(BrokerJobAmongThree, DoesNotGiveWayToItsOwnRequest) {
  const CommandJobId job = begin(owner, {});
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(8))));
  come_with(3, mebibytes(52));
  const SessionId member = join(2, job);
  const RequestId waits = machine.grow(member, machine.slice(member), mebibytes(20), minutes(10));
  machine.pass_in_steps(seconds(121));
  EXPECT_EQ(machine.why(waits), "waits");
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
}

Policy policy_of_a_team() {
  Policy policy = small_policy();
  policy.tenants.push_back(group("team", 50, {{{}, mebibytes(64)}}));
  return policy;
}

struct BrokerJobOfATeam : BrokerJob {
  BrokerJobOfATeam() : BrokerJob(policy_of_a_team()) {}
  SessionId come(std::uint32_t uid, CommandJobId job = {}) {
    Peer peer = peer_of(uid);
    peer.gids = {50};
    return machine.broker.open_session(peer, "test", machine.now, job).value();
  }
};

TEST_F(BrokerJobOfATeam, IsNotJoinedByAnotherUserOfTheSameTenant) {
  const CommandJobId job = begin(come(8), {});
  EXPECT_EQ(machine.broker.job_of(come(8, job)), job);
  EXPECT_FALSE(machine.broker.job_of(come(9, job)));
}

// bob may reserve what is guaranteed to ann, since his sessions can be ended.
TEST_F(BrokerJobAmongThree, IsNotJoinedByASessionThatCannotBeEnded) {
  const CommandJobId job = begin(owner, {});
  Peer peer = peer_of(2);
  peer.can_be_ended = false;
  EXPECT_FALSE(machine.broker.job_of(machine.broker.open_session(peer, "test", machine.now, job).value()));
  const SessionId of = machine.broker.open_session(peer, "test", machine.now).value();
  EXPECT_TRUE(
      machine.broker.job_of(machine.broker.open_session(peer, "test", machine.now, begin(of, {})).value()));
}

// Memory that it returns goes to ann, who claims it, and not to a session of the same job that waits.
TEST_F(BrokerJobAmongThree, GetsNothingOfWhatItReturnsForAClaim) {
  const CommandJobId job = begin(owner, {});
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(64))));
  const SessionId one = join(2, job), other = join(2, job);
  const SliceId slice = machine.slice(one);
  const Grant grant = machine.get(one, slice, mebibytes(16));
  machine.get(one, slice, mebibytes(48));
  const RequestId waits = claim(other, mebibytes(8));
  const RequestId of_ann = claim(machine.connect(1), mebibytes(16));
  ASSERT_TRUE(machine.give_back(one, slice, grant));
  EXPECT_TRUE(machine.is_granted(of_ann));
  EXPECT_EQ(machine.why(waits), "waits");
}

// The debt of a job has no consequence.
TEST_F(BrokerJobWithLending, HasAWholeDeadlineForAClaimHoweverLongItsJobIsInDebt) {
  const Duration deadline = machine.broker.policy().devices[0].reclaim.deadline;
  const SessionId lender = machine.connect(2), member = join(2, begin(owner, mebibytes(48)));
  const SliceId slice = machine.slice(lender);
  const Grant grant = machine.get(lender, slice, mebibytes(64));
  share(lender, slice, grant, member);
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  EXPECT_EQ(machine.asked_of(member), mebibytes(16));
  machine.pass_in_steps(10 * deadline);
  const SessionId ann = machine.connect(1);
  machine.grow(ann, machine.slice(ann), mebibytes(8), minutes(60));
  machine.pass_in_steps(deadline - seconds(1));
  EXPECT_EQ(machine.events_of(Event::Kind::kTerminating).size(), 0U);
  machine.pass_in_steps(seconds(2));
  EXPECT_EQ(machine.events_of(Event::Kind::kTerminating).size(), 1U);
}

TEST_F(BrokerJob, GetsNothingOfWhatItReturnsForADebt) {
  const CommandJobId job = begin(owner, {});
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(40))));
  const SessionId one = join(2, job), other = join(2, job);
  const SliceId slice = machine.slice(one);
  const Grant grant = machine.get(one, slice, mebibytes(8));
  machine.get(one, slice, mebibytes(32));
  Policy policy = small_policy();
  policy.tenants[1].quotas[0].limit = mebibytes(24);
  apply(policy);
  const RequestId waits = machine.grow(other, machine.slice(other), mebibytes(8), minutes(1));
  ASSERT_TRUE(machine.give_back(one, slice, grant));
  EXPECT_EQ(machine.charged("bob"), mebibytes(32));
  EXPECT_EQ(machine.why(waits), "waits");
}

// Memory that becomes reserved again is not on its way to ann, so cid's deadline stands.
TEST_F(BrokerJobAmongThree, DelaysNoClaimByMemoryThatItReturnsAndKeepsReserved) {
  const SessionId member = join(2, begin(owner, {}));
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(16))));
  const SliceId slice = machine.slice(member);
  const Grant grant = machine.get(member, slice, mebibytes(16));
  const SessionId cid = come_with(3, mebibytes(48));
  claim(machine.connect(1), mebibytes(16));
  EXPECT_EQ(machine.asked_of(cid), mebibytes(16));
  machine.jobs_run_at_once = false;
  ASSERT_TRUE(machine.give_back(member, slice, grant));
  EXPECT_EQ(machine.in(Charge::kReturning), mebibytes(16));
  EXPECT_EQ(machine.asked_of(cid), mebibytes(16));
}

TEST_F(BrokerJobAmongThree, IsAskedAgainForAClaimAlthoughItHadNothingForAnother) {
  begin(owner, {});
  const SessionId beside = come_with(2, mebibytes(64));
  const RequestId of_cid = claim(machine.connect(3), mebibytes(8));
  EXPECT_EQ(machine.asked_of(beside), mebibytes(8));
  machine.say_spent(beside);
  machine.cancel(of_cid);
  claim(machine.connect(1), mebibytes(16));
  EXPECT_EQ(machine.asked_of(beside), mebibytes(16));
}

TEST_F(BrokerJobAmongThree, AnswersForWhatItDeclares) {
  Policy policy = three();
  policy.tenants[1].quotas[0].limit = mebibytes(20);
  apply(policy);
  const SessionId member = join(2, begin(owner, {}));
  ASSERT_TRUE(machine.broker.charge(member, {"GPU-0", mebibytes(30)}, machine.now));
  machine.collect();
  EXPECT_EQ(machine.asked_of(member), mebibytes(10));
  machine.pass_in_steps(seconds(3));
  EXPECT_THAT(machine.signals, testing::ElementsAre(testing::Pair(member, Signal::kTerminate)));
}

// cid has what bob's group has too much.
TEST_F(BrokerJobAmongThree, IsNotAskedForWhatItDeclaresWithinAGuarantee) {
  Policy policy = three();
  policy.tenants.push_back(parent("lab", {{{}, mebibytes(32)}}));
  policy.tenants[1].parent = policy.tenants[2].parent = "lab";
  policy.tenants[1].quotas[0].limit = policy.tenants[2].quotas[0].limit = mebibytes(32);
  apply(policy);
  const SessionId member = join(2, begin(owner, {}));
  const SessionId cid = come_with(3, mebibytes(16));
  policy.tenants[3].quotas[0].limit = mebibytes(24);
  apply(policy);
  ASSERT_TRUE(machine.broker.charge(member, {"GPU-0", mebibytes(12)}, machine.now));
  machine.collect();
  EXPECT_EQ(machine.asked_of(cid), mebibytes(4));
  EXPECT_EQ(machine.asked_of(member), Bytes{0});
}

// The burst of bob's is that of all his sessions together.
TEST_F(BrokerJobAmongThree, KeepsItsMemoryWhileATerminatedSessionHasTheWholeBurst) {
  Peer peer = peer_of(3);
  peer.can_be_ended = false;
  const SessionId cid = machine.broker.open_session(peer, "test", machine.now).value();
  machine.get(cid, machine.slice(cid), mebibytes(16));
  const SessionId member = join(2, begin(owner, {}));
  machine.get(member, machine.slice(member), mebibytes(10));
  const SessionId beside = come_with(2, mebibytes(30));
  Policy policy = three();
  policy.tenants[0].quotas[0].guarantee = mebibytes(48);
  apply(policy);
  claim(machine.connect(1), mebibytes(48));
  machine.pass_in_steps(seconds(3));
  EXPECT_THAT(machine.signals, testing::ElementsAre(testing::Pair(beside, Signal::kTerminate)));
  EXPECT_EQ(machine.asked_of(member), Bytes{0});
}

TEST_F(BrokerJobAmongThree, IsNotEndedForMemoryThatPassesItsLimitByItself) {
  const SessionId member = join(2, begin(owner, mebibytes(8)));
  const SessionId lender = machine.connect(2);
  const SliceId slice = machine.slice(lender);
  const Grant grant = machine.get(lender, slice, mebibytes(16));
  share(lender, slice, grant, member);
  ASSERT_TRUE(machine.give_back(lender, slice, grant));
  EXPECT_EQ(machine.asked_of(member), mebibytes(8));
  machine.pass_in_steps(seconds(30));
  EXPECT_TRUE(machine.signals.empty());
}

// ---- Another policy ----

TEST_F(BrokerJob, ComesToATenantWhoseRequestsWait) {
  const SessionId member = join(2, begin(owner, {}));
  machine.get(member, machine.slice(member), mebibytes(40));
  const SessionId ann = machine.connect(1);
  const SliceId slice = machine.slice(ann);
  const RequestId waits = machine.grow(ann, slice, mebibytes(32), minutes(1));
  Policy policy = small_policy();
  policy.tenants.pop_back();
  policy.tenants[0].gid = 102;  // bob's
  apply(policy);
  EXPECT_EQ(machine.why(waits), "waits");
  machine.die(member);
  EXPECT_TRUE(machine.is_granted(waits));
  machine.die(ann);
  machine.die(owner);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerJob, ChangesPlacesWithAnotherUser) {
  begin(owner, {});
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(20))));
  const SessionId ann = machine.connect(1);
  ASSERT_TRUE(machine.broker.charge(ann, {"GPU-0", mebibytes(4)}, machine.now));
  Policy policy = small_policy();
  std::swap(policy.tenants[0].uid, policy.tenants[1].uid);
  apply(policy);
  EXPECT_EQ(machine.charged("ann"), mebibytes(20));
  machine.die(ann);
  machine.die(owner);
  EXPECT_TRUE(machine.is_as_new());
}

// Two processes of one user, whose groups differ.
TEST_F(BrokerJob, IsLeftByASessionThatDoesNotFollowItsOwner) {
  Peer peer = peer_of(2);
  peer.gids = {200};
  const SessionId of = machine.broker.open_session(peer, "test", machine.now).value();
  const SessionId member = join(2, begin(of, {}));
  ASSERT_TRUE(machine.is_granted(reserve(of, mebibytes(20))));
  machine.get(member, machine.slice(member), mebibytes(8));
  Policy policy = small_policy();
  policy.tenants[1] = group("bob", 102, {{{}, mebibytes(64)}});
  policy.tenants.push_back(group("lab", 200, {{{}, mebibytes(64)}}));
  apply(policy);
  EXPECT_FALSE(machine.broker.job_of(member));
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
  EXPECT_EQ(machine.charged("lab"), mebibytes(12)) << "the reservation is smaller by what has left";
  machine.die(member);
  machine.die(of);
  machine.die(owner);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerJob, FollowsItsUserToAnotherTenant) {
  const CommandJobId job = begin(owner, mebibytes(24));
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(20))));
  const SessionId member = join(2, job);
  machine.get(member, machine.slice(member), mebibytes(8));
  const SessionId beside = machine.connect(2);
  machine.get(beside, machine.slice(beside), mebibytes(4));
  Policy policy = small_policy();
  policy.tenants[1].name = "robert";
  apply(policy);
  EXPECT_FALSE(machine.knows_tenant("bob"));
  EXPECT_EQ(machine.charged("robert"), mebibytes(24));
  EXPECT_EQ(machine.broker.job_of(member), job);
  EXPECT_EQ(machine.broker.job_of(join(2, job)), job);
}

TEST_F(BrokerJob, LosesARequestThatHasBecomeImpossible) {
  const SessionId other = machine.connect(2), small = machine.connect(2);
  const SliceId held = machine.slice(other);
  const Grant grant = machine.get(other, held, mebibytes(40));
  begin(owner, {});
  const RequestId waits = reserve(owner, mebibytes(32), minutes(60));
  const RequestId grows = machine.grow(other, held, mebibytes(24), minutes(60));
  machine.pass_in_steps(minutes(11));
  Policy policy = small_policy();
  policy.tenants[1].quotas[0].limit = mebibytes(24);
  apply(policy);
  EXPECT_THAT(machine.why(waits), HasSubstr("32MiB is more than the whole limit of 24MiB"));
  EXPECT_EQ(machine.why(grows), "waits") << "it can still be granted";
  ASSERT_TRUE(machine.give_back(other, held, grant));
  EXPECT_TRUE(machine.is_granted(grows));
  machine.die(other);
  machine.get(small, machine.slice(small), mebibytes(4));
}

TEST_F(BrokerJob, GivesUpItsReservationForADebt) {
  begin(owner, {});
  ASSERT_TRUE(machine.is_granted(reserve(owner, mebibytes(40))));
  const SessionId beside = machine.connect(2);
  machine.get(beside, machine.slice(beside), mebibytes(4));
  Policy policy = small_policy();
  policy.tenants[1].quotas[0].limit = mebibytes(20);
  apply(policy);
  EXPECT_EQ(machine.charged("bob"), mebibytes(20));
  EXPECT_EQ(machine.asked_of(beside), Bytes{0});
}

}  // namespace
}  // namespace gpumem::core
