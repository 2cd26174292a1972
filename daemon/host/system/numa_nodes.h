#pragma once
#include <filesystem>
#include <vector>

#include "gpumem/bytes.h"

namespace gpumem::host {

/// Where the kernel shows the machine's NUMA nodes.
inline constexpr const char* kNumaNodes = "/sys/devices/system/node";

/// The nodes that have memory, in the order of their numbers. A machine without NUMA has node 0 alone.
/// `folder`  kNumaNodes; tests have their own.
std::vector<int> nodes_with_memory(const std::filesystem::path& folder);
/// Free memory of the node now, without page cache. Zero: it is not known.
Bytes free_of_node(const std::filesystem::path& folder, int node);

}  // namespace gpumem::host
