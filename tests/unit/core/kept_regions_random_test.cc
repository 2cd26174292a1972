#include <random>

#include "tests/unit/core/machine.h"

// Kept regions in random sequences: whatever happens to their processes and to the broker, the books are
// right, nobody's guarantee waits for them, and nothing stays behind.

namespace gpumem::core {
namespace {

using std::chrono::seconds;

// Ann is guaranteed what bob, who is guaranteed a quarter, may borrow.
Policy random_policy() {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64))};
  policy.devices[0].reclaim.lend_guarantees = true;
  policy.tenants = {user("ann", 1, {{mebibytes(32), mebibytes(64)}}),
                    user("bob", 2, {{mebibytes(16), mebibytes(64)}})};
  return policy;
}

class KeptRegionsAtRandom : public testing::TestWithParam<std::uint32_t> {
 protected:
  struct Writer {
    SessionId session;
    SliceId slice;
    std::vector<Grant> grants;
  };

  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); }
  std::string some_name() { return std::string(1, static_cast<char>('a' + below(4))); }

  void publish() {
    Writer writer{machine.connect(2), {}, {}};
    writer.slice = machine.slice(writer.session);
    const RequestId id = machine.grow(writer.session, writer.slice, mebibytes(2 * (1 + below(6))));
    if (machine.is_granted(id)) {
      const Grant grant = machine.answers.at(id).value();
      ASSERT_TRUE(machine.broker.accept(writer.session, grant.id));
      writer.grants.push_back(grant);
      RegionTerms terms;
      terms.name = some_name();
      terms.sharing = Sharing::kPublic;
      terms.keep = below(4) != 0;
      if (terms.keep && below(2) == 0) terms.linger = seconds(1 + below(20));
      if (below(4) == 0) terms.expires = machine.now + seconds(1 + below(20));
      ASSERT_TRUE(machine.broker.publish(writer.session, writer.slice, Machine::leases_of(grant), terms,
                                         machine.now));
    }
    leave(writer);
  }
  void leave(Writer& writer) {
    if (below(2) == 0) {
      for (const Grant& grant : writer.grants)
        ASSERT_TRUE(machine.give_back(writer.session, writer.slice, grant));
    }
    if (below(2) == 0) machine.say_goodbye(writer.session);
    machine.die(writer.session);  // what it had, it may keep until then
  }
  // One of bob's own maps it, or takes it over, and goes.
  void read() {
    const SessionId reader = machine.connect(2);
    const auto how = below(4) == 0 ? MapAs::kOwner : MapAs::kReader;
    const auto mapped =
        machine.broker.map_region(reader, "bob", some_name(), Regions::kNewest, machine.now, how);
    machine.collect();
    if (mapped && below(2) == 0) {
      ASSERT_TRUE(machine.broker.release_import(reader, mapped->imported.id, machine.now));
      machine.collect();
    }
    machine.die(reader);
  }
  void remove() {
    static_cast<void>(machine.broker.remove_region_of("bob", some_name(), Regions::kNewest, machine.now));
    machine.collect();
  }
  // No process holds anything: what is guaranteed is there at once, whatever was kept.
  void claim() {
    const SessionId ann = machine.connect(1);
    const RequestId id = machine.grow(ann, machine.slice(ann), mebibytes(32), seconds(60));
    EXPECT_TRUE(machine.is_granted(id)) << machine.why(id);
    machine.die(ann);
  }
  void check() {
    const DeviceView view = machine.broker.devices()[0];
    EXPECT_EQ(view.free + view.charges.total(), mebibytes(64));
    Bytes kept;
    for (const SessionView& session : machine.broker.sessions()) {
      EXPECT_TRUE(session.custodian) << "all others have gone";
      for (const SharedView& shared : session.shared) kept += shared.charged;
    }
    EXPECT_EQ(kept, view.charges.total());
    Bytes named;
    for (const RegionView& region : machine.broker.regions({"", true}, "", machine.now).regions) {
      EXPECT_TRUE(region.region.kept);
      EXPECT_NE(region.region.left, TimePoint::max());
      for (const auto& charged : region.charged) named += charged.bytes;
    }
    EXPECT_EQ(named, kept) << "each is one region's";
    if (!kept.is_zero()) ++times_kept;
  }

  int times_kept = 0;
  Machine machine{random_policy()};
  std::mt19937 random{GetParam()};
};

TEST_P(KeptRegionsAtRandom, LeaveTheBooksRightAndNothingBehind) {
  for (int step = 0; step < 200 && !HasFailure(); ++step) {
    switch (below(8)) {
      case 0:
      case 1:
      case 2: publish(); break;
      case 3:
      case 4: read(); break;
      case 5: remove(); break;
      case 6: claim(); break;
      default: machine.pass_in_steps(seconds(below(10)));
    }
    check();
  }
  EXPECT_GT(times_kept, 50);
  machine.restart(random_policy());
  check();
  EXPECT_EQ(machine.broker.devices()[0].charges.total(), Bytes{}) << "no descriptor is at hand";
}

INSTANTIATE_TEST_SUITE_P(Seeds, KeptRegionsAtRandom, testing::Range(1U, 21U));

}  // namespace
}  // namespace gpumem::core
