#include "cuda/memory.h"

#include <sys/mman.h>

#include <algorithm>

namespace gpumem::cuda {

namespace {

DirectAccess direct_access_of(const Driver& driver, int ordinal) {
  const auto device = std::ranges::find(driver.devices(), ordinal, &Device::ordinal);
  const bool has_it = device != driver.devices().end() && device->has_direct_access;
  return has_it ? DirectAccess::kYes : DirectAccess::kNo;
}

CUmemAccessDesc access_for(CUmemLocationType type, int id, Access access) {
  CUmemAccessDesc allowed{};
  allowed.location.type = type;
  allowed.location.id = id;
  allowed.flags =
      access == Access::kRead ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return allowed;
}

Result<CUmemGenericAllocationHandle> import_handle(const Driver& driver, void* os_handle, unsigned type) {
  CUmemGenericAllocationHandle handle = 0;
  auto imported = driver.check(driver.api().cuMemImportFromShareableHandle(
                                   &handle, os_handle, static_cast<CUmemAllocationHandleType>(type)),
                               "cuMemImportFromShareableHandle");
  if (!imported) return imported.error();
  return handle;
}

}  // namespace

Result<Allocation> Allocation::create(const Driver& driver, int ordinal, Bytes size, HandleTypes types) {
  return create(driver, allocation_properties(ordinal, types, direct_access_of(driver, ordinal)), size);
}

Result<Allocation> Allocation::create_on_host(const Driver& driver, int node, Bytes size) {
  return create(driver, host_allocation_properties(node), size);
}

Result<Allocation> Allocation::create(const Driver& driver, const CUmemAllocationProp& properties,
                                      Bytes size) {
  CUmemGenericAllocationHandle handle = 0;
  auto created = driver.check(driver.api().cuMemCreate(&handle, size.count, &properties, 0), "cuMemCreate");
  if (!created) return created.error();
  return Allocation(driver, handle, size);
}

Result<Allocation> Allocation::import(const Driver& driver, int descriptor, Bytes size) {
  void* os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));
  auto handle = import_handle(driver, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (!handle) return handle.error();
  return Allocation(driver, *handle, size);
}

Result<Allocation> Allocation::import(const Driver& driver, const FabricHandle& bytes, Bytes size) {
  FabricHandle copy = bytes;
  auto handle = import_handle(driver, copy.data(), kFabricHandleType);
  if (!handle) return handle.error();
  return Allocation(driver, *handle, size);
}

Allocation::~Allocation() {
  if (driver_ != nullptr) driver_->api().cuMemRelease(handle_);
}

Result<UniqueFd> Allocation::export_descriptor() const {
  int descriptor = -1;
  auto exported = driver_->check(driver_->api().cuMemExportToShareableHandle(
                                     &descriptor, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                                 "cuMemExportToShareableHandle");
  if (!exported) return exported.error();
  return UniqueFd(descriptor);
}

Result<FabricHandle> Allocation::export_fabric() const {
  FabricHandle bytes{};
  auto exported =
      driver_->check(driver_->api().cuMemExportToShareableHandle(
                         bytes.data(), handle_, static_cast<CUmemAllocationHandleType>(kFabricHandleType), 0),
                     "cuMemExportToShareableHandle");
  if (!exported) return exported.error();
  return bytes;
}

Result<void> check_fabric(const Driver& driver, const Device& device) {
  int offered = 0;
  const auto asked = driver.api().cuDeviceGetAttribute(
      &offered, static_cast<CUdevice_attribute>(kFabricAttribute), device.ordinal);
  if (asked != CUDA_SUCCESS || offered == 0)  // a driver that does not know the question is too old
    return Error{Code::kFailedPrecondition, "the device, or its driver, does not offer fabric handles"};
  const auto refused = [](const Error& error) {
    return error.in(
        "fabric handles need a file in /dev/nvidia-caps-imex-channels that this process may open (see the "
        "documentation of NVIDIA IMEX channels)");
  };
  auto one =
      Allocation::create(driver, device.ordinal, device.granularity, HandleTypes::kDescriptorAndFabric);
  if (!one) return one.error().code == Code::kResourceExhausted ? one.error() : refused(one.error());
  auto handle = one->export_fabric();
  if (!handle) return refused(handle.error());
  auto imported = Allocation::import(driver, *handle, device.granularity);
  if (!imported) return refused(imported.error());
  return {};
}

Result<Reservation> Reservation::create(const Driver& driver, Bytes size, Bytes alignment) {
  CUdeviceptr base = 0;
  auto reserved = driver.check(driver.api().cuMemAddressReserve(&base, size.count, alignment.count, 0, 0),
                               "cuMemAddressReserve");
  if (!reserved) return reserved.error();
  return Reservation(driver, base, size);
}

Reservation::~Reservation() {
  if (driver_ != nullptr) driver_->api().cuMemAddressFree(base_, size_.count);
}

Result<void> map(const Driver& driver, Address at, std::span<const Allocation* const> allocations,
                 int ordinal, Access access) {
  Bytes size;
  const auto undone = [&](Result<void> failed) {
    if (!size.is_zero()) static_cast<void>(unmap(driver, at, size));  // nothing else is left to do
    return failed;
  };
  for (const Allocation* allocation : allocations) {
    auto mapped = driver.check(
        driver.api().cuMemMap(at + size.count, allocation->size().count, 0, allocation->handle(), 0),
        "cuMemMap");
    if (!mapped) return undone(mapped);
    size += allocation->size();
  }
  auto allowed = set_access(driver, at, size, ordinal, access);
  // The driver does not work in a forked child, which would keep the memory and read what others write.
  if (ordinal == kHostOrdinal) ::madvise(reinterpret_cast<void*>(at), size.count, MADV_DONTFORK);
  return allowed ? allowed : undone(allowed);
}

Result<void> set_access(const Driver& driver, Address at, Bytes size, int ordinal, Access access) {
  std::vector<CUmemAccessDesc> allowed;
  if (ordinal == kHostOrdinal) {
    // The driver ignores the node: the reference of cuMemSetAccess.
    allowed.push_back(access_for(static_cast<CUmemLocationType>(kHostNodeLocation), 0, access));
    for (const Device& device : driver.devices())
      allowed.push_back(access_for(CU_MEM_LOCATION_TYPE_DEVICE, device.ordinal, access));
  } else {
    allowed.push_back(access_for(CU_MEM_LOCATION_TYPE_DEVICE, ordinal, access));
  }
  return driver.check(driver.api().cuMemSetAccess(at, size.count, allowed.data(), allowed.size()),
                      "cuMemSetAccess");
}

Result<bool> can_access(const Driver& driver, int peer, int ordinal) {
  CUdevice from = 0, to = 0;
  int can = 0;
  auto asked = driver.check(driver.api().cuDeviceGet(&from, peer), "cuDeviceGet");
  if (asked) asked = driver.check(driver.api().cuDeviceGet(&to, ordinal), "cuDeviceGet");
  if (asked)
    asked = driver.check(driver.api().cuDeviceCanAccessPeer(&can, from, to), "cuDeviceCanAccessPeer");
  if (!asked) return asked.error();
  return can != 0;
}

Result<void> unmap(const Driver& driver, Address at, Bytes size) {
  return driver.check(driver.api().cuMemUnmap(at, size.count), "cuMemUnmap");
}

Result<Mapping> Mapping::create(const Driver& driver, Address at, std::span<const Allocation> allocations,
                                int ordinal, Access access) {
  Bytes size;
  std::vector<const Allocation*> each;
  for (const Allocation& allocation : allocations) {
    each.push_back(&allocation);
    size += allocation.size();
  }
  if (auto mapped = map(driver, at, each, ordinal, access); !mapped) return mapped.error();
  return Mapping(driver, at, size);
}

Mapping::~Mapping() { static_cast<void>(truncate(at_)); }  // a driver that refuses leaves nothing else to do

Result<void> Mapping::truncate(Address from) {
  const Bytes rest{at_ + size_.count - from};
  if (driver_ == nullptr || rest.is_zero()) return {};
  auto unmapped = unmap(*driver_, from, rest);
  if (unmapped) size_ -= rest;
  return unmapped;
}

Result<CurrentContext> CurrentContext::enter(const Driver& driver, int ordinal) {
  CUcontext context = nullptr;
  if (auto made =
          driver.check(driver.api().cuDevicePrimaryCtxRetain(&context, ordinal), "cuDevicePrimaryCtxRetain");
      !made) {
    return made.error();
  }
  CurrentContext entered(driver, ordinal);
  if (auto pushed = driver.check(driver.api().cuCtxPushCurrent(context), "cuCtxPushCurrent"); !pushed)
    return pushed.error();
  return entered;
}

CurrentContext::~CurrentContext() {
  if (driver_ == nullptr) return;
  CUcontext context = nullptr;
  driver_->api().cuCtxPopCurrent(&context);
  driver_->api().cuDevicePrimaryCtxRelease(ordinal_);
}

}  // namespace gpumem::cuda
