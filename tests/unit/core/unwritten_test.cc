#include <gtest/gtest.h>

#include "daemon/core/broker/written_requests.h"
#include "tests/support/no_executor.h"
#include "tests/unit/core/machine.h"

// What cannot be written down is not handed out: the next broker would not know of it.

namespace gpumem::core {
namespace {

struct FullDisk final : test::NoExecutor {
  Result<void> write_down() override { return Error{Code::kUnavailable, "no room"}; }
};

struct Unwritten : testing::Test {
  Unwritten() : machine(policy()) {
    publisher = machine.connect(1);
    mate = machine.connect(1);
    slice = machine.slice(publisher);
    grant = machine.get(publisher, slice, mebibytes(8));
  }
  static Policy policy() {
    Policy one;
    one.devices = {device("GPU-0", mebibytes(64))};
    one.tenants = {user("ann", 1, {{mebibytes(32), mebibytes(64)}})};
    return one;
  }
  Publish weights() const {
    Publish call;
    call.name = "weights";
    call.slice = slice;
    call.leases = Machine::leases_of(grant);
    return call;
  }
  static MapRegion adoption() {
    MapRegion call;
    call.name = "weights";
    call.how = MapAs::kOwner;
    return call;
  }
  void publish_kept() {
    Publish call = weights();
    call.keep = true;
    call.linger = std::chrono::hours(1);
    ASSERT_TRUE(core::publish(disk, machine.broker, publisher, call, machine.now));
  }
  std::vector<RegionView> regions() { return machine.broker.regions({"", true}, "", machine.now).regions; }

  Machine machine;
  test::NoExecutor disk;
  FullDisk full;
  SessionId publisher, mate;
  SliceId slice;
  Grant grant;
};

template <class T>
Code code_of(const Result<T>& result) {
  return result ? Code{} : result.error().code;
}

TEST_F(Unwritten, ASliceIsNotOpen) {
  const std::size_t before = machine.broker.most_in_inventory(mate);
  EXPECT_EQ(code_of(core::open_slice(full, machine.broker, mate, {"GPU-0", {}, ""}, machine.now)),
            Code::kUnavailable);
  EXPECT_EQ(machine.broker.most_in_inventory(mate), before);
}

TEST_F(Unwritten, AHandleIsNotRedeemed) {
  ExportHandle range;
  range.slice = slice;
  range.leases = Machine::leases_of(grant);
  range.uses = 2;
  const auto exported = machine.broker.export_handle(publisher, range, new_handle(), machine.now);
  ASSERT_TRUE(exported) << exported.error().message;
  const ImportHandle call{exported->handle};
  EXPECT_EQ(code_of(core::import_handle(full, machine.broker, mate, call, machine.now)), Code::kUnavailable);
  EXPECT_EQ(machine.broker.most_in_inventory(mate), 0U);
  EXPECT_TRUE(core::import_handle(disk, machine.broker, mate, call, machine.now));
}

TEST_F(Unwritten, ARegionIsNotPublished) {
  EXPECT_EQ(code_of(core::publish(full, machine.broker, publisher, weights(), machine.now)),
            Code::kUnavailable);
  EXPECT_TRUE(regions().empty());
}

TEST_F(Unwritten, ARegionIsNotMapped) {
  ASSERT_TRUE(core::publish(disk, machine.broker, publisher, weights(), machine.now));
  MapRegion call;
  call.name = "weights";
  EXPECT_EQ(code_of(core::map_region(full, machine.broker, mate, call, machine.now)), Code::kUnavailable);
  EXPECT_EQ(machine.broker.most_in_inventory(mate), 0U);
}

TEST_F(Unwritten, AKeptRegionIsNotTakenOver) {
  publish_kept();
  machine.die(publisher);
  EXPECT_EQ(code_of(core::map_region(full, machine.broker, mate, adoption(), machine.now)),
            Code::kUnavailable);
  machine.die(mate);
  ASSERT_EQ(regions().size(), 1U) << "it is kept as before";
  EXPECT_EQ(regions()[0].region.linger, std::chrono::hours(1));
}

TEST_F(Unwritten, WhoHasNothingToLoseIsToldWhileNothingIsLent) {
  machine.broker.stop_lending("no room");
  EXPECT_EQ(code_of(core::publish(disk, machine.broker, publisher, weights(), machine.now)),
            Code::kUnavailable);
}

}  // namespace
}  // namespace gpumem::core
