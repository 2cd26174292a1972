#include "client/session/host_pages.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.h"

namespace gpumem::client {
namespace {

/// A folder of cgroups: /jobs has room for 3 GiB, /jobs/one for 1 GiB besides its page cache.
class CgroupRoom : public testing::Test {
 protected:
  CgroupRoom() {
    add("jobs", "4294967296", "1073741824", "");
    add("jobs/one", "2147483648", "1610612736",
        "anon 1073741824\ninactive_file 402653184\nactive_file 134217728\n");
    add("jobs/two", "max", "1073741824", "");
  }
  void add(const std::string& name, const std::string& most, const std::string& used,
           const std::string& stat) {
    std::filesystem::create_directories(folder_.path() / name);
    std::ofstream(folder_.path() / name / "memory.max") << most << "\n";
    std::ofstream(folder_.path() / name / "memory.current") << used << "\n";
    std::ofstream(folder_.path() / name / "memory.stat") << stat;
  }
  std::optional<Bytes> room(const std::string& own) { return cgroup_room(folder_.path(), own); }

  test::TemporaryFolder folder_;
};

TEST_F(CgroupRoom, IsTheLeastOnTheWayUpAndPageCacheCanBeDropped) {
  EXPECT_EQ(room("0::/jobs/one\n"), gibibytes(1));
  EXPECT_EQ(room("0::/jobs/two\n"), gibibytes(3));
}

TEST_F(CgroupRoom, IsNotKnownWithoutALimit) {
  EXPECT_EQ(room("0::/\n"), std::nullopt);
  EXPECT_EQ(room("0::/others/gone\n"), std::nullopt);
  EXPECT_EQ(room("4:memory:/jobs/one\n"), std::nullopt) << "the hierarchy of version 1";
}

}  // namespace
}  // namespace gpumem::client
