#include <gtest/gtest.h>

#include "tests/unit/core/machine.h"

// One name on several devices: which of its regions is mapped, waited for and told of.

namespace gpumem::core {
namespace {

using std::chrono::seconds;

Policy replica_policy() {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64)), device("GPU-1", mebibytes(64))};
  policy.tenants = {user("ann", 1, {{{}, mebibytes(64)}, {{}, mebibytes(64)}}),
                    user("bob", 2, {{{}, mebibytes(64)}, {{}, mebibytes(64)}})};
  return policy;
}

class BrokerRegionReplica : public testing::Test {
 protected:
  RegionId publish(const std::string& device, Sharing sharing = Sharing::kPublic) {
    const SliceId slice = machine.slice(publisher, {}, device);
    const Grant grant = machine.get(publisher, slice, mebibytes(2));
    Publish terms;
    terms.name = "weights";
    terms.sharing = sharing;
    const auto published =
        machine.broker.publish(publisher, of_leases(terms, slice, Machine::leases_of(grant)), machine.now);
    machine.collect();
    EXPECT_TRUE(published) << published.error().message;
    return published ? *published : RegionId{};
  }
  Result<MappedRegion> map(const std::string& device, std::uint64_t version = Regions::kNewest) {
    return machine.broker.map_region(
        reader, {.owner = "bob", .name = "weights", .version = version, .device = device}, machine.now);
  }
  RequestId await(const std::string& device) {
    const RequestId id{++last_};
    machine.broker.map_or_wait(
        id, ann, {.owner = "bob", .name = "weights", .device = device, .wait = seconds(9)}, machine.now);
    machine.collect();
    return id;
  }

  Machine machine{replica_policy()};
  SessionId publisher = machine.connect(2), ann = machine.connect(1), reader = ann;

 private:
  std::uint64_t last_ = 1000;
};

TEST_F(BrokerRegionReplica, IsTheNewestOfItsDevice) {
  const RegionId older = publish("GPU-0"), newer = publish("GPU-0"), other = publish("GPU-1");
  for (const SessionId one : {ann, machine.connect(2)}) {
    reader = one;  // of another tenant, or of the publisher's own
    EXPECT_EQ(map("GPU-0")->version, newer);
    EXPECT_EQ(map("GPU-1")->version, other);
    EXPECT_EQ(map("")->version, other) << "the newest of all";
    EXPECT_EQ(map("GPU-0", older.value)->version, older);
    EXPECT_FALSE(map("GPU-1", older.value)) << "that is of another device";
  }
  ASSERT_TRUE(machine.broker.remove_region(publisher, {"weights", newer.value}, machine.now));
  EXPECT_EQ(map("GPU-0")->version, older);
}

TEST_F(BrokerRegionReplica, OfADeviceThatHasNoneOrThatThereIsNotIsNotFound) {
  publish("GPU-0");
  EXPECT_EQ(map("GPU-1").error().code, Code::kNotFound);
  EXPECT_NE(map("GPU-1").error().message.find("GPU-1"), std::string::npos);
  EXPECT_EQ(map("GPU-9").error().code, Code::kNotFound);
}

TEST_F(BrokerRegionReplica, IsWaitedForOnItsDevice) {
  const RequestId first = await("GPU-1");
  publish("GPU-0");
  EXPECT_FALSE(machine.maps.contains(first));
  const RegionId other = publish("GPU-1");
  ASSERT_TRUE(machine.maps.contains(first));
  EXPECT_EQ(machine.maps.at(first)->version, other);
}

TEST_F(BrokerRegionReplica, IsSharedAsItSays) {
  const RequestId waits = await("GPU-1");
  publish("GPU-1", Sharing::kPrivate);
  EXPECT_FALSE(machine.maps.contains(waits));
  publish("GPU-0");
  EXPECT_FALSE(machine.maps.contains(waits));
  EXPECT_FALSE(map("GPU-1"));
  publish("GPU-1");
  EXPECT_TRUE(machine.maps.contains(waits));
}

}  // namespace
}  // namespace gpumem::core
