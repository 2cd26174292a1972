// What the driver says is used, against what is charged: who is named, who is charged, and who never is.
#include "daemon/core/sessions/reconcile.h"

#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

namespace gpumem::core {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr Duration kPeriod = std::chrono::milliseconds(1);  // between two looks, and what must last
constexpr Bytes kPoolSize = mebibytes(64), kContext = mebibytes(4), kAllowance = mebibytes(6);
constexpr std::uint64_t kBrokerStarted = 100, kLater = 1000;

/// A device of 1 GiB, of which 64 MiB are lent; ann (uid 1), bob (uid 2), and everybody else up to 32 MiB.
Policy policy(bool end = false) {
  Policy policy = small_policy();
  policy.devices[0].total = gibibytes(1);
  policy.devices[0].context_overhead = kContext;
  policy.others = {{{}, mebibytes(32)}};
  policy.past_broker = {.end = end, .allowance = kAllowance, .confirm = kPeriod};
  return policy;
}

/// What a process has on the device, as a test knows it.
struct Truth {
  std::int64_t pid = 0;
  std::uint32_t uid = 0;
  Bytes own{};
  Bytes mapped{};  ///< of its leases
  std::uint64_t started = kLater;
  bool left_to_driver = false;
};

class Reconciling : public testing::Test {
 protected:
  explicit Reconciling(bool end = false) : machine(policy(end)) {}

  /// A driver that answers truly, and books leases on the processes that have mapped them if
  /// `books_importers`.
  Observation answer(const std::vector<Truth>& truth) const {
    Observation seen;
    seen.broker = seen.used = kPoolSize;
    seen.broker_started = kBrokerStarted;
    for (const Truth& one : truth) {
      seen.used += one.own;
      seen.processes.push_back({.pid = one.pid,
                                .started = one.started,
                                .uid = one.uid,
                                .gids = {one.uid + 100},
                                .command = "train",
                                .left_to_driver = one.left_to_driver,
                                .used = books_importers ? one.own + one.mapped : one.own});
    }
    return seen;
  }
  void observe(const Observation& seen) {
    machine.broker.observe(seen, machine.now);
    machine.collect();
  }
  void look(const std::vector<Truth>& truth, bool regular = true) {
    machine.pass(kPeriod);
    machine.broker.begin_observation(0);
    Observation seen = answer(truth);
    seen.regular = regular;
    observe(seen);
  }
  const Reconciliation& view() const { return machine.broker.reconciliation(0); }
  Bytes outside(const std::string& tenant) const {
    for (const TenantView& one : machine.broker.tenants()) {
      if (one.name == tenant) return one.outside;
    }
    return {};
  }
  std::vector<Event> events(Event::Kind kind) const { return machine.events_of(kind); }
  Truth process_of(std::uint32_t uid, Bytes own, Bytes mapped = {}) const {
    return {.pid = peer_of(uid).pid, .uid = uid, .own = own, .mapped = mapped};
  }

  Machine machine;
  bool books_importers = false;
};

TEST_F(Reconciling, WhatAProcessTookGoesWithItsSessionAndTenant) {
  const SessionId guest = machine.connect(3);
  machine.slice(guest);
  const SessionId ann = machine.connect(1);
  look({process_of(3, mebibytes(30))});
  EXPECT_EQ(outside("uid:3"), mebibytes(30));
  machine.die(guest);
  EXPECT_FALSE(machine.knows_tenant("uid:3"));
  ASSERT_TRUE(
      machine.broker.charge(ann, {"GPU-0", mebibytes(100)}, machine.now));  // a debt, which is looked into
  machine.collect();
  EXPECT_FALSE(machine.events_of(Event::Kind::kDebt).empty());
}

TEST_F(Reconciling, AProcessPastTheBrokerIsNamedAndChargedToItsUsersTenant) {
  look({{.pid = 77, .uid = 2, .own = mebibytes(30)}});
  ASSERT_THAT(view().processes, SizeIs(1));
  EXPECT_EQ(view().processes[0].pid, 77);
  EXPECT_EQ(view().processes[0].tenant, "bob");
  EXPECT_EQ(view().processes[0].bytes, mebibytes(30));
  EXPECT_EQ(view().past_broker, mebibytes(30));
  EXPECT_EQ(view().unexplained, Bytes{});
  EXPECT_EQ(outside("bob"), mebibytes(30));
  const auto told = events(Event::Kind::kPastBroker);
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].pid, 77);
  EXPECT_EQ(told[0].tenant, "bob");
  EXPECT_EQ(told[0].bytes, mebibytes(30));
}

TEST_F(Reconciling, WhatATenantsProcessesTookIsInHowItStands) {
  const SessionId guest = machine.connect(2);
  machine.slice(guest);
  ASSERT_TRUE(machine.broker.charge(guest, {"GPU-0", mebibytes(3)}, machine.now));
  look({process_of(2, mebibytes(3) + kContext), {.pid = 77, .uid = 2, .own = mebibytes(30)}});
  const auto bob = machine.broker.explain_tenant("bob", false, machine.now);
  ASSERT_TRUE(bob);
  EXPECT_EQ(bob->devices[0].past_broker, mebibytes(30));
  EXPECT_EQ(bob->devices[0].declared, mebibytes(3));
  EXPECT_EQ(bob->devices[0].overhead, kContext);
}

TEST_F(Reconciling, ItsChargeGoesWithIt) {
  look({{.pid = 77, .uid = 2, .own = mebibytes(30)}});
  look({});
  EXPECT_EQ(outside("bob"), Bytes{});
  EXPECT_THAT(view().processes, IsEmpty());
}

TEST_F(Reconciling, SessionsAreNeitherAskedNorEndedForADebtOfMemoryPastTheBroker) {
  Policy ending = policy();
  ending.devices[0].reclaim.escalation = Escalation::kEndSession;
  ASSERT_TRUE(machine.broker.apply(ending, machine.now));
  const SessionId guest = machine.connect(3);
  machine.get(guest, machine.slice(guest), mebibytes(8));
  look({process_of(3, kContext, mebibytes(8)), {.pid = 77, .uid = 3, .own = mebibytes(30)}});
  ASSERT_THAT(events(Event::Kind::kDebt), SizeIs(1));
  machine.pass_in_steps(std::chrono::minutes(1));
  EXPECT_EQ(machine.asked_of(guest), Bytes{});
  EXPECT_THAT(machine.signals, IsEmpty());
}

TEST_F(Reconciling, AProcessWithinTheAllowanceIsListedAndNobodysCharge) {
  look({{.pid = 77, .uid = 2, .own = kAllowance}});
  ASSERT_THAT(view().processes, SizeIs(1));
  EXPECT_EQ(view().processes[0].tenant, "");
  EXPECT_EQ(view().unexplained, Bytes{});
  EXPECT_EQ(outside("bob"), Bytes{});
  EXPECT_THAT(events(Event::Kind::kPastBroker), IsEmpty());
}

TEST_F(Reconciling, AUserWithoutATenantFormsOneAsLongAsItIsCharged) {
  look({{.pid = 77, .uid = 7, .own = mebibytes(30)}});
  EXPECT_EQ(outside("uid:7"), mebibytes(30));
  look({});
  EXPECT_FALSE(machine.knows_tenant("uid:7"));
}

TEST_F(Reconciling, AProcessOfWhichTheKernelDoesNotTellIsListedAndNobodysCharge) {
  look({{.pid = 77, .own = mebibytes(30), .started = 0}});
  ASSERT_THAT(view().processes, SizeIs(1));
  EXPECT_EQ(view().processes[0].tenant, "");
  EXPECT_FALSE(machine.knows_tenant("uid:0"));
}

TEST_F(Reconciling, AProcessThatIsGoneMeanwhileIsNotListed) {
  look({{.pid = 0, .own = mebibytes(30), .started = 0}});
  EXPECT_THAT(view().processes, IsEmpty());
  EXPECT_THAT(events(Event::Kind::kPastBroker), IsEmpty());
}

TEST_F(Reconciling, LeasesAreNotHeldAgainstTheirSessionWhetherTheyAreBookedOnItOrNot) {
  for (const bool booked : {false, true}) {
    books_importers = booked;
    const auto session = machine.connect(2);
    const auto slice = machine.slice(session);
    machine.get(session, slice, mebibytes(32));
    look({process_of(2, mebibytes(5), mebibytes(32))});
    EXPECT_THAT(view().processes, IsEmpty()) << booked;
    EXPECT_EQ(view().overhead, mebibytes(5)) << booked;
    EXPECT_EQ(outside("bob"), mebibytes(5)) << booked;
    machine.die(session);
    look({});
    EXPECT_EQ(outside("bob"), Bytes{}) << booked;
  }
}

TEST_F(Reconciling, WhatASessionTakesBesidesIsFoundWhetherLeasesAreBookedOnItOrNot) {
  for (const bool booked : {false, true}) {
    books_importers = booked;
    const auto session = machine.connect(2);
    const auto slice = machine.slice(session);
    machine.get(session, slice, mebibytes(32));
    look({process_of(2, mebibytes(20), mebibytes(32))});
    ASSERT_THAT(view().processes, SizeIs(1)) << booked;
    EXPECT_EQ(view().processes[0].bytes, mebibytes(14)) << booked;
    EXPECT_EQ(view().overhead, kAllowance) << booked;
    EXPECT_EQ(view().unexplained, Bytes{}) << booked;
    EXPECT_EQ(outside("bob"), mebibytes(20)) << booked;
    machine.die(session);
  }
}

TEST_F(Reconciling, WhatASessionDeclaredIsNotPastTheBroker) {
  const auto session = machine.connect(2);
  machine.slice(session);
  ASSERT_TRUE(machine.broker.charge(session, {"GPU-0", mebibytes(50)}, machine.now));
  look({process_of(2, mebibytes(55))});
  EXPECT_THAT(view().processes, IsEmpty());
  EXPECT_EQ(view().declared, mebibytes(50));
  EXPECT_EQ(view().overhead, mebibytes(5));
  EXPECT_EQ(outside("bob"), mebibytes(55));
}

TEST_F(Reconciling, LeasesThatAreNotYetMappedDoNotMakeItsOtherMemoryLookLarger) {
  books_importers = true;
  const auto one = machine.connect(1), two = machine.connect(2);
  const auto slice_one = machine.slice(one), slice_two = machine.slice(two);
  machine.get(one, slice_one, mebibytes(16));
  machine.get(two, slice_two, mebibytes(32));
  look({process_of(1, mebibytes(5), mebibytes(16)), process_of(2, mebibytes(5), mebibytes(8))});
  EXPECT_THAT(view().processes, IsEmpty());
  EXPECT_EQ(outside("ann"), mebibytes(5));
  EXPECT_EQ(outside("bob"), kContext) << "it cannot be told, so the estimate stays";
}

TEST_F(Reconciling, LeasesGivenBackWhileTheDriverAnswersAreNotHeldAgainstIt) {
  books_importers = true;
  const auto session = machine.connect(2);
  const auto slice = machine.slice(session);
  const Grant grant = machine.get(session, slice, mebibytes(32));
  machine.broker.begin_observation(0);
  const Observation seen = answer({process_of(2, mebibytes(5), mebibytes(32))});
  ASSERT_TRUE(machine.give_back(session, slice, grant));
  EXPECT_EQ(machine.charged("bob"), Bytes{});
  observe(seen);
  EXPECT_THAT(view().processes, IsEmpty());
  EXPECT_EQ(outside("bob"), mebibytes(5));
}

TEST_F(Reconciling, ASessionThatLeavesWhileTheDriverAnswersIsNoStranger) {
  books_importers = true;
  const auto session = machine.connect(2);
  const auto slice = machine.slice(session);
  machine.get(session, slice, mebibytes(32));
  machine.broker.begin_observation(0);
  const Observation seen = answer({process_of(2, mebibytes(5), mebibytes(32))});
  machine.say_goodbye(session);
  observe(seen);
  EXPECT_THAT(view().processes, IsEmpty());
  EXPECT_EQ(outside("bob"), Bytes{});
}

TEST_F(Reconciling, AnotherProcessWithTheSessionsPidIsNotTheSessions) {
  Peer peer = peer_of(2);
  peer.started = 500;
  const auto session = machine.broker.open_session(peer, "test", machine.now).value();
  machine.slice(session);
  observe(answer({{.pid = peer.pid, .uid = 1, .own = mebibytes(30), .started = 499}}));
  EXPECT_EQ(outside("bob"), kContext);
  EXPECT_EQ(outside("ann"), mebibytes(30));
}

TEST_F(Reconciling, TheBrokersOwnMemoryIsNobodys) {
  look({});
  EXPECT_EQ(view().used, kPoolSize);
  EXPECT_EQ(view().extents, kPoolSize);
  EXPECT_EQ(view().past_broker, Bytes{});
  EXPECT_EQ(view().unexplained, Bytes{});
}

TEST_F(Reconciling, FiguresThatTheDriverDoesNotTellChangeNothing) {
  const auto session = machine.connect(2);
  machine.slice(session);
  look({process_of(2, {}), {.pid = 77, .uid = 1}});
  EXPECT_EQ(outside("bob"), kContext);
  EXPECT_EQ(outside("ann"), Bytes{});
  EXPECT_THAT(view().processes, IsEmpty());
}

TEST_F(Reconciling, NoFigureIsMoreThanTheDevice) {
  Observation seen =
      answer({{.pid = 77, .uid = 2, .own = mebibytes(30)}, {.pid = 78, .uid = 2, .own = mebibytes(30)}});
  seen.used.count = seen.broker.count = seen.processes[0].used.count = seen.processes[1].used.count = ~0ULL;
  observe(seen);
  EXPECT_EQ(view().used, gibibytes(1));
  EXPECT_EQ(outside("bob"), gibibytes(2));
  look({});
  EXPECT_EQ(outside("bob"), Bytes{});
}

TEST_F(Reconciling, AProblemIsShownAndWhatWasSeenStays) {
  look({{.pid = 77, .uid = 2, .own = mebibytes(30)}});
  const auto seen = view().seen;
  machine.now += std::chrono::seconds(5);
  Observation failed;
  failed.problem = "no library";
  observe(failed);
  EXPECT_EQ(view().problem, "no library");
  EXPECT_EQ(view().seen, seen);
  EXPECT_EQ(outside("bob"), mebibytes(30));
  look({});
  EXPECT_EQ(view().problem, "");
}

TEST_F(Reconciling, IsToldOfWhatAppearsAndOfWhatGrowsMuch) {
  for (const std::uint64_t size : {30u, 60u, 94u, 95u, 10u, 74u, 75u})
    look({{.pid = 77, .uid = 2, .own = mebibytes(size)}});
  std::vector<std::uint64_t> told;
  for (const Event& one : events(Event::Kind::kPastBroker)) told.push_back(one.bytes.count >> 20);
  EXPECT_THAT(told, ElementsAre(30, 95, 75));
  EXPECT_EQ(outside("bob"), mebibytes(75));
}

TEST_F(Reconciling, MemoryThatNobodyHoldsIsToldOnceItStays) {
  Observation seen = answer({});
  seen.used += mebibytes(20);
  observe(seen);
  EXPECT_EQ(view().unexplained, mebibytes(20));
  EXPECT_THAT(events(Event::Kind::kUnexplained), IsEmpty()) << "a process may just come or go";
  for (int i = 0; i < 3; ++i) observe(seen);
  ASSERT_THAT(events(Event::Kind::kUnexplained), SizeIs(1));
  EXPECT_EQ(events(Event::Kind::kUnexplained)[0].bytes, mebibytes(20));
}

// ---- Contexts and what is declared ----

TEST_F(Reconciling, AContextIsChargedFromTheFirstSliceUntilTheSessionIsOver) {
  const auto session = machine.connect(2);
  EXPECT_EQ(outside("bob"), Bytes{});
  machine.slice(session);
  machine.slice(session);
  EXPECT_EQ(outside("bob"), kContext);
  look({process_of(2, mebibytes(2))});
  EXPECT_EQ(outside("bob"), mebibytes(2)) << "measured";
  look({process_of(2, mebibytes(3))});
  EXPECT_EQ(outside("bob"), mebibytes(3));
  look({});
  EXPECT_EQ(outside("bob"), kContext) << "it may come again";
  machine.say_goodbye(session);
  EXPECT_EQ(outside("bob"), Bytes{});
}

TEST_F(Reconciling, ASliceWhoseContextWouldPassTheLimitIsRefused) {
  Policy tight = policy();
  tight.tenants[1].quotas[0].limit = kPiece;
  Machine small(tight);
  const auto session = small.connect(2);
  const auto refused = small.broker.open_slice(session, {"GPU-0", {}, "test"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("'bob'"));
  EXPECT_THAT(refused.error().message, testing::HasSubstr(to_string(kPiece)));
}

TEST_F(Reconciling, TheSessionsOfOneProcessShareOneContext) {
  const auto one = machine.connect(2), two = machine.connect(2);
  machine.slice(one);
  machine.slice(two);
  look({process_of(2, mebibytes(5))});
  EXPECT_EQ(outside("bob"), mebibytes(5));
  machine.say_goodbye(one);
  look({process_of(2, mebibytes(5))});
  EXPECT_EQ(outside("bob"), mebibytes(5));
}

TEST_F(Reconciling, WhatIsDeclaredReplacesWhatWasDeclared) {
  const auto session = machine.connect(2);
  const auto charge = [&](Bytes bytes) {
    return machine.broker.charge(session, {"GPU-0", bytes}, machine.now);
  };
  ASSERT_TRUE(charge(mebibytes(20)));
  ASSERT_TRUE(charge(mebibytes(8)));
  EXPECT_EQ(outside("bob"), mebibytes(8));
  EXPECT_EQ(charge(gibibytes(1) + kPiece).error().code, Code::kInvalidArgument);
  EXPECT_EQ(machine.broker.charge(session, {"GPU-9", {}}, machine.now).error().code, Code::kNotFound);
  EXPECT_EQ(outside("bob"), mebibytes(8));
  machine.die(session);
  EXPECT_EQ(outside("bob"), Bytes{});
}

TEST_F(Reconciling, WhatWasSeenAndIsThenDeclaredIsNotChargedTwice) {
  const auto session = machine.connect(2);
  machine.slice(session);
  look({process_of(2, mebibytes(26))});
  EXPECT_EQ(outside("bob"), mebibytes(26));
  ASSERT_TRUE(machine.broker.charge(session, {"GPU-0", mebibytes(20)}, machine.now));
  EXPECT_EQ(outside("bob"), mebibytes(26));
}

// ---- Ending ----

struct Enforcing : Reconciling {
  Enforcing() : Reconciling(true) {}
  std::vector<Signal> sent_to(std::int64_t pid, std::uint64_t started = kLater) const {
    std::vector<Signal> sent;
    for (const SignalForeignProcess& one : machine.foreign_signals) {
      if (one.pid == pid && one.started == started) sent.push_back(one.signal);
    }
    return sent;
  }
  const Truth stranger{.pid = 77, .uid = 2, .own = mebibytes(30)};
};

TEST_F(Enforcing, IsAskedForWhenItLastsAndThenEnforced) {
  look({stranger});
  EXPECT_THAT(sent_to(77), IsEmpty());
  look({stranger});
  look({stranger});
  EXPECT_THAT(sent_to(77), ElementsAre(Signal::kTerminate));
  machine.pass(std::chrono::milliseconds(4998));
  EXPECT_THAT(sent_to(77), SizeIs(1));
  machine.pass(std::chrono::milliseconds(1));
  EXPECT_THAT(sent_to(77), ElementsAre(Signal::kTerminate, Signal::kKill));
  EXPECT_THAT(events(Event::Kind::kTerminating), SizeIs(1));
  EXPECT_THAT(events(Event::Kind::kKilling), SizeIs(1));
}

TEST_F(Enforcing, IsOverForOneThatGaveItBack) {
  look({stranger});
  look({stranger});
  look({});
  machine.pass(std::chrono::seconds(6));
  EXPECT_THAT(sent_to(77), ElementsAre(Signal::kTerminate));
}

TEST_F(Enforcing, DoesNotFollowThePidToAnotherProcess) {
  look({stranger});
  look({stranger});
  Truth other = stranger;
  other.started = kLater + 1;
  look({other});
  machine.pass(std::chrono::seconds(6));
  EXPECT_THAT(sent_to(77), ElementsAre(Signal::kTerminate));
  EXPECT_THAT(sent_to(77, kLater + 1), IsEmpty()) << "seen once";
  EXPECT_THAT(events(Event::Kind::kPastBroker), SizeIs(2));
  look({other});
  EXPECT_THAT(sent_to(77, kLater + 1), ElementsAre(Signal::kTerminate));
}

// The memory of the first process is still pinned by a child of it.
TEST_F(Enforcing, MeetsTheProcessThatHasTheNumberOfAnExitedOne) {
  Peer bobs = peer_of(2);
  bobs.started = kLater;
  const SessionId bob = machine.broker.open_session(bobs, "", machine.now).value();
  const Grant grant = machine.get(bob, machine.slice(bob), mebibytes(10));
  for (const OfferedLease& one : grant.leases) machine.driver.hold(one.extent.id);
  machine.die(bob);
  Peer anns = peer_of(1);
  anns.pid = bobs.pid;
  anns.started = kLater + 1;
  const SessionId ann = machine.broker.open_session(anns, "", machine.now).value();
  const Truth one{.pid = anns.pid, .uid = 1, .own = mebibytes(30), .started = anns.started};
  for (int i = 0; i < 4; ++i) look({one});
  EXPECT_EQ(outside("ann"), mebibytes(30));
  EXPECT_EQ(outside("bob"), Bytes{});
  ASSERT_FALSE(machine.signals.empty());
  EXPECT_EQ(machine.signals.front().first, ann);
}

TEST_F(Enforcing, SparesTheMachinesOwnAndTheSmallAndThoseOlderThanTheBroker) {
  Truth root = stranger, small = stranger, old = stranger, hidden = stranger;
  root.uid = 0;
  small.pid = 78;
  small.own = kAllowance;
  old.pid = 79;
  old.started = kBrokerStarted;
  hidden.pid = 80;
  hidden.started = 0;
  for (int i = 0; i < 3; ++i) look({root, small, old, hidden});
  machine.pass(std::chrono::minutes(1));
  EXPECT_THAT(machine.foreign_signals, IsEmpty());
}

TEST_F(Enforcing, SparesProcessesThatWereLeftToTheDriverAndHaveNoSession) {
  Truth left = stranger;
  left.left_to_driver = true;
  for (int i = 0; i < 3; ++i) look({left});
  machine.pass(std::chrono::minutes(1));
  EXPECT_THAT(machine.foreign_signals, IsEmpty());
  EXPECT_THAT(events(Event::Kind::kPastBroker), SizeIs(1));
  const auto session = machine.connect(2);
  machine.slice(session);
  Truth client = process_of(2, mebibytes(30));
  client.left_to_driver = true;
  for (int i = 0; i < 3; ++i) look({client});
  EXPECT_THAT(machine.signals, ElementsAre(std::pair(session, Signal::kTerminate)));
}

TEST_F(Enforcing, MeetsSessionsThroughTheirOwnHandle) {
  const auto session = machine.connect(2);
  machine.slice(session);
  for (int i = 0; i < 3; ++i) look({process_of(2, mebibytes(30))});
  machine.pass(std::chrono::seconds(5));
  EXPECT_THAT(machine.signals,
              ElementsAre(std::pair(session, Signal::kTerminate), std::pair(session, Signal::kKill)));
  EXPECT_THAT(machine.foreign_signals, IsEmpty());
}

TEST_F(Enforcing, CountsNoLookOnDemandAgainstAnybody) {
  for (int i = 0; i < 100; ++i) look({stranger}, false);
  EXPECT_THAT(machine.foreign_signals, IsEmpty());
  EXPECT_EQ(view().past_broker, stranger.own) << "what it saw is shown all the same";
  look({stranger});
  for (int i = 0; i < 100; ++i) look({stranger}, false);
  EXPECT_THAT(machine.foreign_signals, IsEmpty());
  look({stranger});
  EXPECT_THAT(sent_to(77), ElementsAre(Signal::kTerminate));
}

TEST_F(Enforcing, BeginsAnewWhenALookOnDemandSawNothing) {
  look({stranger});
  look({}, false);
  look({stranger});
  EXPECT_THAT(machine.foreign_signals, IsEmpty());
  look({stranger});
  EXPECT_THAT(sent_to(77), ElementsAre(Signal::kTerminate));
}

TEST_F(Enforcing, BeginsAnewWhenItIsTurnedOnAgain) {
  for (int i = 0; i < 2; ++i) look({stranger});
  ASSERT_THAT(sent_to(77), ElementsAre(Signal::kTerminate));
  ASSERT_TRUE(machine.broker.apply(policy(false), machine.now));
  machine.pass(std::chrono::seconds(6));
  ASSERT_TRUE(machine.broker.apply(policy(true), machine.now));
  for (int i = 0; i < 3; ++i) look({stranger});
  machine.pass(std::chrono::seconds(6));
  EXPECT_THAT(sent_to(77), ElementsAre(Signal::kTerminate, Signal::kTerminate, Signal::kKill));
}

TEST_F(Enforcing, IsNotEscapedByDeclaringMoreThanTheLimitHasRoomFor) {
  const auto session = machine.connect(2);
  machine.slice(session);
  for (int i = 0; i < 2; ++i) look({process_of(2, mebibytes(400))});
  ASSERT_TRUE(machine.broker.charge(session, {"GPU-0", mebibytes(400)}, machine.now));
  EXPECT_GE(outside("bob"), mebibytes(400));
  for (int i = 0; i < 2; ++i) look({process_of(2, mebibytes(400))});
  machine.pass(std::chrono::seconds(6));
  EXPECT_THAT(machine.signals,
              ElementsAre(std::pair(session, Signal::kTerminate), std::pair(session, Signal::kKill)));
}

TEST_F(Enforcing, SparesWhatTheLimitHadRoomForWhenItWasDeclared) {
  const auto session = machine.connect(2);
  machine.slice(session);
  ASSERT_TRUE(machine.broker.charge(session, {"GPU-0", mebibytes(50)}, machine.now));
  Policy lower = policy(true);
  lower.tenants[1].quotas[0].limit = mebibytes(10);
  ASSERT_TRUE(machine.broker.apply(lower, machine.now));
  for (int i = 0; i < 3; ++i) look({process_of(2, mebibytes(55))});
  EXPECT_THAT(machine.signals, IsEmpty());
}

TEST_F(Enforcing, SparesSessionsThatDeclareMeanwhile) {
  const auto session = machine.connect(2);
  machine.slice(session);
  for (int i = 0; i < 2; ++i) look({process_of(2, mebibytes(30))});
  ASSERT_TRUE(machine.broker.charge(session, {"GPU-0", mebibytes(30)}, machine.now));
  machine.pass(std::chrono::seconds(6));
  EXPECT_THAT(machine.signals, ElementsAre(std::pair(session, Signal::kTerminate)));
}

}  // namespace
}  // namespace gpumem::core
