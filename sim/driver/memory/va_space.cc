#include "sim/driver/memory/va_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace gpumem::sim {
namespace {

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

/// The kernel refuses with ENOMEM when the process has too many mappings (vm.max_map_count).
CUresult refused() { return errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_OPERATING_SYSTEM; }

/// The one protection a host mapping can have: what the device that may do most may do.
int protection(const Access& access) {
  switch (*std::max_element(access.begin(), access.end())) {
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE: return PROT_READ | PROT_WRITE;
    case CU_MEM_ACCESS_FLAGS_PROT_READ: return PROT_READ;
    default: return PROT_NONE;
  }
}

Access changed(Access access, const std::vector<AccessChange>& changes) {
  for (const auto& change : changes) access[change.device] = static_cast<std::uint8_t>(change.flags);
  return access;
}

/// Takes exactly these addresses from the system, if they are free.
CUresult take(CUdeviceptr address, std::uint64_t size) {
  void* const start = ::mmap(pointer(address), size, PROT_NONE, kReserved | MAP_FIXED_NOREPLACE, -1, 0);
  if (start == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  if (start == pointer(address)) return CUDA_SUCCESS;
  ::munmap(start, size);  // a kernel that does not know the flag
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/// Takes addresses from the system that begin at a multiple of `alignment`; 0: there are none.
CUdeviceptr take_anywhere(std::uint64_t size, std::uint64_t alignment) {
  const std::uint64_t room = size + alignment;
  void* const start = ::mmap(nullptr, room, PROT_NONE, kReserved, -1, 0);
  if (start == MAP_FAILED) return 0;
  const auto raw = reinterpret_cast<CUdeviceptr>(start);
  const CUdeviceptr aligned = (raw + alignment - 1) / alignment * alignment;
  if (aligned > raw) ::munmap(start, aligned - raw);
  const CUdeviceptr end = aligned + size;
  if (raw + room > end) ::munmap(pointer(end), raw + room - end);
  return aligned;
}

template <class Map>
auto at_or_below(Map& map, CUdeviceptr address) {
  auto after = map.upper_bound(address);
  return after == map.begin() ? map.end() : std::prev(after);
}

}  // namespace

CUresult VaSpace::reserve(const Request& request, CUdeviceptr* out) {
  std::uint64_t room = 0;
  if (__builtin_add_overflow(request.size, request.alignment, &room)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUdeviceptr aligned = request.hint != 0 && take(request.hint, request.size) == CUDA_SUCCESS
                                  ? request.hint
                                  : take_anywhere(request.size, request.alignment);
  if (aligned == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  reservations_[aligned] = {request.size, request.owner, request.use};
  *out = aligned;
  return CUDA_SUCCESS;
}

CUresult VaSpace::unreserve(CUdeviceptr address, std::uint64_t size, std::uint64_t owner) {
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second.size != size || found->second.owner != owner ||
      !is_unmapped(address, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ::munmap(pointer(address), size);
  reservations_.erase(found);
  return CUDA_SUCCESS;
}

CUresult VaSpace::map(CUdeviceptr address, std::uint64_t size, Extent& extent) {
  const auto range = at_or_below(reservations_, address);
  const bool is_inside = range != reservations_.end() && size <= range->second.size &&
                         address - range->first <= range->second.size - size;
  if (!is_inside || size > extent.size || !is_unmapped(address, size)) return CUDA_ERROR_INVALID_VALUE;
  void* const start = ::mmap(pointer(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED, extent.fd.get(), 0);
  if (start == MAP_FAILED) return refused();
  ::madvise(start, size, MADV_DONTFORK);  // a forked child must not pin the extent
  mappings_[address] = {size, &extent, {}};
  ++extent.mappings;
  return CUDA_SUCCESS;
}

CUresult VaSpace::unmap(CUdeviceptr address, std::uint64_t size, std::vector<Extent*>& released) {
  const Run run = mappings_filling(address, size);
  if (!run.is_whole) return CUDA_ERROR_INVALID_VALUE;
  void* const start = ::mmap(pointer(address), size, PROT_NONE, kReserved | MAP_FIXED, -1, 0);
  if (start == MAP_FAILED) return refused();
  for (auto it = run.begin; it != run.end; ++it) {
    if (--it->second.extent->mappings == 0) released.push_back(it->second.extent);
  }
  mappings_.erase(run.begin, run.end);
  return CUDA_SUCCESS;
}

CUresult VaSpace::set_access(CUdeviceptr address, std::uint64_t size,
                             const std::vector<AccessChange>& changes) {
  const Run run = mappings_filling(address, size);
  if (!run.is_whole) return CUDA_ERROR_INVALID_VALUE;
  for (auto it = run.begin; it != run.end;) {  // one call for each stretch of equal protection
    const int wanted = protection(changed(it->second.access, changes));
    const CUdeviceptr start = it->first;
    CUdeviceptr end = start;
    for (; it != run.end && protection(changed(it->second.access, changes)) == wanted; ++it) {
      end = it->first + it->second.size;
    }
    if (::mprotect(pointer(start), end - start, wanted) != 0) return refused();
  }
  for (auto it = run.begin; it != run.end; ++it) it->second.access = changed(it->second.access, changes);
  return CUDA_SUCCESS;
}

CUresult VaSpace::check_access(CUdeviceptr address, std::uint64_t size, std::uint32_t device,
                               bool is_write) const {
  std::uint64_t left = size;
  for (CUdeviceptr at = address; left > 0;) {
    const Found found = find(at);
    if (found.mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::uint8_t needed = is_write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    if (found.mapping->access[device] < needed) return CUDA_ERROR_ILLEGAL_ADDRESS;
    const std::uint64_t here = std::min<std::uint64_t>(left, found.base + found.mapping->size - at);
    at += here;
    left -= here;
  }
  return CUDA_SUCCESS;
}

VaSpace::Found VaSpace::find(CUdeviceptr address) const {
  Found found;
  const auto range = at_or_below(reservations_, address);
  if (range == reservations_.end() || address - range->first >= range->second.size) return found;
  found.range_base = range->first;
  found.reservation = &range->second;
  const auto mapping = at_or_below(mappings_, address);
  if (mapping == mappings_.end() || address - mapping->first >= mapping->second.size) return found;
  found.base = mapping->first;
  found.mapping = &mapping->second;
  return found;
}

std::vector<CUdeviceptr> VaSpace::owned_by(std::uint64_t owner) const {
  std::vector<CUdeviceptr> found;
  for (const auto& [address, reservation] : reservations_) {
    if (reservation.owner == owner) found.push_back(address);
  }
  return found;
}

VaSpace::Run VaSpace::mappings_filling(CUdeviceptr address, std::uint64_t size) {
  const auto begin = mappings_.find(address);
  auto end = begin;
  std::uint64_t filled = 0;
  while (end != mappings_.end() && filled < size && end->first - address == filled) {
    filled += end->second.size;
    ++end;
  }
  return {begin, end, size > 0 && filled == size};
}

bool VaSpace::is_unmapped(CUdeviceptr address, std::uint64_t size) const {
  const auto before = at_or_below(mappings_, address);
  if (before != mappings_.end() && address - before->first < before->second.size) return false;
  const auto next = mappings_.lower_bound(address);
  return next == mappings_.end() || next->first - address >= size;
}

}  // namespace gpumem::sim
