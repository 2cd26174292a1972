// The used bytes of a device by holder.
#include "daemon/core/sessions/accounting.h"

#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

namespace gpumem::core {
namespace {

constexpr Bytes kPool = mebibytes(64);

class AccountingTest : public testing::Test {
 protected:
  static Policy policy() {
    Policy policy = small_policy();
    policy.devices[0].total = gibibytes(1);
    policy.past_broker.allowance = mebibytes(6);
    return policy;
  }
  /// A look at a driver that uses the pool, and `more` besides.
  static Observation seen(Bytes more, std::vector<Observation::Process> processes, bool tells = true) {
    Observation one;
    one.used = kPool + more;
    one.total = gibibytes(1);
    one.free = one.total - one.used;
    one.broker = tells ? kPool : Bytes{};
    one.processes = std::move(processes);
    return one;
  }
  const Accounting& look(const Observation& observation) {
    machine.broker.begin_observation(0);
    machine.broker.observe(observation, machine.now);
    machine.collect();
    return machine.broker.reconciliation(0).accounting;
  }
  static Observation::Process process(std::int64_t pid, std::uint32_t uid, Bytes used) {
    Observation::Process one;
    one.pid = pid;
    one.started = 1000;
    one.uid = uid;
    one.command = "train";
    one.used = used;
    return one;
  }

  Machine machine{policy()};
};

TEST_F(AccountingTest, DividesTheMemoryOfAClientIntoContextDeclarationAndTheRest) {
  const auto session = machine.connect(2);
  machine.slice(session);
  ASSERT_TRUE(machine.broker.charge(session, {"GPU-0", mebibytes(20)}, machine.now));
  const Accounting& account =
      look(seen(mebibytes(30), {process(peer_of(2).pid, 2, mebibytes(28)), process(77, 1, mebibytes(2))}));
  EXPECT_EQ(account.contexts, mebibytes(6));
  EXPECT_EQ(account.declared, mebibytes(20));
  EXPECT_EQ(account.past_broker, mebibytes(4));
  EXPECT_EQ(account.unexplained(), 0);
  EXPECT_EQ(account.total, gibibytes(1));
  ASSERT_EQ(account.processes.size(), 2U);
  EXPECT_TRUE(account.processes[0].is_client);
  EXPECT_EQ(account.processes[0].tenant, "bob");
  EXPECT_EQ(account.processes[1].past_broker, mebibytes(2));
}

TEST_F(AccountingTest, CountsOnlyThePartOfADeclarationThatIsInUse) {
  const auto session = machine.connect(2);
  machine.slice(session);
  ASSERT_TRUE(machine.broker.charge(session, {"GPU-0", mebibytes(20)}, machine.now));
  const Accounting& account = look(seen(mebibytes(8), {process(peer_of(2).pid, 2, mebibytes(8))}));
  EXPECT_EQ(account.declared, mebibytes(8));
  EXPECT_EQ(account.contexts, Bytes{});
  EXPECT_EQ(account.unexplained(), 0);
}

TEST_F(AccountingTest, ContextsOfWhichADriverDoesNotTellAreUnexplained) {
  const auto session = machine.connect(2);
  machine.get(session, machine.slice(session), mebibytes(8));
  const Accounting& account = look(seen(mebibytes(5), {process(peer_of(2).pid, 2, {})}, false));
  EXPECT_FALSE(account.tells_processes);
  EXPECT_EQ(account.contexts, Bytes{});
  EXPECT_EQ(account.unexplained(), static_cast<std::int64_t>(mebibytes(5).count));
}

TEST_F(AccountingTest, ADeviceThatNobodyUsesHasNoProcessesToTellOf) {
  EXPECT_TRUE(look(seen({}, {}, false)).tells_processes);
}

TEST_F(AccountingTest, IsNegativeWhereTheDriverHasMemoryBackThatIsStillCharged) {
  Observation early = seen({}, {});
  early.used -= mebibytes(2);
  EXPECT_EQ(look(early).unexplained(), -static_cast<std::int64_t>(mebibytes(2).count));
}

TEST_F(AccountingTest, ANewLookForgetsTheProcessesOfTheOneBefore) {
  look(seen(mebibytes(2), {process(77, 1, mebibytes(2))}));
  const Accounting& account = look(seen({}, {}));
  EXPECT_TRUE(account.processes.empty());
  EXPECT_EQ(account.past_broker, Bytes{});
}

TEST_F(AccountingTest, MemoryMovesWhileAJobIsUnderWay) {
  EXPECT_EQ(look(seen({}, {})).moving, Bytes{});
  const auto session = machine.connect(1);
  const auto slice = machine.slice(session);
  machine.jobs_run_at_once = false;
  machine.use_up_stock(session, slice);
  machine.grow(session, slice, Machine::kGrowthWithJob);
  EXPECT_GE(look(seen({}, {})).moving, Machine::kGrowthWithJob);
  machine.run_jobs();
  EXPECT_EQ(look(seen({}, {})).moving, Bytes{});
}

}  // namespace
}  // namespace gpumem::core
