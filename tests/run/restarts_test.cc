// Programs that start themselves anew by exec, as servers and reloaders do: to the kernel, one process.
#include "tests/run/fixture.h"

namespace gpumem::test {
namespace {

struct Restarts : RunTest {
  Restarts() : RunTest({.simulate = "1x9GiB", .config = "[broker]\nreserve = \"all-but 1GiB\"\n"}) {}

  std::uint64_t charged() const {
    const v1::DeviceStatus device = broker_.device();
    return device.offered() + device.active() + device.returning() + device.quarantined();
  }
};

TEST_F(Restarts, ProgramFindsItsMemoryEachTimeAndLeavesNoneCharged) {
  constexpr Bytes kMemory = mebibytes(6656);  // of 8 GiB: not twice
  RunningCli running({"run", "--wait", "10s", "--", GPUMEM_TEST_CUDA_PROGRAM, "restarts", "12",
                      std::to_string(kMemory.count)},
                     with({{"GPUMEM_SHIM_FOLDER", ""}}));
  EXPECT_TRUE(running.has_said("allocated: 0\n", 13));
  EXPECT_TRUE(running.has_said("ready "));
  EXPECT_TRUE(eventually([&] { return charged() == 0; })) << broker_.unrest();
  running.tell("quit\n");
  EXPECT_EQ(running.wait(), 0) << running.said();
  EXPECT_TRUE(eventually([&] { return broker_.at_rest(); })) << broker_.unrest();
}

}  // namespace
}  // namespace gpumem::test
