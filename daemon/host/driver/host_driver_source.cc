#include "daemon/host/driver/host_driver_source.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <iterator>
#include <utility>

#include "base/crash_point.h"
#include "daemon/host/driver/host_source.h"
#include "daemon/host/system/numa_nodes.h"
#include "daemon/host/system/process.h"

namespace gpumem::host {

std::vector<int> HostDriverSource::nodes_by_free_memory() const {
  std::vector<std::pair<Bytes, int>> nodes;
  for (const int node : nodes_) nodes.emplace_back(free_of_node(kNumaNodes, node), node);
  std::ranges::stable_sort(nodes, std::greater(), [](const auto& one) { return one.first; });
  std::vector<int> numbers;
  std::ranges::transform(nodes, std::back_inserter(numbers), [](const auto& one) { return one.second; });
  return numbers;
}

Result<HeldExtent> HostDriverSource::create(const core::Extent& extent) {
  if (fails_at(CrashPoint::kExtentCreate)) return errno_error(ENOMEM, "cuMemCreate");
  Result<cuda::Allocation> made = Error{Code::kResourceExhausted, "no NUMA node gives memory to the driver"};
  for (const int node : nodes_by_free_memory()) {
    made = cuda::Allocation::create_on_host(driver_, node, extent.size);
    if (made) break;
  }
  if (!made) return made.error();
  auto descriptor = made->export_descriptor();
  if (!descriptor) return descriptor.error();
  return HeldExtent{extent, std::move(*made), std::move(*descriptor)};
}

std::optional<cuda::DeviceMemory> HostDriverSource::memory() { return use_of_machine(); }

bool HostDriverSource::destroy(std::vector<HeldExtent> extents, const Proof& proof) {
  std::vector<ProcessHandle> holders;
  for (HeldExtent& extent : extents) {
    std::ranges::move(extent.holders, std::back_inserter(holders));
    extent.descriptor.reset();
  }
  extents.clear();
  if (!proof) return true;  // the extents were never lent
  auto earlier = unproved_.extract(proof->lease);
  if (!earlier.empty()) std::ranges::move(earlier.mapped(), std::back_inserter(holders));
  std::erase_if(holders, [](const ProcessHandle& one) { return has_ended(one->get()); });
  if (holders.empty()) return true;
  unproved_.emplace(proof->lease, std::move(holders));
  return false;
}

}  // namespace gpumem::host
