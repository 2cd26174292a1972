// Frameworks at their start. Each believes that the GPU is its own.
#include "tests/shim_programs/stage.h"

namespace gpumem::shim_programs {
namespace {

using StartUp = BothWays;
INSTANTIATE_TEST_SUITE_P(Programs, StartUp, testing::Values(Way::kPath, Way::kPreload), name_of_way);

TEST_P(StartUp, TensorFlowTakesOneRegionOfAllThatItIsShown) {
  runs("tensorflow");
  runs("tensorflow", {{"GPUMEM_LIMIT", "6GiB"}});
  runs("tensorflow", {{"GPUMEM_LIMIT", "1GiB"}});
}
TEST_P(StartUp, TensorFlowGrowsByDoublingUpToItsLimit) {
  runs("tensorflow_growth");
  runs("tensorflow_growth", {{"GPUMEM_LIMIT", "6GiB"}});
}
TEST_P(StartUp, JaxTakesThreeQuartersOfTheTotalAndCollectivesTheRest) {
  runs("jax");
  runs("jax", {{"GPUMEM_LIMIT", "6GiB"}});
}
TEST_P(StartUp, JaxGrowsToItsFraction) { runs("jax_growth"); }
TEST_P(StartUp, JaxWithoutAnAllocatorOfItsOwnGetsAllBack) { runs("jax_platform"); }

/// Where a refusal is part of the replay, a line on standard error explains it.
class StartUpWithRefusals : public BothWays {
 protected:
  void runs(const std::string& task, const Environment& more = {}) {
    const std::string said = expect({task}, more, GetParam());
    EXPECT_NE(said.find("gpumem: "), std::string::npos) << said;
    EXPECT_NE(said.find("is refused: "), std::string::npos) << said;
    EXPECT_TRUE(comes_to_rest());
  }
};
INSTANTIATE_TEST_SUITE_P(Programs, StartUpWithRefusals, testing::Values(Way::kPath, Way::kPreload),
                         name_of_way);

TEST_P(StartUpWithRefusals, TensorFlowsPoolHasTheSizeOfTheSliceAndNoCallOfItFails) {
  runs("tensorflow_async");
}
TEST_P(StartUpWithRefusals, PyTorchFillsTheSliceEmptiesItsCacheAndGetsTheWholeAgain) {
  runs("pytorch");
  runs("pytorch", {{"GPUMEM_LIMIT", "3GiB"}});
}
TEST_P(StartUpWithRefusals, PyTorchsExpandableSegmentsFillTheSlice) {
  runs("pytorch_expandable", {{"GPUMEM_LIMIT", "3GiB"}});
}
TEST_P(StartUpWithRefusals, PyTorchsPoolGivesAllBackWhenItsCacheIsEmptied) { runs("pytorch_async"); }

TEST_P(StartUpWithRefusals, TensorFlowGetsTheRemainderAfterOneWait) {
  auto neighbour = program({"hold", std::to_string(kPool / kMiB - 100)});
  neighbour.await();
  // Fifty waits would exceed the test's patience.
  auto asker = program({"tensorflow_backpedals"}, {{"GPUMEM_WAIT", "1s"}}, GetParam());
  EXPECT_TRUE(asker.succeeds()) << asker.output();
  neighbour.tell_and_expect_success();
}

TEST_P(StartUp, VllmSeesItsSliceAndNotItsNeighboursAndWakesUpAtItsAddresses) {
  auto neighbour = program({"hold", std::to_string(8 * 1024)});
  neighbour.await();
  auto engine = program({"vllm"}, {{"GPUMEM_WAIT", "10m"}}, GetParam());
  engine.await();
  EXPECT_GE(charged(), 14 * kGiB);
  neighbour.tell_and_expect_success();
  engine.tell_and_await();
  EXPECT_GE(charged(), 20 * kGiB);
  engine.tell_and_await();
  // While it sleeps, its memory is there for others; it wakes up when they give way.
  auto other = program({"hold", std::to_string(20 * 1024)}, {}, GetParam());
  other.await();
  engine.tell();
  EXPECT_TRUE(gpumem::test::eventually([&] { return broker_.device().waiting() == 1; }));
  other.tell();
  EXPECT_TRUE(engine.succeeds()) << engine.output();
  EXPECT_TRUE(other.succeeds()) << other.output();
  EXPECT_TRUE(comes_to_rest());
}

}  // namespace
}  // namespace gpumem::shim_programs
