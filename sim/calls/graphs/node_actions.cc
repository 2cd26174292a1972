#include "sim/calls/graphs/node_actions.h"

#include <utility>

#include "sim/driver/memory/locations.h"
#include "sim/driver/memory/transfer.h"

namespace gpumem::sim {
namespace {

CUresult find_context(Call& driver, CUcontext named, Context** out) {
  if (named == nullptr) return driver->current(out);
  *out = driver->contexts.find(named);
  return *out == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

}  // namespace

CUresult read_copy(Call& driver, const CUDA_MEMCPY3D* given, CUcontext named, Action* out) {
  CopyAction action;
  Context* context = nullptr;
  if (const CUresult result = read_parameters(given, &action.copy); result != CUDA_SUCCESS) return result;
  if (const CUresult result = find_context(driver, named, &context); result != CUDA_SUCCESS) return result;
  action.copy.to.device = action.copy.from.device = driver->device(context->ordinal);
  action.context = context->id;
  if (const CUresult result = check_later(driver, action.copy); result != CUDA_SUCCESS) return result;
  settle_sides(driver, action.copy);
  *out = action;
  return CUDA_SUCCESS;
}

CUresult read_fill(Call& driver, const CUDA_MEMSET_NODE_PARAMS* given, CUcontext named, Action* out) {
  if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const unsigned size = given->elementSize;
  std::uint64_t width = 0;
  if ((size != 1 && size != 2 && size != 4) || __builtin_mul_overflow(given->width, size, &width))
    return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  if (const CUresult result = find_context(driver, named, &context); result != CUDA_SUCCESS) return result;
  const Place to{.address = given->dst,
                 .side = Side::kDevice,
                 .row_pitch = given->height > 1 ? given->pitch : 0,
                 .device = driver->device(context->ordinal)};
  const Fill fill{to, {.width = width, .height = given->height}, given->value, size};
  if (const CUresult result = check_later(driver, fill); result != CUDA_SUCCESS) return result;
  *out = FillAction{fill, context->id};
  return CUDA_SUCCESS;
}

CUDA_MEMSET_NODE_PARAMS write_fill(const Fill& fill) {
  CUDA_MEMSET_NODE_PARAMS out{};
  out.dst = fill.to.address;
  out.pitch = fill.to.row_pitch;
  out.value = fill.element;
  out.elementSize = fill.element_size;
  out.width = fill.shape.width / fill.element_size;
  out.height = fill.shape.height;
  return out;
}

CUresult read_host(const CUDA_HOST_NODE_PARAMS* given, Action* out) {
  if (given == nullptr || given->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = HostAction{given->fn, given->userData};
  return CUDA_SUCCESS;
}

CUresult read_record(Call& driver, CUevent event, Action* out) {
  if (driver->events.find(number(event)) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = RecordAction{number(event)};
  return CUDA_SUCCESS;
}

CUresult read_wait(Call& driver, CUevent event, Action* out) {
  if (driver->events.find(number(event)) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = WaitAction{number(event)};
  return CUDA_SUCCESS;
}

CUresult read_child(Call& driver, CUgraph named, Action* out) {
  const Graph* const graph = driver->graphs.find(named);
  if (graph == nullptr || has_memory(*graph)) return CUDA_ERROR_INVALID_VALUE;
  *out = ChildAction{Graphs::copy(*graph)};
  return CUDA_SUCCESS;
}

CUresult read_allocation(Call& driver, Graph& graph, CUDA_MEM_ALLOC_NODE_PARAMS* given, Action* out) {
  if (given == nullptr || given->bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  CUmemAllocationProp extents{};
  extents.type = given->poolProps.allocType;
  extents.requestedHandleTypes = given->poolProps.handleTypes;
  extents.location = given->poolProps.location;
  if (extents.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_properties(driver, &extents); result != CUDA_SUCCESS) return result;
  GraphAllocation like{.wanted = given->bytesize, .properties = given->poolProps, .owner = graph.number};
  resolve(driver, extents.location, &like.device);
  like.access.push_back({like.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  if (given->accessDescCount > 0 && given->accessDescs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < given->accessDescCount; ++i) {
    const CUmemAccessDesc& wanted = given->accessDescs[i];
    std::uint32_t device = 0;
    if (const CUresult known = resolve(driver, wanted.location, &device); known != CUDA_SUCCESS) return known;
    if (wanted.flags != CU_MEM_ACCESS_FLAGS_PROT_READ && wanted.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
    like.described.push_back(wanted);
    if (device != like.device) like.access.push_back({device, wanted.flags});
  }
  AllocateAction action;
  const CUresult result = driver->graph_memory.add(std::move(like), &action.allocation);
  if (result != CUDA_SUCCESS) return result;
  given->dptr = action.allocation->address;
  *out = std::move(action);
  return CUDA_SUCCESS;
}

CUresult read_free(Call& driver, Graph& graph, CUdeviceptr address, Action* out) {
  GraphAllocationRef allocation = driver->graph_memory.find(address);
  if (allocation == nullptr || allocation->address != address) return CUDA_ERROR_INVALID_VALUE;
  const bool is_own = allocation->owner == graph.number;
  const bool is_taken =
      is_own ? !allocation->freeing.empty()
             : allocation->freeing.contains(graph.number) || allocation->freeing.contains(allocation->owner);
  if (is_taken) return CUDA_ERROR_INVALID_VALUE;
  allocation->freeing.insert(graph.number);
  *out = FreeAction{std::move(allocation)};
  return CUDA_SUCCESS;
}

CUDA_MEM_ALLOC_NODE_PARAMS write_allocation(const GraphAllocation& allocation) {
  CUDA_MEM_ALLOC_NODE_PARAMS out{};
  out.poolProps = allocation.properties;
  out.accessDescs = allocation.described.data();
  out.accessDescCount = allocation.described.size();
  out.bytesize = allocation.wanted;
  out.dptr = allocation.address;
  return out;
}

#if CUDA_VERSION >= 12020
namespace {

CUresult read_memory_action(Call& driver, Graph& graph, CUgraphNodeParams& given, Action* out) {
  if (given.type == CU_GRAPH_NODE_TYPE_MEM_FREE) return read_free(driver, graph, given.free.dptr, out);
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{given.alloc.poolProps, given.alloc.accessDescs,
                                        given.alloc.accessDescCount, given.alloc.bytesize, 0};
  const CUresult result = read_allocation(driver, graph, &allocation, out);
  if (result == CUDA_SUCCESS) given.alloc.dptr = allocation.dptr;
  return result;
}

}  // namespace

CUresult read_action(Call& driver, Graph* graph, CUgraphNodeParams& given, Action* out) {
  switch (given.type) {
    case CU_GRAPH_NODE_TYPE_EMPTY: *out = EmptyAction(); return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return read_copy(driver, &given.memcpy.copyParams, given.memcpy.copyCtx, out);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto& memset = given.memset;
      const CUDA_MEMSET_NODE_PARAMS fill{memset.dst,         memset.pitch, memset.value,
                                         memset.elementSize, memset.width, memset.height};
      return read_fill(driver, &fill, memset.ctx, out);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      const CUDA_HOST_NODE_PARAMS host{given.host.fn, given.host.userData};
      return read_host(&host, out);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH: return read_child(driver, given.graph.graph, out);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return read_record(driver, given.eventRecord.event, out);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return read_wait(driver, given.eventWait.event, out);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : read_memory_action(driver, *graph, given, out);
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}
#endif

}  // namespace gpumem::sim
