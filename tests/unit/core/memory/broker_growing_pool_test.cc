// A broker whose pool is not whole, because others use the device: what it lends, what it says, how it grows.
#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

namespace gpumem::core {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

// 64 of 240 MiB are lent. 12 stay free when the pool grows, a twentieth, less what contexts leave of the
// rest.
Policy policy() {
  Policy policy = small_policy();
  policy.devices[0].total = mebibytes(240);
  policy.past_broker.allowance = mebibytes(240);
  return policy;
}

struct GrowingPool : testing::Test {
  GrowingPool() : machine(policy(), Machine::Start::kEmpty) {}
  void start(Bytes others) {
    machine.driver.steal(0, others);
    machine.broker.tick(machine.now);
    machine.run_jobs();
    ASSERT_TRUE(machine.broker.settled());
  }
  Bytes missing() const { return machine.broker.devices()[0].missing; }

  Machine machine;
};

TEST_F(GrowingPool, ServesAGuaranteeOnceOthersFreeTheDevice) {
  start(mebibytes(220));
  EXPECT_EQ(missing(), mebibytes(56));
  EXPECT_EQ(machine.driver.room(0), mebibytes(12));
  const SessionId ann = machine.connect(1);
  const SliceId slice = machine.slice(ann);
  const RequestId refused = machine.grow(ann, slice, mebibytes(16));
  EXPECT_THAT(machine.why(refused), HasSubstr("56MiB are missing at present"));
  const RequestId waiting = machine.grow(ann, slice, mebibytes(16), seconds(60));
  const auto explained = machine.broker.explain_tenant("ann", true, machine.now);
  EXPECT_THAT(explained->waiting.at(0).soonest.why, HasSubstr("when processes past the broker free 8MiB"));
  machine.driver.restore(0);
  machine.pass_in_steps(Store::kLongestPause);
  EXPECT_TRUE(machine.is_granted(waiting)) << machine.why(waiting);
  EXPECT_EQ(missing(), Bytes{});
}

TEST_F(GrowingPool, TakesTheRoomOfContextsThatAreThere) {
  start(mebibytes(172));
  EXPECT_EQ(missing(), mebibytes(8)) << "room for contexts";
  machine.connect(1);
  machine.broker.begin_observation(0);
  Observation seen;
  seen.used = mebibytes(228);
  seen.broker = mebibytes(56);
  seen.processes.emplace_back().pid = peer_of(1).pid;
  seen.processes.back().used = mebibytes(172);
  machine.broker.observe(seen, machine.now);
  machine.pass_in_steps(Store::kLongestPause);
  EXPECT_EQ(missing(), Bytes{}) << "they are contexts of clients";
}

TEST_F(GrowingPool, IsTakenOverWithItsLoansWhileOthersUseTheDevice) {
  start({});
  const SessionId bob = machine.connect(2);
  const SliceId slice = machine.slice(bob);
  const Grant grant = machine.get(bob, slice, mebibytes(40));
  machine.driver.steal(0, mebibytes(176));
  machine.restart(policy());
  EXPECT_EQ(missing(), mebibytes(12)) << "of the 24 that the first broker had warm";
  EXPECT_EQ(machine.charged("bob"), mebibytes(40));
  ASSERT_TRUE(machine.resume(bob, {slice}, {grant}));
  machine.driver.restore(0);
  machine.pass_in_steps(Store::kLongestPause);
  machine.say_goodbye(bob);
  EXPECT_TRUE(machine.is_as_new());
}

}  // namespace
}  // namespace gpumem::core
