#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// Memory that is given out by the driver's fabric handles, to processes that the broker cannot see.

namespace gpumem::core {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

constexpr Bytes kGuarantee = mebibytes(16);

// Ann may give out, and is guaranteed 16 MiB; bob may not.
class BrokerFabric : public testing::Test {
 protected:
  explicit BrokerFabric(Policy policy = fabric_policy()) : machine(std::move(policy)) {
    ann = machine.connect(1);
    slice = machine.slice(ann);
  }
  static Policy fabric_policy() {
    Policy policy = small_policy();
    policy.devices[0].no_fabric.clear();
    policy.tenants[0].fabric_handles = true;
    return policy;
  }
  static Policy lending() {
    Policy policy = fabric_policy();
    policy.tenants[0].quotas[0].guarantee = mebibytes(32);
    policy.tenants[1].quotas[0].guarantee = mebibytes(32);
    policy.devices[0].reclaim.lend_guarantees = true;
    policy.devices[0].reclaim.escalation = Escalation::kEndSession;
    return policy;
  }
  using Parts = Result<std::vector<FabricPart>>;
  Parts give_out(SessionId session, SliceId from, const Grant& grant, Bytes offset = {}, Bytes bytes = {}) {
    const auto handle_of = [this](ExtentId id) { return handle(id); };
    auto parts = machine.broker.export_fabric(
        session, {.slice = from, .leases = Machine::leases_of(grant), .offset = offset, .bytes = bytes},
        handle_of, machine.now);
    machine.collect();
    return parts;
  }
  Parts give_out(const Grant& grant, Bytes offset = {}, Bytes bytes = {}) {
    return give_out(ann, slice, grant, offset, bytes);
  }
  Result<RegionId> publish(const Grant& grant, Sharing sharing) {
    Publish terms;
    terms.name = "weights";
    terms.sharing = sharing;
    return machine.broker.publish(ann, of_leases(terms, slice, Machine::leases_of(grant)), machine.now);
  }
  /// A process that nobody knows imports it.
  void import_elsewhere(const Grant& grant) {
    for (const OfferedLease& one : grant.leases) machine.driver.hold(one.extent.id);
  }
  void let_go_elsewhere(const Grant& grant) {
    for (const OfferedLease& one : grant.leases) machine.driver.let_go(one.extent.id);
    machine.pass_in_steps(seconds(5));  // the driver is asked again
  }
  Bytes listed_fabric(SessionId session) {
    for (const SessionView& view : machine.broker.sessions()) {
      if (view.id == session && !view.shared.empty()) return view.shared[0].fabric;
    }
    return {};
  }
  std::optional<HandleBytes> handle(ExtentId id) const {
    if (driver_refuses) return std::nullopt;
    HandleBytes bytes{};
    bytes.front() = static_cast<char>(id.value);
    return bytes;
  }

  Machine machine;
  SessionId ann;
  SliceId slice;
  bool driver_refuses = false;
};

TEST_F(BrokerFabric, ARangeHasTheHandleOfEachExtentThatItTouches) {
  const Grant grant = machine.get(ann, slice, mebibytes(6));
  ASSERT_EQ(grant.leases.size(), 3u) << "of 2 MiB each";
  const auto parts = give_out(grant, mebibytes(1), mebibytes(2));
  ASSERT_TRUE(parts) << parts.error().message;
  ASSERT_EQ(parts->size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*parts)[i].lease, grant.leases[i].lease);
    EXPECT_EQ((*parts)[i].handle, handle(grant.leases[i].extent.id));
    EXPECT_EQ((*parts)[i].size, mebibytes(2));
    EXPECT_EQ((*parts)[i].bytes, mebibytes(1));
  }
  EXPECT_EQ((*parts)[0].offset, mebibytes(1));
  EXPECT_EQ((*parts)[1].offset, Bytes{});
  EXPECT_EQ(listed_fabric(ann), mebibytes(4)) << "the third is not given out";
  const auto told = machine.events_of(Event::Kind::kFabric);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].bytes, mebibytes(4));
}

TEST_F(BrokerFabric, RangesAndLeasesAreChecked) {
  const Grant grant = machine.get(ann, slice, mebibytes(4));
  EXPECT_EQ(give_out(grant, mebibytes(3), mebibytes(2)).error().code, Code::kInvalidArgument);
  EXPECT_EQ(give_out(grant, mebibytes(4)).error().code, Code::kInvalidArgument);
  EXPECT_EQ(give_out(grant, {UINT64_MAX}, mebibytes(2)).error().code, Code::kInvalidArgument);
  EXPECT_EQ(give_out(Grant{}).error().code, Code::kInvalidArgument);
  const SessionId other = machine.connect(1);
  EXPECT_EQ(give_out(other, machine.slice(other), grant).error().code, Code::kNotFound);
  EXPECT_EQ(listed_fabric(ann), Bytes{});
}

TEST_F(BrokerFabric, WhoIsNotAllowedIsToldWhoAllowsIt) {
  const SessionId bob = machine.connect(2);
  const SliceId own = machine.slice(bob);
  const auto refused = give_out(bob, own, machine.get(bob, own, mebibytes(2)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kPermissionDenied);
  EXPECT_THAT(refused.error().message, HasSubstr("fabric_handles = true in its [[tenant]]"));
}

TEST_F(BrokerFabric, ADeviceWithoutSaysWhy) {
  Policy policy = fabric_policy();
  policy.devices[0].no_fabric = "the moon is full";
  ASSERT_TRUE(machine.broker.apply(policy, machine.now));
  const auto refused = give_out(machine.get(ann, slice, mebibytes(2)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(refused.error().message, HasSubstr("the moon is full"));
}

TEST_F(BrokerFabric, WhatTheDriverGaveNoHandleForIsNotGivenOut) {
  driver_refuses = true;
  const auto refused = give_out(machine.get(ann, slice, mebibytes(2)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(listed_fabric(ann), Bytes{});
}

TEST_F(BrokerFabric, ATenantGivesOutWhatItIsGuaranteedAndNoMore) {
  const Grant most = machine.get(ann, slice, kGuarantee);
  ASSERT_TRUE(give_out(most));
  EXPECT_TRUE(give_out(most)) << "again: that is no more";
  EXPECT_EQ(listed_fabric(ann), kGuarantee);
  const SessionId second = machine.connect(1);
  const SliceId other = machine.slice(second);
  const Grant more = machine.get(second, other, mebibytes(2));
  const auto refused = give_out(second, other, more);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("16MiB"));
  import_elsewhere(most);
  machine.die(ann);
  EXPECT_FALSE(give_out(second, other, more)) << "it is still given out";
  let_go_elsewhere(most);
  EXPECT_TRUE(give_out(second, other, more));
}

TEST_F(BrokerFabric, ALeaseIsGivenOutInOneOfBothWays) {
  const SessionId user = machine.connect(1);
  const Grant shared = machine.get(ann, slice, mebibytes(2));
  HandleBytes bytes{};
  const ExportHandle terms{.uses = 2};
  const auto lend = [&](const Grant& grant) {
    ++bytes.back();
    return machine.broker.export_handle(ann, of_leases(terms, slice, Machine::leases_of(grant)), bytes,
                                        machine.now);
  };
  ASSERT_TRUE(lend(shared));
  ASSERT_TRUE(machine.broker.import_handle(user, {bytes}, machine.now));
  EXPECT_EQ(give_out(shared).error().code, Code::kFailedPrecondition);
  const Grant given = machine.get(ann, slice, mebibytes(2));
  ASSERT_TRUE(lend(given));
  ASSERT_TRUE(give_out(given));
  EXPECT_EQ(machine.broker.import_handle(user, {bytes}, machine.now).error().code, Code::kNotFound)
      << "that handle has ended";
  EXPECT_EQ(lend(given).error().code, Code::kFailedPrecondition);
}

TEST_F(BrokerFabric, PublishedMemoryIsNotGivenOut) {
  const Grant grant = machine.get(ann, slice, mebibytes(4));
  const auto version = publish(grant, Sharing::kPublic);
  ASSERT_TRUE(version);
  EXPECT_EQ(give_out(grant).error().code, Code::kFailedPrecondition)
      << "whether anybody has mapped it or not";
  EXPECT_EQ(listed_fabric(ann), Bytes{});
  ASSERT_TRUE(machine.broker.remove_region(ann, {"weights", version->value}, machine.now));
  ASSERT_TRUE(give_out(grant));
  EXPECT_EQ(publish(grant, Sharing::kPublic).error().code, Code::kFailedPrecondition);
}

// Of a journal that has a region of memory that was given out.
TEST_F(BrokerFabric, RegionOfWhatWasGivenOutIsNotTakenOverAndItsReadersInheritWhatIsStuck) {
  const Grant grant = machine.get(ann, slice, mebibytes(4));
  ASSERT_TRUE(publish(grant, Sharing::kPublic));
  const SessionId bob = machine.connect(2);
  ASSERT_TRUE(machine.broker.map_region(bob, {.owner = "ann", .name = "weights"}, machine.now));
  machine.collect();
  Checkpoint journal = machine.written;
  for (auto& [id, lease] : journal.leases) lease.fabric = true;
  const std::vector<LeaseId> leases = Machine::leases_of(grant);
  Broker next(fabric_policy());
  next.restore(journal, {"GPU-0"}, {leases.begin(), leases.end()}, machine.now);
  EXPECT_FALSE(next.map_region(bob, {.owner = "ann", .name = "weights"}, machine.now));
  next.exited(ann, machine.now);
  const auto views = next.sessions();
  ASSERT_EQ(views.size(), 1u);
  ASSERT_EQ(views[0].shared.size(), 1u);
  EXPECT_EQ(views[0].shared[0].fabric, mebibytes(4)) << "bob's process has it now";
  next.exited(bob, machine.now);
  for (const TenantView& tenant : next.tenants())
    EXPECT_EQ(tenant.charges[Charge::kQuarantined], tenant.name == "bob" ? mebibytes(4) : Bytes{});
}

TEST_F(BrokerFabric, MemoryStaysChargedUntilWhoeverMapsItLetsGo) {
  const Grant grant = machine.get(ann, slice, mebibytes(4));
  ASSERT_TRUE(give_out(grant));
  import_elsewhere(grant);
  machine.jobs_run_at_once = false;
  ASSERT_TRUE(machine.give_back(ann, slice, grant));
  EXPECT_EQ(machine.charges("ann")[Charge::kQuarantined], mebibytes(4)) << "nobody counts on its return";
  EXPECT_EQ(machine.charges("ann")[Charge::kReturning], Bytes{});
  machine.jobs_run_at_once = true;
  machine.collect();
  EXPECT_EQ(machine.charges("ann")[Charge::kQuarantined], mebibytes(4));
  EXPECT_TRUE(machine.broker.close_slice(ann, {slice}, machine.now));
  machine.die(ann);
  EXPECT_THAT(machine.forgotten, IsEmpty());
  EXPECT_EQ(machine.charged("ann"), mebibytes(4));
  let_go_elsewhere(grant);
  EXPECT_THAT(machine.forgotten, Contains(ann));
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerFabric, MemoryThatNobodyImportedIsFreeAtOnce) {
  const Grant grant = machine.get(ann, slice, mebibytes(4));
  ASSERT_TRUE(give_out(grant));
  ASSERT_TRUE(machine.give_back(ann, slice, grant));
  EXPECT_EQ(machine.charged("ann"), Bytes{});
  machine.die(ann);
  EXPECT_TRUE(machine.is_as_new());
}

// Ann has given out all of her 32 MiB; another session of hers has 16 MiB of bob's guarantee.
class BrokerFabricClaims : public BrokerFabric {
 protected:
  BrokerFabricClaims() : BrokerFabric(lending()) {
    given = machine.get(ann, slice, mebibytes(32));
    EXPECT_TRUE(give_out(given));
    import_elsewhere(given);
    borrower = machine.connect(1);
    burst = machine.slice(borrower);
    borrowed = machine.get(borrower, burst, mebibytes(16));
    bob = machine.connect(2);
  }
  RequestId claim() { return machine.grow(bob, machine.slice(bob), mebibytes(32), minutes(5)); }

  Grant given;
  SessionId borrower, bob;
  SliceId burst;
  Grant borrowed;
};

TEST_F(BrokerFabricClaims, OnlyWhatCanComeBackIsAskedFor) {
  const RequestId id = claim();
  EXPECT_EQ(machine.asked_of(borrower), mebibytes(16));
  EXPECT_EQ(machine.asked_of(ann), Bytes{}) << "though it has more";
  machine.pass_in_steps(seconds(2));
  EXPECT_THAT(machine.signals, ElementsAre(Pair(borrower, Signal::kTerminate)));
  machine.die(borrower);
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
}

TEST_F(BrokerFabricClaims, GivingBackWhatWasGivenOutGainsNoTime) {
  const RequestId id = claim();
  machine.pass_in_steps(seconds(1));
  machine.jobs_run_at_once = false;  // the driver has not answered yet
  ASSERT_TRUE(machine.give_back(ann, slice, given));
  EXPECT_EQ(machine.asked_of(borrower), mebibytes(16)) << "as before";
  machine.jobs_run_at_once = true;
  machine.collect();
  machine.pass_in_steps(seconds(1));
  EXPECT_THAT(machine.signals, ElementsAre(Pair(borrower, Signal::kTerminate)));
  machine.die(borrower);
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
}

TEST_F(BrokerFabricClaims, ASessionThatHasEndedIsNotEndedForIt) {
  machine.say_goodbye(ann);
  machine.pass_in_steps(seconds(1));
  EXPECT_EQ(machine.charges("ann")[Charge::kQuarantined], mebibytes(32));
  const RequestId id = claim();
  machine.pass_in_steps(seconds(2));
  EXPECT_THAT(machine.signals, ElementsAre(Pair(borrower, Signal::kTerminate)));
  machine.die(borrower);
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
  machine.pass_in_steps(seconds(60));
  EXPECT_THAT(machine.signals, Not(Contains(Pair(ann, Signal::kTerminate))));
}

TEST_F(BrokerFabricClaims, WhatIsAskedBackByForceIsNotGivenOut) {
  EXPECT_EQ(give_out(borrower, burst, borrowed).error().code, Code::kResourceExhausted);
  claim();
  EXPECT_EQ(give_out(borrower, burst, borrowed).error().code, Code::kUnavailable);
}

class BrokerFabricTermination : public BrokerFabric {
 protected:
  BrokerFabricTermination() : BrokerFabric(lending()) {}
};

TEST_F(BrokerFabricTermination, OfWhoGaveMemoryOutBringsBackOnlyTheRest) {
  const Grant given = machine.get(ann, slice, mebibytes(24));
  ASSERT_TRUE(give_out(given));
  import_elsewhere(given);
  machine.get(ann, slice, mebibytes(16));
  const SessionId second = machine.connect(1);
  machine.get(second, machine.slice(second), mebibytes(24));
  const SessionId bob = machine.connect(2);
  const RequestId id = machine.grow(bob, machine.slice(bob), mebibytes(32), minutes(5));
  machine.pass_in_steps(seconds(2));
  EXPECT_THAT(machine.signals, ElementsAre(Pair(second, Signal::kTerminate), Pair(ann, Signal::kTerminate)))
      << "the first, though it has more, does not suffice";
  machine.die(ann);
  machine.die(second);
  EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
  EXPECT_EQ(machine.charges("ann")[Charge::kQuarantined], mebibytes(24));
}

}  // namespace
}  // namespace gpumem::core
