// Legacy IPC: blocks are passed on by handles of the broker.
#include <cstring>

#include "client/shim/calls.h"
#include "client/shim/memory/blocks/context.h"
#include "client/shim/memory/process.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuIpcGetMemHandle)> real_get_handle("cuIpcGetMemHandle");
constinit RealCall<decltype(::cuIpcOpenMemHandle_v2)> real_open_handle("cuIpcOpenMemHandle_v2");
constinit RealCall<decltype(::cuIpcCloseMemHandle)> real_close_handle("cuIpcCloseMemHandle");

constinit client::RefusalMessages get_failures;
constinit client::RefusalMessages open_failures;

Imports::Bytes64 bytes_of(const CUipcMemHandle& handle) {
  Imports::Bytes64 bytes;
  static_assert(sizeof bytes == sizeof handle.reserved);
  std::memcpy(bytes.data(), handle.reserved, bytes.size());
  return bytes;
}

CUresult name_block(const Block& block, CUipcMemHandle* out) {
  Process& process = Process::current();
  const Slices* const of = block.memory->slices_of(block.at);
  const auto handle = ask_while_away(process.patience(), [&]() -> Result<Exports::Bytes64> {
    if (of != nullptr && !of->is_lost()) return process.exports().handle_of(block);
    return Error{Code::kFailedPrecondition,
                 "the session that the block was borrowed in was lost; blocks of now can be passed on"};
  });
  if (!handle) {
    get_failures.tell("cuIpcGetMemHandle: " + handle.error().message);
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::memcpy(out->reserved, handle->data(), handle->size());
  return CUDA_SUCCESS;
}

CUresult open_block(CUdeviceptr* out, const CUipcMemHandle& handle, unsigned flags,
                    const CurrentContext& current) {
  Process& process = Process::current();
  const Imports::Bytes64 bytes = bytes_of(handle);
  if (process.exports().is_own(bytes)) return CUDA_ERROR_INVALID_CONTEXT;  // as the driver has it
  process.imports().allow(current.device);
  const auto opened = process.imports().open(process.session(), bytes, current.context, process.patience());
  if (opened) {
    *out = *opened;
    return CUDA_SUCCESS;
  }
  const Code code = opened.error().code;
  if (code == Code::kNotFound || code == Code::kInvalidArgument) return real_open_handle(out, handle, flags);
  open_failures.tell("cuIpcOpenMemHandle: " + opened.error().message);
  return CUDA_ERROR_MAP_FAILED;
}

}  // namespace

CUresult calls::cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  return guarded([&] {
    Process& process = Process::current();
    const auto block = process.is_brokered() ? process.blocks().find(dptr) : std::nullopt;
    if (!block) return real_get_handle(pHandle, dptr);
    return pHandle == nullptr || block->pool ? CUDA_ERROR_INVALID_VALUE : name_block(*block, pHandle);
  });
}

CUresult calls::cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return guarded([&] {
    if (!Process::current().is_brokered()) return real_open_handle(pdptr, handle, Flags);
    const CurrentContext current = CurrentContext::get();
    if (current.result != CUDA_SUCCESS) return current.result;
    const bool is_known = pdptr != nullptr && Flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    return is_known ? open_block(pdptr, handle, Flags, current) : CUDA_ERROR_INVALID_VALUE;
  });
}
CUresult calls::cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return calls::cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

// Work that uses the memory may be under way.
CUresult calls::cuIpcCloseMemHandle(CUdeviceptr dptr) {
  return guarded([&] {
    Process& process = Process::current();
    if (!process.is_brokered()) return real_close_handle(dptr);
    const CurrentContext current = CurrentContext::get();
    if (current.result == CUDA_SUCCESS) (void)synchronize_beside(process.captures(), current.context);
    return process.imports().close(dptr, current.context) ? CUDA_SUCCESS : real_close_handle(dptr);
  });
}

}  // namespace gpumem::shim
