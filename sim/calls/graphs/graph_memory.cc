// Memory that nodes of graphs allocate and free, and the figures of it.
#include <cuda.h>

#include "calls.h"
#include "sim/calls/graphs/find_graph.h"
#include "sim/calls/graphs/node_actions.h"

namespace gpumem::sim {
namespace {

/// Finds the device's index in the machine for `act(memory, device)`.
template <class Act>
CUresult with_device(CUdevice ordinal, Act act) {
  Call driver;
  if (!driver) return driver.error();
  if (!driver->has_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  return act(driver->graph_memory, driver->device(ordinal));
}

}  // namespace

CUresult api::cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph named, const CUgraphNode* dependencies,
                                     size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* given) {
  return add_node(out, {named, dependencies, count}, [&](Call& driver, Graph& graph, Action* action) {
    return read_allocation(driver, graph, given, action);
  });
}
CUresult api::cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  return get_action<AllocateAction>(
      node, out, [](const AllocateAction& action) { return write_allocation(*action.allocation); });
}

CUresult api::cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph named, const CUgraphNode* dependencies,
                                    size_t count, CUdeviceptr address) {
  return add_node(out, {named, dependencies, count}, [&](Call& driver, Graph& graph, Action* action) {
    return read_free(driver, graph, address, action);
  });
}
CUresult api::cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* out) {
  return get_action<FreeAction>(node, out,
                                [](const FreeAction& action) { return action.allocation->address; });
}

CUresult api::cuDeviceGraphMemTrim(CUdevice ordinal) {
  return with_device(ordinal, [](GraphMemory& memory, std::uint32_t device) {
    memory.trim(device);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void* value) {
  return with_device(ordinal, [&](const GraphMemory& memory, std::uint32_t device) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const GraphMemory::Figures figures = memory.figures(device);
    auto& out = *static_cast<cuuint64_t*>(value);
    switch (attribute) {
      case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT: out = figures.used; break;
      case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: out = figures.used_high; break;
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: out = figures.reserved; break;
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: out = figures.reserved_high; break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

CUresult api::cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void* value) {
  return with_device(ordinal, [&](GraphMemory& memory, std::uint32_t device) {
    if (value == nullptr || *static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
      case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: memory.reset_used_high(device); break;
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: memory.reset_reserved_high(device); break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace gpumem::sim
