// Managed memory is the driver's own, and charged.
#include "client/shim/calls.h"
#include "client/shim/calls/charged.h"
#include "client/shim/calls/guarded.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuMemAllocManaged)> real_alloc_managed("cuMemAllocManaged");

constexpr Bytes kManagedPage = kibibytes(64);  // as much as the driver takes at least

}  // namespace

CUresult calls::cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  return guarded([&] {
    return forward_charged(
        "cuMemAllocManaged",
        [&](CUdevice) { return Bytes{bytesize}.rounded_up(kManagedPage).value_or(Bytes{bytesize}); },
        [&] { return real_alloc_managed(dptr, bytesize, flags); }, [&] { return Outside::Name(*dptr); });
  });
}

}  // namespace gpumem::shim
