#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// How long a session has that has let go of what it was asked for, while the driver does not prove it free.

namespace gpumem::core {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;
using testing::UnorderedElementsAre;

// Bob's liar lends memory to bob's user, says that it has returned it, and keeps it mapped. Ann is guaranteed
// 16 MiB, of which she has half.
class BrokerDeadline : public testing::Test {
 protected:
  static constexpr Bytes kBesidesThePool = mebibytes(64);
  static Policy policy() {
    Policy policy = small_policy();
    policy.devices[0].total = policy.devices[0].pool + kBesidesThePool;
    policy.devices[0].reclaim.lend_guarantees = true;
    policy.devices[0].reclaim.escalation = Escalation::kEndSession;
    policy.tenants[1].quotas[0].limit = mebibytes(60);
    return policy;
  }
  BrokerDeadline() {
    EXPECT_EQ(machine.driver.steal(0, kBesidesThePool), kBesidesThePool);
    import = share(liar, of_liar, shared);
  }
  ImportId share(SessionId lender, SliceId slice, const Grant& grant) {
    const HandleBytes handle{static_cast<char>(lender.value)};
    const auto leases = Machine::leases_of(grant);
    EXPECT_TRUE(
        machine.broker.export_handle(lender, of_leases(ExportHandle{}, slice, leases), handle, machine.now));
    const auto imported = machine.broker.import_handle(user, {handle}, machine.now);
    for (const OfferedLease& one : grant.leases) {
      machine.driver.hold(one.extent.id);
      machine.held[user].push_back(one.extent.id);
    }
    return imported.value().id;
  }
  void lie() { EXPECT_TRUE(machine.keep_but_give_back(liar, of_liar, shared)); }
  RequestId ask_for(Bytes bytes) { return machine.grow(ann, of_ann, bytes, minutes(5)); }
  void let_go() {
    machine.stop_using(user, shared);
    EXPECT_TRUE(machine.broker.release_import(user, {import}, machine.now));
    machine.collect();
  }
  /// Besides the pool, so much is used by a process, and so much by the driver.
  void observe(std::int64_t pid, Bytes of_process, Bytes of_driver) {
    Observation seen;
    seen.broker = mebibytes(64);
    seen.used = std::min(seen.broker + of_process + of_driver, policy().devices[0].total);
    seen.processes.emplace_back().pid = pid;
    seen.processes.back().used = of_process;
    machine.broker.begin_observation(0);
    machine.broker.observe(seen, machine.now);
    machine.collect();
  }
  /// Takes bob past his limit. Nobody is asked for a context.
  void make_context() {
    observe(peer_of(2).pid, mebibytes(8), {});
    ASSERT_THAT(machine.events_of(Event::Kind::kDebt), SizeIs(1));
  }
  void run_jobs_again() {
    machine.jobs_run_at_once = true;
    machine.collect();
  }
  const Duration deadline = policy().devices[0].reclaim.deadline;
  static constexpr Duration kMoment = std::chrono::milliseconds(1);

  Machine machine{policy()};
  const SessionId ann = machine.connect(1), liar = machine.connect(2);
  const SessionId user = machine.connect(2), other = machine.connect(2);
  const SliceId of_ann = machine.slice(ann), of_liar = machine.slice(liar), of_other = machine.slice(other);
  const Grant of_ann_before = machine.get(ann, of_ann, mebibytes(8));
  const Grant of_others = machine.get(other, of_other, mebibytes(8));
  const Grant more_of_others = machine.get(other, of_other, mebibytes(8));
  const Grant shared = machine.get(liar, of_liar, mebibytes(40));
  ImportId import;
};

struct BrokerDeadlineByDebt : BrokerDeadline, testing::WithParamInterface<bool> {};

// Ann returns memory herself. It meets her claim, and the guarantee covers an older request of hers then.
TEST_P(BrokerDeadlineByDebt, IsThatOfTheNeedThatThereIsNow) {
  if (GetParam()) make_context();
  const RequestId older = ask_for(mebibytes(16));
  ask_for(mebibytes(8));
  lie();
  machine.pass_in_steps(deadline / 2);
  machine.jobs_run_at_once = false;
  ASSERT_TRUE(machine.give_back(ann, of_ann, of_ann_before));
  run_jobs_again();
  ASSERT_EQ(machine.asked_of(user), mebibytes(8));
  let_go();
  machine.pass_in_steps(deadline - kMoment);
  EXPECT_THAT(machine.signals, IsEmpty());
  machine.pass_in_steps(kMoment);
  EXPECT_THAT(machine.signals,
              UnorderedElementsAre(Pair(user, Signal::kTerminate), Pair(liar, Signal::kTerminate)));
  machine.die(liar);
  EXPECT_TRUE(machine.is_granted(older)) << machine.why(older);
}

INSTANTIATE_TEST_SUITE_P(WhetherInDebt, BrokerDeadlineByDebt, testing::Bool());

// A display has the rest of the device, with the driver itself or alone. It takes more after the lie. If it
// may have a part of each lease, the driver cannot prove any of them free, whoever keeps them.
struct Others {
  Bytes of_display, of_driver;
};
struct BrokerDeadlineBesideOthers : BrokerDeadline, testing::WithParamInterface<Others> {};

TEST_P(BrokerDeadlineBesideOthers, IsForMemoryThatOthersCannotHave) {
  constexpr std::int64_t kDisplay = 99;
  const auto& [of_display, of_driver] = GetParam();
  const auto size = [](const OfferedLease& lease) { return lease.extent.size; };
  const Bytes all_but_one = mebibytes(40) - std::ranges::min(shared.leases, {}, size).extent.size;
  let_go();
  observe(kDisplay, of_display, of_driver);
  ask_for(mebibytes(8));
  lie();
  machine.pass_in_steps(deadline / 2);  // then another is asked
  observe(kDisplay, of_display + all_but_one + Bytes{1}, of_driver);
  machine.pass_in_steps(deadline / 2);
  EXPECT_EQ(std::ranges::count(machine.signals, std::pair(liar, Signal::kTerminate)), 0);
  observe(kDisplay, of_display + all_but_one, of_driver);
  EXPECT_EQ(std::ranges::count(machine.signals, std::pair(liar, Signal::kTerminate)), 1);
}

INSTANTIATE_TEST_SUITE_P(WhatTheyHave, BrokerDeadlineBesideOthers,
                         testing::Values(Others{mebibytes(64), {}}, Others{mebibytes(32), mebibytes(32)}));

// Another session returns memory in the user's place, and keeps it. The user shares other memory with it.
TEST_F(BrokerDeadline, IsTheOneThatASessionWasToldLast) {
  share(other, of_other, more_of_others);
  ask_for(mebibytes(8));
  lie();
  machine.pass_in_steps(deadline / 2);
  machine.jobs_run_at_once = false;
  ASSERT_TRUE(machine.keep_but_give_back(other, of_other, of_others));
  ASSERT_EQ(machine.asked_of(user), Bytes{});
  run_jobs_again();
  ASSERT_EQ(machine.asked_of(user), mebibytes(8));
  let_go();
  machine.pass_in_steps(deadline - kMoment);
  EXPECT_THAT(machine.signals, UnorderedElementsAre(Pair(liar, Signal::kTerminate)));
}

}  // namespace
}  // namespace gpumem::core
