#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/system/unique_fd.h"
#include "cuda/driver.h"
#include "cuda/headers.h"

namespace gpumem::cuda {

/// How an extent can be passed on.
enum class HandleTypes { kDescriptor, kDescriptorAndFabric };

/// Whether network cards and disks can reach an extent by themselves (GPUDirect RDMA), as they can what
/// cuMemAlloc gives.
enum class DirectAccess { kNo, kYes };

/// The properties of every extent: pinned memory of one device that can be passed on as a file descriptor.
inline CUmemAllocationProp allocation_properties(int ordinal, HandleTypes types = HandleTypes::kDescriptor,
                                                 DirectAccess direct = DirectAccess::kNo) {
  const unsigned fabric = types == HandleTypes::kDescriptorAndFabric ? kFabricHandleType : 0;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes =
      static_cast<CUmemAllocationHandleType>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | fabric);
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  properties.allocFlags.gpuDirectRDMACapable = direct == DirectAccess::kYes ? 1 : 0;
  return properties;
}

/// In place of a device's ordinal: extents on a NUMA node of the host. The driver has pinned them. They are
/// mapped for the CPUs and for all devices of the process, at one address.
inline constexpr int kHostOrdinal = -1;

/// The properties of every extent on `node` of the host.
inline CUmemAllocationProp host_allocation_properties(int node) {
  CUmemAllocationProp properties = allocation_properties(node);
  properties.location.type = static_cast<CUmemLocationType>(kHostNodeLocation);
  return properties;
}

/// An address on a device, as every process sees its own.
using Address = std::uint64_t;

/// Owns one handle of physical memory. The memory itself lives until every handle, descriptor and mapping
/// of it, in any process, is gone.
class Allocation {
 public:
  Allocation() = default;
  /// Takes `size` bytes of the device with `ordinal`. `size` is a multiple of the granularity.
  /// Errors  kResourceExhausted (the device has no more), kInvalidArgument; with fabric handles, also as
  ///         check_fabric().   Blocks.
  static Result<Allocation> create(const Driver& driver, int ordinal, Bytes size,
                                   HandleTypes types = HandleTypes::kDescriptor);
  /// Takes `size` bytes of the host's NUMA node, which the driver pins and fills with zeros.
  /// Errors  kResourceExhausted: the node has no more; kFailedPrecondition, kInvalidArgument: this driver has
  ///         none on this node. It has crashed processes on machines whose nodes are not alike.   Blocks.
  static Result<Allocation> create_on_host(const Driver& driver, int node, Bytes size);
  /// Takes part in the memory behind `descriptor`, which stays the caller's. The driver cannot tell its
  /// size: `size` is what the exporter said. Errors  kInvalidArgument: no exported memory.
  static Result<Allocation> import(const Driver& driver, int descriptor, Bytes size);
  /// Takes part in the memory that `handle` names, likewise. Errors  kInvalidArgument (it names nothing any
  /// more), kPermissionDenied (no IMEX channel in common with the exporter), kFailedPrecondition.
  static Result<Allocation> import(const Driver& driver, const FabricHandle& handle, Bytes size);

  Allocation(Allocation&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)), handle_(other.handle_), size_(other.size_) {}
  Allocation& operator=(Allocation&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(handle_, other.handle_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Allocation();

  /// A new descriptor of the memory, for another process. Errors  kInvalidArgument: it was imported. Only who
  /// has created memory can make descriptors of it; others duplicate the one that they have.
  Result<UniqueFd> export_descriptor() const;
  /// Its name for processes of any machine of the fabric. It keeps nothing alive.
  /// Errors  kInvalidArgument: not created with HandleTypes::kDescriptorAndFabric.
  Result<FabricHandle> export_fabric() const;
  Bytes size() const { return size_; }
  CUmemGenericAllocationHandle handle() const { return handle_; }

 private:
  static Result<Allocation> create(const Driver& driver, const CUmemAllocationProp& properties, Bytes size);
  Allocation(const Driver& driver, CUmemGenericAllocationHandle handle, Bytes size)
      : driver_(&driver), handle_(handle), size_(size) {}

  const Driver* driver_ = nullptr;
  CUmemGenericAllocationHandle handle_ = 0;
  Bytes size_;
};

/// Tries whether this process can give out fabric handles of the device: takes one granule, exports and
/// imports it. The device's attribute alone tells nothing of the access to an IMEX channel.
/// Errors  kFailedPrecondition (the device or its driver does not offer them), kPermissionDenied (no IMEX
///         channel), kResourceExhausted.   Blocks.
Result<void> check_fabric(const Driver& driver, const Device& device);

/// Owns a range of addresses. Costs no device memory.
class Reservation {
 public:
  Reservation() = default;
  /// Errors  kResourceExhausted: the address space is used up.
  static Result<Reservation> create(const Driver& driver, Bytes size, Bytes alignment);

  Reservation(Reservation&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)), base_(other.base_), size_(other.size_) {}
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Reservation();

  Address base() const { return base_; }
  Bytes size() const { return size_; }

 private:
  Reservation(const Driver& driver, Address base, Bytes size) : driver_(&driver), base_(base), size_(size) {}

  const Driver* driver_ = nullptr;
  Address base_ = 0;
  Bytes size_;
};

/// The access of a device to memory at the addresses of a mapping.
enum class Access { kRead, kReadWrite };

/// Maps `allocations` one after the other from `at` on, for the device with `ordinal`, or for all if it is
/// kHostOrdinal. All or nothing. A forked child does not have mappings of the host.
/// Errors  kInvalidArgument: not inside a reservation, or something is mapped there.
Result<void> map(const Driver& driver, Address at, std::span<const Allocation* const> allocations,
                 int ordinal, Access access = Access::kReadWrite);

/// Lets the device with `ordinal` use what is mapped in [at, at + size), which begins and ends with
/// allocations. Errors  kInvalidArgument: it cannot reach the memory.
Result<void> set_access(const Driver& driver, Address at, Bytes size, int ordinal,
                        Access access = Access::kReadWrite);

/// Whether the device with ordinal `peer` can use memory of that with `ordinal`. Errors  the driver's.
Result<bool> can_access(const Driver& driver, int peer, int ordinal);

/// Unmaps [at, at + size), which begins and ends with allocations. The caller has synchronised.
/// Errors  what the driver says; then all of it is still mapped.
Result<void> unmap(const Driver& driver, Address at, Bytes size);

/// Owns the mapping of adjacent allocations at one range of addresses, for one device.
/// The caller synchronises before it goes: the driver does not wait for work that uses the addresses.
class Mapping {
 public:
  Mapping() = default;
  /// As map().
  static Result<Mapping> create(const Driver& driver, Address at, std::span<const Allocation> allocations,
                                int ordinal, Access access = Access::kReadWrite);

  Mapping(Mapping&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)), at_(other.at_), size_(other.size_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(at_, other.at_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Mapping();

  /// Unmaps everything from `from` on; the rest stays. `from` is the start of one of the allocations.
  /// Errors  what the driver says; then all of it is still mapped.
  Result<void> truncate(Address from);
  Address at() const { return at_; }
  Address end() const { return at_ + size_.count; }
  Bytes size() const { return size_; }

 private:
  Mapping(const Driver& driver, Address at, Bytes size) : driver_(&driver), at_(at), size_(size) {}

  const Driver* driver_ = nullptr;
  Address at_ = 0;
  Bytes size_;
};

/// Makes the device's primary context current on this thread for its lifetime. A context costs device
/// memory: only what copies or computes needs one, the broker never.
class CurrentContext {
 public:
  static Result<CurrentContext> enter(const Driver& driver, int ordinal);

  CurrentContext(CurrentContext&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)), ordinal_(other.ordinal_) {}
  CurrentContext& operator=(CurrentContext&&) = delete;
  ~CurrentContext();

 private:
  CurrentContext(const Driver& driver, int ordinal) : driver_(&driver), ordinal_(ordinal) {}

  const Driver* driver_;
  int ordinal_;
};

/// While one lives, this thread may make calls that a graph's capture by another thread would forbid, and
/// does not spoil that capture by them.
class BesideCaptures {
 public:
  explicit BesideCaptures(const Driver& driver)
      : driver_(driver), exchanged_(driver.api().cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS) {}
  ~BesideCaptures() {
    if (exchanged_) driver_.api().cuThreadExchangeStreamCaptureMode(&mode_);
  }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  const bool exchanged_;
};

}  // namespace gpumem::cuda
