// Managed memory is the driver's own, and charged.
#include "client/shim/calls.h"
#include "client/shim/calls/guarded.h"
#include "client/shim/memory/context.h"
#include "client/shim/memory/process.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuMemAllocManaged)> real_alloc_managed("cuMemAllocManaged");

}  // namespace

CUresult calls::cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  return guarded([&] {
    Process& process = Process::current();
    const auto forward = [&] { return real_alloc_managed(dptr, bytesize, flags); };
    if (!process.is_brokered() || bytesize == 0) return forward();
    const CurrentContext current = CurrentContext::get();
    if (current.result != CUDA_SUCCESS) return current.result;
    const auto found = process.memory_of(current.device);
    if (found.memory == nullptr) return found.result == CUDA_SUCCESS ? forward() : found.result;
    const CUresult charged = found.memory->charge_outside("cuMemAllocManaged", {bytesize});
    if (charged != CUDA_SUCCESS) return charged;
    const CUresult result = forward();
    if (result == CUDA_SUCCESS) {
      process.outside().add(*dptr, {found.memory, {bytesize}, current.context});
    } else {
      found.memory->discharge_outside({bytesize});
    }
    return result;
  });
}

}  // namespace gpumem::shim
