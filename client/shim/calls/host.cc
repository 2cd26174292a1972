#include <unistd.h>

#include <cstdint>
#include <optional>

#include "client/shim/calls.h"
#include "client/shim/memory/blocks/context.h"
#include "client/shim/memory/process.h"
#include "client/shim/real.h"

// Host memory that the driver pins for the program. It stays the driver's, and is charged.

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuMemHostAlloc)> real_host_alloc("cuMemHostAlloc");
constinit RealCall<decltype(::cuMemAllocHost_v2)> real_host_alloc_plain("cuMemAllocHost_v2");
constinit RealCall<decltype(::cuMemFreeHost)> real_host_free("cuMemFreeHost");
constinit RealCall<decltype(::cuMemHostRegister_v2)> real_host_register("cuMemHostRegister_v2");
constinit RealCall<decltype(::cuMemHostUnregister)> real_host_unregister("cuMemHostUnregister");

/// The driver pins whole pages.
Bytes pages_of(std::uintptr_t at, Bytes bytes) {
  static const Bytes page{static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))};
  const auto end = bytes.plus({at % page.count});
  return (end ? end->rounded_up(page) : std::nullopt).value_or(bytes);
}

/// Has `pin` pin `bytes`, at the address that `address_of` tells then.
template <class Pin, class AddressOf>
CUresult pin(const char* call, Bytes bytes, const Pin& pin, const AddressOf& address_of) {
  return guarded([&] {
    Process& process = Process::current();
    if (!process.is_brokered() || bytes.is_zero()) return pin();
    const CurrentContext current = CurrentContext::get();
    if (current.result != CUDA_SUCCESS) return pin();  // the driver's to refuse
    const CUresult charged = process.pinned().charge_outside(call, bytes);
    if (charged != CUDA_SUCCESS) return charged;
    const CUresult pinned = pin();
    if (pinned == CUDA_SUCCESS)
      process.outside().add(Outside::Name::of_host(address_of()),
                            {.memory = &process.pinned(), .bytes = bytes, .context = current.context});
    else
      process.pinned().discharge_outside(bytes);
    return pinned;
  });
}

template <class Call>
CUresult unpin(void* address, const Call& real_call) {
  return guarded(
      [&] { return Process::current().outside().free(Outside::Name::of_host(address), real_call); });
}

}  // namespace

CUresult calls::cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  return pin(
      "cuMemHostAlloc", pages_of(0, {bytesize}), [&] { return real_host_alloc(pp, bytesize, Flags); },
      [&] { return *pp; });
}

CUresult calls::cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return pin(
      "cuMemAllocHost", pages_of(0, {bytesize}), [&] { return real_host_alloc_plain(pp, bytesize); },
      [&] { return *pp; });
}

CUresult calls::cuMemFreeHost(void* p) {
  return unpin(p, [p] { return real_host_free(p); });
}

// Memory of a device on the bus is none of the host's.
CUresult calls::cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  const bool is_charged = bytesize != 0 && (Flags & CU_MEMHOSTREGISTER_IOMEMORY) == 0;
  return pin(
      "cuMemHostRegister", is_charged ? pages_of(reinterpret_cast<std::uintptr_t>(p), {bytesize}) : Bytes{},
      [&] { return real_host_register(p, bytesize, Flags); }, [&] { return p; });
}
CUresult calls::cuMemHostRegister(void* p, size_t bytesize, unsigned int Flags) {
  return calls::cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult calls::cuMemHostUnregister(void* p) {
  return unpin(p, [p] { return real_host_unregister(p); });
}

}  // namespace gpumem::shim
