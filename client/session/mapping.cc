#include "client/session/mapping.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "client/process/fork_guard.h"

namespace gpumem::client {
namespace {

char* pointer(cuda::Address at) { return reinterpret_cast<char*>(at); }

}  // namespace

Result<HostAddresses> HostAddresses::reserve(Bytes size, Bytes alignment) {
  const auto wanted = size.plus(alignment);
  char* const start = wanted ? set_aside(nullptr, wanted->count) : nullptr;
  if (start == nullptr) {
    return Error{Code::kResourceExhausted,
                 "no addresses for " + to_string(size) + " of host memory (ulimit -v)"};
  }
  const auto at = reinterpret_cast<cuda::Address>(start);
  const cuda::Address base = Bytes{at}.rounded_up(alignment)->count;
  if (base != at) ::munmap(start, base - at);
  if (base - at < alignment.count) ::munmap(pointer(base + size.count), alignment.count - (base - at));
  return HostAddresses(pointer(base), size);
}

HostAddresses::~HostAddresses() {
  if (base_ != nullptr) ::munmap(base_, size_.count);
}

Result<Addresses> Addresses::reserve(const SharedDevice& device, Bytes size, Bytes alignment) {
  if (device.has_files()) {
    auto reserved = HostAddresses::reserve(size, alignment);
    if (!reserved) return reserved.error();
    return Addresses(std::move(*reserved));
  }
  auto reserved = cuda::Reservation::create(*device.driver, size, alignment);
  if (!reserved) return reserved.error();
  return Addresses(std::move(*reserved));
}

Result<HostMapping> HostMapping::create(cuda::Address at, std::span<const Extent> extents,
                                        const Manner& manner) {
  HostMapping mapping(at);
  for (const Extent& extent : extents) {
    if (auto added = mapping.add(extent, manner); !added) return added.error();
  }
  if (auto pinned = mapping.pin(extents, manner); !pinned) return pinned.error();
  return mapping;
}

Result<void> HostMapping::add(const Extent& extent, const Manner& manner) {
  char* const at = pointer(end());
  if (auto mapped = map_host_file(at, extent.file, extent.size, manner.access); !mapped) return mapped;
  size_ += extent.size;
  return manner.is_new ? fault_in(at, extent.size) : Result<void>();
}

// Each by itself: truncate() unpins whole extents.
Result<void> HostMapping::pin(std::span<const Extent> extents, const Manner& manner) {
  if (manner.pinned == nullptr) return {};
  auto pins = std::make_unique<HostPins>(manner.pinned);
  cuda::Address at = at_;
  for (const Extent& extent : extents) {
    if (auto pinned = pins->pin(pointer(at), extent.size, manner.access); !pinned) {
      pins->unpin(pointer(at_), {at - at_});
      const bool has_context = pinned.error().code != Code::kFailedPrecondition;
      return has_context && manner.access == cuda::Access::kRead ? Result<void>() : pinned;
    }
    at += extent.size.count;
  }
  pins_ = std::move(pins);
  return {};
}

Result<void> HostMapping::truncate(cuda::Address from) {
  const Bytes less = Bytes{end()}.minus({from});
  if (less.is_zero()) return {};
  if (pins_) pins_->unpin(pointer(from), less);
  if (set_aside(pointer(from), less.count) == nullptr)
    return errno_error(errno, "host memory could not be unmapped");
  size_ -= less;
  return {};
}

Result<void> make_read_only(const SharedDevice& device, cuda::Address at, Bytes size) {
  if (!device.has_files())
    return cuda::set_access(*device.driver, at, size, device.ordinal(), cuda::Access::kRead);
  if (::mprotect(pointer(at), size.count, PROT_READ) == 0) return {};
  return errno_error(errno, "host memory could not be made readable only");
}

}  // namespace gpumem::client
