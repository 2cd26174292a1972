#include "client/shim/memory/outside/graph_memory.h"

#include <algorithm>

#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuGraphGetNodes)> real_nodes("cuGraphGetNodes");
constinit RealCall<decltype(::cuGraphNodeGetType)> real_type("cuGraphNodeGetType");
constinit RealCall<decltype(::cuGraphChildGraphNodeGetGraph)> real_child("cuGraphChildGraphNodeGetGraph");
constinit RealCall<decltype(::cuGraphMemAllocNodeGetParams)> real_allocation("cuGraphMemAllocNodeGetParams");
constinit RealCall<decltype(::cuDeviceGetGraphMemAttribute)> real_graph_figure(
    "cuDeviceGetGraphMemAttribute");
constinit RealCall<decltype(::cuDeviceGraphMemTrim)> real_trim_graphs("cuDeviceGraphMemTrim");

/// Zero if the driver does not tell.
Bytes graph_figure(const DeviceMemory& memory, CUgraphMem_attribute attribute) {
  cuuint64_t value = 0;
  const CUresult told = real_graph_figure(memory.ordinal(), attribute, &value);
  return told == CUDA_SUCCESS ? Bytes{value} : Bytes{};
}

std::vector<CUgraphNode> nodes_of(CUgraph graph) {
  std::size_t count = 0;
  if (real_nodes(graph, nullptr, &count) != CUDA_SUCCESS) return {};
  std::vector<CUgraphNode> nodes(count);
  if (count == 0 || real_nodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return {};
  nodes.resize(std::min(count, nodes.size()));
  return nodes;
}

void add_allocation(CUgraphNode node, std::map<CUdevice, Bytes>& sums) {
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  if (real_allocation(node, &parameters) != CUDA_SUCCESS) return;
  if (parameters.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return;
  Bytes& sum = sums[parameters.poolProps.location.id];
  sum = sum.plus({parameters.bytesize}).value_or(Bytes{~std::uint64_t{0}});
}

void add_allocations(CUgraph graph, std::map<CUdevice, Bytes>& sums) {
  for (CUgraphNode const node : nodes_of(graph)) {
    CUgraphNodeType type{};
    if (real_type(node, &type) != CUDA_SUCCESS) continue;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) add_allocation(node, sums);
    CUgraph child = nullptr;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && real_child(node, &child) == CUDA_SUCCESS)
      add_allocations(child, sums);
  }
}

}  // namespace

std::map<CUdevice, Bytes> GraphMemory::allocated_by(CUgraph graph) {
  std::map<CUdevice, Bytes> sums;
  add_allocations(graph, sums);
  return sums;
}

std::shared_ptr<GraphMemory::Exec> GraphMemory::find(CUgraphExec exec) const {
  const MutexLock lock(mutex_);
  const auto found = execs_.find(exec);
  return found != execs_.end() ? found->second : nullptr;
}

std::shared_ptr<GraphMemory::Exec> GraphMemory::take(CUgraphExec exec) {
  const MutexLock lock(mutex_);
  auto found = execs_.extract(exec);
  count_.store(execs_.size(), std::memory_order_release);
  return found.empty() ? nullptr : std::move(found.mapped());
}

void GraphMemory::add(CUgraphExec exec, const std::shared_ptr<Exec>& known) {
  const MutexLock lock(mutex_);
  execs_.insert_or_assign(exec, known);
  count_.store(execs_.size(), std::memory_order_release);
}

MeasuredCharge& GraphMemory::charge_of(DeviceMemory& memory) {
  const MutexLock lock(mutex_);
  auto& charge = charges_[&memory];
  if (!charge) charge = std::make_unique<MeasuredCharge>(memory);
  return *charge;
}

MeasuredCharge* GraphMemory::known_charge_of(const DeviceMemory& memory) const {
  const MutexLock lock(mutex_);
  const auto found = charges_.find(&memory);
  return found != charges_.end() ? found->second.get() : nullptr;
}

CUresult GraphMemory::reserve(const char* call, std::vector<Need>& needs) {
  for (std::size_t i = 0; i < needs.size(); ++i) {
    Need& one = needs[i];
    const auto need = [&]() -> MeasuredCharge::Need {
      return {graph_figure(*one.memory, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT),
              one.bytes.rounded_up(one.memory->granularity()).value_or(one.bytes)};
    };
    const CUresult charged = charge_of(*one.memory).reserve(call, need, &one.reserved);
    if (charged == CUDA_SUCCESS) continue;
    needs.resize(i);
    settle_all(needs);
    return charged;
  }
  return CUDA_SUCCESS;
}

void GraphMemory::settle(DeviceMemory& memory, MeasuredCharge& charge, Bytes reserved) {
  charge.settle(reserved, [&] { return graph_figure(memory, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT); });
}

void GraphMemory::settle_all(const std::vector<Need>& needs) {
  for (const Need& need : needs) settle(*need.memory, charge_of(*need.memory), need.reserved);
}

void GraphMemory::settle(DeviceMemory& memory) {
  if (MeasuredCharge* const charge = known_charge_of(memory); charge != nullptr) settle(memory, *charge, {});
}

void GraphMemory::trimmed(DeviceMemory& memory) {
  epoch_.fetch_add(1);
  settle(memory);
}

void GraphMemory::trim(DeviceMemory& memory) {
  if (known_charge_of(memory) == nullptr) return;
  (void)real_trim_graphs(memory.ordinal());
  trimmed(memory);
}

}  // namespace gpumem::shim
