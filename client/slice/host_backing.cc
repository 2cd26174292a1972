#include "client/slice/host_backing.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "client/slice/growth.h"

namespace gpumem::client {
namespace {

using allocator::Address;
using allocator::Extent;

/// Addresses for each byte of the limit, so that there is a gap for any block however the memory lies.
constexpr std::uint64_t kHostTimes = 4;
constexpr std::uint64_t kFewestHostTimes = 2;
constexpr std::uint64_t kMostHostAddresses = std::uint64_t{1} << 44;

/// A process keeps a descriptor for each extent, so it grows by more than small blocks need: by this, or by
/// this part of what it has.
constexpr Bytes kLeastGrowth = mebibytes(32);
constexpr std::uint64_t kGrowthShare = 4;

}  // namespace

Result<OwnAddresses> HostBacking::reserve(Bytes limit) {
  if (limit.count > kMostHostAddresses / kFewestHostTimes)
    return Error{Code::kInvalidArgument, "an allocator can have " +
                                             to_string(Bytes{kMostHostAddresses / kFewestHostTimes}) +
                                             " at most, not " + to_string(limit) + ": give it a limit"};
  for (std::uint64_t size = std::min(std::bit_ceil(limit.count * kHostTimes), kMostHostAddresses);;
       size /= 2) {
    auto addresses = OwnAddresses::reserve(size);
    if (addresses) return addresses;
    if (size / 2 < kFewestHostTimes * limit.count)
      return addresses.error().in("host memory of " + to_string(limit) +
                                  " needs twice as many addresses (ulimit -v)");
  }
}

Result<std::unique_ptr<HostBacking>> HostBacking::open(std::shared_ptr<Connection> connection,
                                                       const BorrowerOptions& options, bool is_pageable) {
  const cuda::Driver* driver = nullptr;
  if (!is_pageable) {
    auto opened = connection->open_driver();
    if (!opened)
      return opened.error().in(
          "pinned host memory needs the driver; to do without, open it with pinned=False (Python) or "
          "pageable "
          "(C and C++)");
    driver = *opened;
  }
  auto opened = Borrower::open(*connection, options);
  if (!opened) return opened.error();
  auto addresses = reserve(opened->limit);
  if (!addresses) {
    close(*connection, opened->id);
    return addresses.error();
  }
  return std::unique_ptr<HostBacking>(
      new HostBacking(std::move(connection), std::move(*opened), std::move(*addresses), driver));
}

HostBacking::HostBacking(std::shared_ptr<Connection> connection, Opened opened, OwnAddresses addresses,
                         const cuda::Driver* driver)
    : Borrower(std::move(connection), std::move(opened), Bytes{addresses.size()}),
      addresses_(std::move(addresses)),
      properties_{reinterpret_cast<Address>(addresses_.base()),
                  {addresses_.size()},
                  granularity(),
                  limit(),
                  device().uuid,
                  -1},
      pins_(driver) {}

HostBacking::~HostBacking() {
  Leases gone;
  {
    const MutexLock lock(mutex_);
    unmap_locked(properties_.base, properties_.addresses);
    for (const auto& [lease, held] : extents_) gone.push_back(lease);
    gone = let_go(gone);
  }
  end(std::move(gone), true);
}

Result<std::vector<Extent>, GrowError> HostBacking::obtain(const Request& request) {
  {
    const MutexLock lock(mutex_);
    arrived_.clear();
  }
  const Bytes min_bytes = std::max(request.min_bytes, granularity());
  const Bytes share = Bytes{committed().count / kGrowthShare}.rounded_down(granularity());
  const Bytes room = limit().minus(committed()).rounded_down(granularity());
  const Bytes many = std::min(std::max(kLeastGrowth, share), room);
  auto grown = grow_by(
      *this, {std::max({request.bytes, min_bytes, many}), min_bytes, {}, request.taken, request.is_probe},
      {request.wait, {}, request.stop});
  if (!grown) return grown.error();
  const MutexLock lock(mutex_);
  return std::exchange(arrived_, {});
}

Result<void> HostBacking::take(Portion portion, const std::function<Result<void>()>& rest) {
  if (auto done = rest(); !done) return done;
  const MutexLock lock(mutex_);
  Bytes more;
  for (std::size_t i = 0; i < portion.extents.size(); ++i) {
    const auto [lease, size] = portion.extents[i];
    extents_[lease] = {std::move(portion.files[i]), size};
    arrived_.push_back({lease, size});
    more += size;
  }
  figures().set_committed((committed() + more).count);
  return {};
}

Result<void> HostBacking::map(Address at, std::span<const Extent> extents) {
  const MutexLock lock(mutex_);
  Address next = at;
  for (const Extent& extent : extents) {
    const auto found = extents_.find(extent.id);
    Result<void> mapped = Error{Code::kInternal, "extent " + std::to_string(extent.id) + " is not there"};
    if (found != extents_.end()) mapped = map_one(pointer(next), found->second);
    if (!mapped) {
      unmap_locked(at, {next - at});
      return mapped;
    }
    ++found->second.mappings;
    mapped_.emplace(next, extent.id);
    next += extent.size.count;
  }
  return {};
}

Result<void> HostBacking::map_one(char* at, const Held& held) {
  if (auto mapped = map_host_file(at, held.file.get(), held.size); !mapped) return mapped;
  const std::size_t size = held.size.count;
  ::madvise(at, size, MADV_DONTFORK);
  auto done = fault_in(at, held.size);
  if (done) done = pins_.pin(at, held.size);
  if (!done) set_aside(at, size);
  return done;
}

Result<void> HostBacking::unmap(Address at, Bytes bytes) {
  const MutexLock lock(mutex_);
  unmap_locked(at, bytes);
  return {};
}

// The addresses stay reserved.
void HostBacking::unmap_locked(Address at, Bytes bytes) {
  if (bytes.is_zero()) return;
  pins_.unpin(pointer(at), bytes);
  set_aside(pointer(at), bytes.count);
  const auto first = mapped_.lower_bound(at), last = mapped_.lower_bound(at + bytes.count);
  for (auto it = first; it != last; ++it) --extents_.at(it->second).mappings;
  mapped_.erase(first, last);
}

HostBacking::Leases HostBacking::let_go(const Leases& leases) {
  Leases gone;
  Bytes less;
  for (const LeaseId lease : leases) {
    const auto found = extents_.find(lease);
    if (found == extents_.end() || found->second.mappings != 0) continue;
    less += found->second.size;
    gone.push_back(lease);
    extents_.erase(found);
  }
  figures().set_committed((committed() - less).count);
  return gone;
}

void HostBacking::give_back(std::vector<Extent> extents) {
  const std::shared_lock on_its_way(returning());
  Leases leases;
  for (const Extent& extent : extents) leases.push_back(extent.id);
  {
    const MutexLock lock(mutex_);
    leases = let_go(leases);
  }
  (void)return_leases(std::move(leases));  // kept as owed if it fails
}

Result<void> HostBacking::allow(int) { return {}; }  // pinned memory is of all devices

Result<HostBacking::HandleBytes> HostBacking::export_range(Address, Bytes, const ExportOptions&) {
  return Error{Code::kFailedPrecondition, "host memory has no handles"};
}

}  // namespace gpumem::client
