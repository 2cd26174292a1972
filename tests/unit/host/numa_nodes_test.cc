#include "daemon/host/system/numa_nodes.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.h"

namespace gpumem::host {
namespace {

TEST(NumaNodes, AreThoseThatHaveMemory) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(nodes_with_memory(folder.path()), std::vector{0}) << "a machine without NUMA";
  const auto nodes_of = [&](const char* text) {
    std::ofstream(folder / "has_memory") << text;
    return nodes_with_memory(folder.path());
  };
  EXPECT_EQ(nodes_of("0\n"), (std::vector{0}));
  EXPECT_EQ(nodes_of("1\n"), (std::vector{1})) << "node 0 has no memory";
  EXPECT_EQ(nodes_of("0-2,8\n"), (std::vector{0, 1, 2, 8}));
}

TEST(NumaNodes, TellTheirFreeMemory) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "node1");
  std::ofstream(folder / "node1" / "meminfo") << "Node 1 MemTotal:  64 kB\nNode 1 MemFree:  12 kB\n";
  EXPECT_EQ(free_of_node(folder.path(), 1), Bytes{12 << 10});
  EXPECT_EQ(free_of_node(folder.path(), 0), Bytes{});
}

}  // namespace
}  // namespace gpumem::host
