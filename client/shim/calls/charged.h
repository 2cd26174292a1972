#pragma once

#include <cuda.h>
#include <memory>

#include "client/shim/memory/blocks/blocks.h"
#include "client/shim/memory/blocks/context.h"
#include "client/shim/memory/process.h"

namespace gpumem::shim {

/// Whether the driver may take `more` for the current context: as DeviceMemory::check_context. Without one,
/// or a slice of its device, the driver decides.
inline CUresult check_current_context(const char* call, Bytes more) {
  const Process& process = Process::current();
  if (!process.is_brokered()) return CUDA_SUCCESS;
  const CurrentContext current = CurrentContext::get();
  DeviceMemory* const memory =
      current.result == CUDA_SUCCESS ? process.open_memory_of(current.device) : nullptr;
  return memory != nullptr ? memory->check_context(call, more) : CUDA_SUCCESS;
}

/// `result` of a request to `memory`, or what `forward` answers where that has left the device to the driver.
template <class Forward>
CUresult or_of_driver(CUresult result, const DeviceMemory& memory, const Forward& forward) {
  return result != CUDA_SUCCESS && memory.is_left_to_driver() ? forward() : result;
}

/// Forwards a call that has the driver itself allocate memory in the current context: charges what `size_of`
/// answers for the context's device, has `forward` allocate, and keeps the charge under the name that
/// `name_of` answers then. What `size_of` answers nothing for is forwarded as it is.
/// Errors  as the driver's; OUT_OF_MEMORY: as DeviceMemory::charge_outside.
template <class SizeOf, class Forward, class NameOf>
CUresult forward_charged(const char* call, const SizeOf& size_of, const Forward& forward,
                         const NameOf& name_of) {
  Process& process = Process::current();
  if (!process.is_brokered()) return forward();
  const CurrentContext current = CurrentContext::get();
  if (current.result != CUDA_SUCCESS) return current.result;
  const auto found = process.memory_of(current.device);
  if (found.memory == nullptr) return found.result == CUDA_SUCCESS ? forward() : found.result;
  const Bytes bytes = size_of(current.device);
  if (bytes.is_zero()) return forward();
  const CUresult charged = found.memory->charge_outside(call, bytes);
  if (charged != CUDA_SUCCESS) return or_of_driver(charged, *found.memory, forward);
  const CUresult result = forward();
  found.memory->tell_refusal_of_driver(call, bytes, result);
  if (result == CUDA_SUCCESS)
    process.outside().add(name_of(), {.memory = found.memory, .bytes = bytes, .context = current.context});
  else
    found.memory->discharge_outside(bytes);
  return result;
}

/// Has `real_call` free `address`, which is no block of a slice, and ends the charge for it if there is one.
template <class Call>
CUresult free_of_driver(CUdeviceptr address, const Call& real_call) {
  Process& process = Process::current();
  if (const auto freed = process.driver_pools().free(address, real_call)) return *freed;
  return process.outside().free(Outside::Name(address), real_call);
}

/// Whether `location` is memory of the host, of any node. By number: headers before CUDA 12.2 have no names.
inline bool is_of_host(const CUmemLocation& location) {
  constexpr int kHost = 2, kHostNumaCurrent = 4;
  return static_cast<int>(location.type) >= kHost && static_cast<int>(location.type) <= kHostNumaCurrent;
}

/// The pool with this handle whose blocks come from a slice: one that the program has made, or the default
/// pool of a device, whose slice is opened if need be. Null with SUCCESS: it is the driver's own.
struct FoundPool {
  CUresult result = CUDA_SUCCESS;
  std::shared_ptr<Pool> pool{};
  CUmemoryPool handle = nullptr;
};
FoundPool find_pool(CUmemoryPool handle);

}  // namespace gpumem::shim
