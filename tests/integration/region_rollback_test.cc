// Regions over a broker of an older version that took over and handed back: what it does not know is gone,
// and nothing else.
#include "tests/integration/region_fixture.h"

namespace gpumem::test {
namespace {

/// The broker's program is a copy, which can be replaced.
struct ReplaceableProgram {
  ReplaceableProgram() {
    std::filesystem::copy_file(gpumemd_program(), program_);
    for (const char* library : {"libcuda.so.1", "libnvidia-ml.so.1"})  // it looks for them beside itself
      std::filesystem::copy_file(sim_libraries() / library, folder_ / library);
  }
  TemporaryFolder folder_;
  std::filesystem::path program_ = folder_ / "gpumemd";
};

struct RegionRollback : ReplaceableProgram, RegionTest {
  RegionRollback() : RegionTest({.config = kSomeSpare, .program = program_}) {}

  /// Returns how many bytes of the journal the older broker has lost.
  int roll_back() {
    const auto newer = folder_ / "gpumemd.newer";
    std::filesystem::rename(program_, newer);
    std::filesystem::copy_file(GPUMEM_TEST_OLDER_BROKER, program_);
    std::filesystem::permissions(program_, std::filesystem::perms::owner_all);
    EXPECT_EQ(::kill(broker_.pid(), SIGUSR2), 0);
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(folder_ / "handed-back"); }));
    return std::stoi(read_file(folder_ / "handed-back"));
  }
};

TEST_F(RegionRollback, KeptRegionIsKept) {
  auto writer = publisher(mebibytes(2), 7, {}, {{"keep", true}});
  EXPECT_EQ(writer->leave(), 0);
  EXPECT_GT(roll_back(), 0);
  auto next = client();
  ASSERT_TRUE(succeeded(map(*next)));
  EXPECT_TRUE(succeeded(check(*next, 7)));
  EXPECT_TRUE(succeeded(remove(*next)));
  EXPECT_EQ(next->leave(), 0);
  expect_rest();
}

}  // namespace
}  // namespace gpumem::test
