// Attributes of an address: the driver's answer for the mapping underneath, with the block's own values in
// place of the mapping's.
#include "client/shim/calls.h"
#include "client/shim/memory/blocks/context.h"
#include "client/shim/memory/process.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuPointerGetAttribute)> real_pointer_attribute("cuPointerGetAttribute");
constinit RealCall<decltype(::cuPointerGetAttributes)> real_attributes("cuPointerGetAttributes");
constinit RealCall<decltype(::cuPointerSetAttribute)> real_set_pointer_attribute("cuPointerSetAttribute");

constexpr int kMemoryBlockId = 20;  // CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, of CUDA 12

/// What the program knows of an address in borrowed memory.
struct Known {
  CUdeviceptr start = 0;
  Bytes size;
  CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE;
  std::optional<Block> block{};  ///< none: mapped by the program, or imported
  bool imported = false;
};

std::optional<Known> known_at(Process& process, CUdeviceptr address) {
  if (!process.is_brokered()) return std::nullopt;
  if (auto block = process.blocks().find(address)) return Known{block->at, block->bytes, {}, block};
  if (const auto mapped = process.handles().find(address))
    return Known{mapped->at, mapped->bytes, mapped->types};
  if (const auto imported = process.imports().find(address))
    return Known{.start = imported->at, .size = imported->bytes, .imported = true};
  return std::nullopt;
}

template <class Value>
bool put(void* out, Value value) {
  *static_cast<Value*>(out) = value;
  return true;
}

/// False: the driver's answer holds.
bool answer_of_block(const Block& block, CUpointer_attribute attribute, void* out) {
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return put(out, block.context);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case kMemoryBlockId: return put(out, block.id);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return put<bool>(out, block.pool == nullptr);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return put<unsigned>(out, block.is_synchronous ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return put(out, block.pool ? block.pool->handle() : nullptr);
    default: return false;
  }
}

const DeviceMemory* memory_of(const Known& known) {
  int ordinal = -1;
  if (real_pointer_attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, known.start) != CUDA_SUCCESS)
    return nullptr;
  return Process::current().open_memory_of(ordinal);
}

bool answer(const Known& known, CUpointer_attribute attribute, void* out) {
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return put(out, known.start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return put<std::size_t>(out, known.size.count);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<unsigned long long>(out, static_cast<unsigned long long>(known.types));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: {
      const DeviceMemory* const memory = memory_of(known);
      return memory != nullptr && put<bool>(out, memory->is_made_for_direct_access());
    }
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case kMemoryBlockId:  // of an import the first extent's, whichever the address lies in
      if (known.imported) return real_pointer_attribute(out, attribute, known.start) == CUDA_SUCCESS;
      [[fallthrough]];
    default: return known.block && answer_of_block(*known.block, attribute, out);
  }
}

/// The driver refuses this for mapped memory, which blocks are. It can make a whole context synchronous
/// instead.
CUresult set_synchronous(const Block& block, bool is_synchronous) {
  // A block of a pool belongs to no context: the current context uses it.
  CUcontext const context = block.pool ? CurrentContext::get().context : block.context;
  const CUresult set = is_synchronous ? make_synchronous(context) : CUDA_SUCCESS;
  if (set == CUDA_SUCCESS) Process::current().blocks().set_synchronous(block.at, is_synchronous);
  return set;
}

/// Of the slice or of what is opened of others, where no block is: for an address that is not known.
bool is_free_memory(const Process& process, CUdeviceptr address) { return process.is_of_a_block(address); }

}  // namespace

CUresult calls::cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  return guarded([&] {
    Process& process = Process::current();
    const auto known = known_at(process, ptr);
    if (!known && is_free_memory(process, ptr)) return CUDA_ERROR_INVALID_VALUE;
    if (known && data != nullptr && answer(*known, attribute, data)) return CUDA_SUCCESS;
    return real_pointer_attribute(data, attribute, ptr);
  });
}

// Of an address that is no memory, the driver answers each attribute's null value; as of 0.
CUresult calls::cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                       void** data, CUdeviceptr ptr) {
  return guarded([&] {
    Process& process = Process::current();
    const auto known = known_at(process, ptr);
    const bool is_nothing = !known && is_free_memory(process, ptr);
    const CUresult answered = real_attributes(numAttributes, attributes, data, is_nothing ? 0 : ptr);
    if (answered != CUDA_SUCCESS || !known) return answered;
    for (unsigned i = 0; i < numAttributes; ++i) answer(*known, attributes[i], data[i]);
    return CUDA_SUCCESS;
  });
}

CUresult calls::cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  return guarded([&] {
    Process& process = Process::current();
    const auto known = known_at(process, ptr);
    if (!known && is_free_memory(process, ptr)) return CUDA_ERROR_INVALID_VALUE;
    const bool is_ours =
        known && known->block && value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    return is_ours ? set_synchronous(*known->block, *static_cast<const unsigned*>(value) != 0)
                   : real_set_pointer_attribute(value, attribute, ptr);
  });
}

}  // namespace gpumem::shim
