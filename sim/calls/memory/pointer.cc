// What an address is.
#include <cuda.h>

#include <cstdint>

#include "calls.h"
#include "sim/driver/driver.h"

namespace gpumem::sim {
namespace {

/// Memory as the attributes of a pointer into it tell it.
struct Memory {
  std::uint64_t context = 0;
  unsigned type = 0;
  std::uint64_t start = 0, size = 0;
  std::uint64_t id = 0;
  int ordinal = -1;
  unsigned handle_types = 0;
  bool is_ipc_capable = false;
  bool is_managed = false;
  bool is_mapped = false;  ///< by the program
  bool is_rdma_capable = false;
  CUmemoryPool pool = nullptr;
  /// The access of the current context's device, as in CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS.
  unsigned long long access = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
  bool is_synchronous = false;  ///< CU_POINTER_ATTRIBUTE_SYNC_MEMOPS was set
};

std::uint64_t start_of(const VaSpace::Found& found) {
  return found.reservation->use == Use::kProgram ? found.base : found.range_base;
}

/// Memory of a graph that lies nowhere yet.
std::optional<Memory> graph_memory(Call& driver, CUdeviceptr address) {
  const GraphAllocationRef found = driver->graph_memory.find(address);
  if (found == nullptr) return std::nullopt;
  return Memory{.type = found->device == layout::kHost ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                .start = found->address,
                .size = found->size,
                .ordinal = driver->ordinal(found->device)};
}

std::optional<Memory> device_memory(Call& driver, CUdeviceptr address) {
  const auto found = driver->space.find(address);
  if (found.mapping == nullptr) return graph_memory(driver, address);
  const Extent& extent = *found.mapping->extent;
  return Memory{.context = found.reservation->owner,
                .type = extent.device == layout::kHost ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                .start = start_of(found),
                .size = found.mapping->size,
                .id = extent.slot.generation,
                .ordinal = driver->ordinal(extent.device),
                .handle_types = extent.handle_types,
                .is_ipc_capable = found.reservation->use == Use::kAllocation,
                .is_managed = found.reservation->use == Use::kManaged,
                .is_mapped = found.reservation->use == Use::kProgram,
                .is_rdma_capable = extent.rdma_capable != 0 || found.reservation->use == Use::kAllocation};
}

std::optional<Memory> host_memory(Call& driver, CUdeviceptr address) {
  const HostMemory::Block* const block = driver->host.find(address);
  if (block == nullptr) return std::nullopt;
  const Context* const context = driver->contexts.find(handle<CUcontext>(block->context));
  return Memory{.context = block->context,
                .type = CU_MEMORYTYPE_HOST,
                .start = block->start,
                .size = block->size,
                .id = block->id,
                .ordinal = context == nullptr ? -1 : context->ordinal};
}

/// Memory of a pool that is not allocated does not exist for the program.
std::optional<Memory> pool_memory(Call& driver, CUdeviceptr address, Memory memory) {
  const Pools::Found found = driver->pools.find_block(address);
  if (found.pool == nullptr) return std::nullopt;
  memory.start = found.start;
  memory.size = found.size;
  memory.id = found.id;
  memory.pool = handle<CUmemoryPool>(found.pool->number);
  memory.is_managed = found.pool->is_managed;
  if (memory.is_managed) memory.type = CU_MEMORYTYPE_DEVICE;
  return memory;
}

/// The access of the current context's device to mapped device memory.
unsigned long long access_of(Call& driver, const VaSpace::Found& found) {
  Context* context = nullptr;
  if (found.reservation->use == Use::kManaged) return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
  if (driver->current(&context) != CUDA_SUCCESS) return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
  return found.mapping->access[driver->device(context->ordinal)];
}

std::optional<Memory> memory_at(Call& driver, CUdeviceptr address) {
  auto memory = device_memory(driver, address);
  if (!memory) return host_memory(driver, address);
  const auto found = driver->space.find(address);
  if (found.mapping == nullptr) return memory;
  memory->access = access_of(driver, found);
  return found.reservation->use == Use::kPool ? pool_memory(driver, address, *memory) : memory;
}

/// With what the program has set.
std::optional<Memory> known_memory_at(Call& driver, CUdeviceptr address) {
  auto memory = memory_at(driver, address);
  if (memory) memory->is_synchronous = driver->synchronous.contains(memory->id);
  return memory;
}

template <class Value>
CUresult put(void* out, Value value) {
  *static_cast<Value*>(out) = value;
  return CUDA_SUCCESS;
}

CUresult answer(const Memory& memory, CUpointer_attribute attribute, CUdeviceptr address, void* out) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return put(out, handle<CUcontext>(memory.context));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return put(out, memory.type);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return put(out, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return memory.type == CU_MEMORYTYPE_HOST || memory.is_managed ? put(out, address)
                                                                    : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return put<unsigned long long>(out, memory.id);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return put<unsigned>(out, memory.is_synchronous ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return put(out, memory.access);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put(out, memory.is_managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put(out, memory.ordinal);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return put(out, memory.is_ipc_capable);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return put(out, memory.start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return put<size_t>(out, memory.size);
    case CU_POINTER_ATTRIBUTE_MAPPED: return put(out, true);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return put<unsigned long long>(out, memory.handle_types);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return put(out, memory.is_rdma_capable);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return put(out, memory.pool);
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

/// What is told of an address that is no memory of ours.
void answer_nothing(CUpointer_attribute attribute, void* out) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: put<unsigned>(out, 0); break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: put(out, false); break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: put(out, -2); break;  // the real driver's "none"
    case CU_POINTER_ATTRIBUTE_CONTEXT: put<CUcontext>(out, nullptr); break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: put<CUdeviceptr>(out, 0); break;
    default: break;
  }
}

}  // namespace

CUresult api::cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  Call driver;
  if (!driver) return driver.error();
  const auto memory = memory_at(driver, address);
  if (!memory) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = memory->start;
  if (size != nullptr) *size = memory->size;
  return CUDA_SUCCESS;
}

CUresult api::cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const auto memory = known_memory_at(driver, address)) return answer(*memory, attribute, address, out);
  const bool is_reserved = driver->space.find(address).reservation != nullptr;
  return is_reserved && attribute == CU_POINTER_ATTRIBUTE_MAPPED ? put(out, false) : CUDA_ERROR_INVALID_VALUE;
}

/// Attributes that do not apply get their null value, as the real call gives them.
CUresult api::cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** out,
                                     CUdeviceptr address) {
  Call driver;
  if (!driver) return driver.error();
  if (count == 0 || attributes == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto memory = known_memory_at(driver, address);
  for (unsigned i = 0; i < count; ++i) {
    if (out[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!memory || answer(*memory, attributes[i], address, out[i]) != CUDA_SUCCESS) {
      answer_nothing(attributes[i], out[i]);
    }
  }
  return CUDA_SUCCESS;
}

CUresult api::cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  Call driver;
  if (!driver) return driver.error();
  const auto memory = memory_at(driver, address);
  if (value == nullptr || !memory || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
    return CUDA_ERROR_INVALID_VALUE;
  if (memory->is_mapped) return CUDA_ERROR_NOT_SUPPORTED;
  // The attribute is only recorded: all copies that may not be asynchronous are synchronous already.
  if (*static_cast<const unsigned*>(value) != 0)
    driver->synchronous.insert(memory->id);
  else
    driver->synchronous.erase(memory->id);
  return CUDA_SUCCESS;
}

}  // namespace gpumem::sim
