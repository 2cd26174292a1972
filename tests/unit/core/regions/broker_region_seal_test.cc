#include <optional>

#include "tests/unit/core/machine.h"

// Sealed regions: nobody writes to them.

namespace gpumem::core {
namespace {

Policy seal_policy() {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64))};
  policy.tenants = {user("ann", 1, {{{}, mebibytes(64)}}), user("bob", 2, {{{}, mebibytes(64)}})};
  return policy;
}

class BrokerRegionSeal : public testing::Test {
 protected:
  BrokerRegionSeal() {
    publisher = machine.connect(2);
    mate = machine.connect(2);
    ann = machine.connect(1);
    slice = machine.slice(publisher);
    grant = machine.get(publisher, slice, mebibytes(2));
  }
  Result<RegionId> publish(const std::string& name, bool sealed) {
    Publish terms;
    terms.name = name;
    terms.sharing = Sharing::kPublic;
    terms.sealed = sealed;
    auto version =
        machine.broker.publish(publisher, of_leases(terms, slice, Machine::leases_of(grant)), machine.now);
    machine.collect();
    return version;
  }
  /// Why it cannot; nothing if it can.
  std::optional<Code> map(SessionId session, const std::string& name, MapAs how) {
    const auto mapped =
        machine.broker.map_region(session, {.owner = "bob", .name = name, .how = how}, machine.now);
    if (!mapped) return mapped.error().code;
    EXPECT_TRUE(machine.broker.release_import(session, {mapped->imported.id}, machine.now));
    machine.collect();
    return std::nullopt;
  }
  Result<HandleExported> export_handle(char mark) {
    HandleBytes bytes{};
    bytes.fill(mark);
    return machine.broker.export_handle(publisher, {slice, Machine::leases_of(grant)}, bytes, machine.now);
  }
  Result<Imported> import_handle(char mark) {
    HandleBytes bytes{};
    bytes.fill(mark);
    return machine.broker.import_handle(mate, {bytes}, machine.now);
  }

  Machine machine{seal_policy()};
  SessionId publisher, mate, ann;
  SliceId slice;
  Grant grant;
};

TEST_F(BrokerRegionSeal, NobodyMapsToWrite) {
  ASSERT_TRUE(publish("weights", true));
  EXPECT_EQ(map(mate, "weights", MapAs::kReader), std::nullopt);
  EXPECT_EQ(map(mate, "weights", MapAs::kWriter), Code::kFailedPrecondition);
  EXPECT_EQ(map(publisher, "weights", MapAs::kWriter), Code::kFailedPrecondition);
  EXPECT_EQ(map(ann, "weights", MapAs::kReader), std::nullopt);
}

TEST_F(BrokerRegionSeal, ItsOwnTenantAloneWritesToOneWithout) {
  ASSERT_TRUE(publish("cache", false));
  EXPECT_EQ(map(mate, "cache", MapAs::kWriter), std::nullopt);
  EXPECT_EQ(map(ann, "cache", MapAs::kReader), std::nullopt);
  EXPECT_EQ(map(ann, "cache", MapAs::kWriter), Code::kPermissionDenied);
  EXPECT_EQ(map(ann, "none", MapAs::kWriter), Code::kPermissionDenied) << "whether or not there is one";
}

TEST_F(BrokerRegionSeal, AllRegionsOfOneMemoryAreSealedOrNone) {
  ASSERT_TRUE(publish("cache", false));
  EXPECT_EQ(publish("weights", true).error().code, Code::kFailedPrecondition);
  ASSERT_TRUE(machine.broker.remove_region(publisher, {"cache"}, machine.now));
  ASSERT_TRUE(publish("weights", true));
  EXPECT_TRUE(publish("again", true));
  EXPECT_EQ(publish("cache", false).error().code, Code::kFailedPrecondition);
}

TEST_F(BrokerRegionSeal, NobodyImportsItsMemoryByHandles) {
  ASSERT_TRUE(export_handle('a'));
  ASSERT_TRUE(publish("weights", true));
  EXPECT_EQ(import_handle('a').error().code, Code::kNotFound);
  EXPECT_EQ(export_handle('b').error().code, Code::kFailedPrecondition);
}

TEST_F(BrokerRegionSeal, MemoryThatOthersCanWriteToIsNotSealed) {
  ASSERT_TRUE(export_handle('a'));
  const auto imported = import_handle('a');
  ASSERT_TRUE(imported);
  EXPECT_EQ(publish("weights", true).error().code, Code::kFailedPrecondition);
  ASSERT_TRUE(machine.broker.release_import(mate, {imported->id}, machine.now));
  machine.collect();
  EXPECT_EQ(publish("weights", true).error().code, Code::kFailedPrecondition) << "it may only say so";
  machine.die(mate);
  EXPECT_TRUE(publish("weights", true));
}

TEST_F(BrokerRegionSeal, HoldsAfterARestart) {
  ASSERT_TRUE(publish("weights", true));
  machine.restart(seal_policy(), {grant});
  ASSERT_TRUE(machine.resume(publisher, {slice}, {grant}));
  EXPECT_EQ(map(machine.connect(2), "weights", MapAs::kWriter), Code::kFailedPrecondition);
  EXPECT_EQ(map(machine.connect(2), "weights", MapAs::kReader), std::nullopt);
}

}  // namespace
}  // namespace gpumem::core
