// Memory of other interfaces: it is not the broker's, and charged while this process has it.
#include "client/shim/calls.h"
#include "client/shim/calls/charged.h"
#include "client/shim/calls/guarded.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuImportExternalMemory)> real_import("cuImportExternalMemory");
constinit RealCall<decltype(::cuDestroyExternalMemory)> real_destroy_external("cuDestroyExternalMemory");

}  // namespace

CUresult calls::cuImportExternalMemory(CUexternalMemory* extMem_out,
                                       const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* memHandleDesc) {
  return guarded([&] {
    return forward_charged(
        "cuImportExternalMemory",
        [&](CUdevice) { return memHandleDesc != nullptr ? Bytes{memHandleDesc->size} : Bytes{}; },
        [&] { return real_import(extMem_out, memHandleDesc); }, [&] { return Outside::Name(*extMem_out); });
  });
}

CUresult calls::cuDestroyExternalMemory(CUexternalMemory extMem) {
  return guarded([&] {
    return Process::current().outside().free(Outside::Name(extMem),
                                             [extMem] { return real_destroy_external(extMem); });
  });
}

}  // namespace gpumem::shim
