#include "sim/driver/memory/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>

namespace gpumem::sim {
namespace {

// Takes the pages that hold these bytes, as a driver does that pins them. False: there are none. A kernel
// before 5.14 has no such advice: the pages come when they are touched.
bool populate(std::uint64_t start, std::uint64_t size, int advice) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t first = start / page * page;
  return ::madvise(reinterpret_cast<void*>(first),  // NOLINT(performance-no-int-to-ptr)
                   start + size - first, advice) == 0 ||
         errno == EINVAL;
}

}  // namespace

void* HostMemory::allocate(std::uint64_t size, std::uint64_t context, unsigned flags) {
  void* const start = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<std::uint64_t>(start);
  if (!populate(address, size, MADV_POPULATE_WRITE)) {
    ::munmap(start, size);
    return nullptr;
  }
  blocks_[address] = {address, size, context, flags, false, ++last_id_};
  return start;
}

bool HostMemory::free(std::uint64_t start) {
  const auto found = blocks_.find(start);
  if (found == blocks_.end() || found->second.is_registered) return false;
  erase(found);
  return true;
}

CUresult HostMemory::add_registered(std::uint64_t start, std::uint64_t size, std::uint64_t context,
                                    unsigned flags) {
  if (overlaps(start, size)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  const int advice = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0 ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
  const bool has_pages = (flags & CU_MEMHOSTREGISTER_IOMEMORY) == 0;
  if (has_pages && !populate(start, size, advice)) return CUDA_ERROR_INVALID_VALUE;
  blocks_[start] = {start, size, context, flags, true, ++last_id_};
  return CUDA_SUCCESS;
}

bool HostMemory::remove_registered(std::uint64_t start) {
  const auto found = blocks_.find(start);
  if (found == blocks_.end() || !found->second.is_registered) return false;
  erase(found);
  return true;
}

const HostMemory::Block* HostMemory::find(std::uint64_t address, std::uint64_t size) const {
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  const Block& block = std::prev(after)->second;
  const std::uint64_t offset = address - block.start;
  return offset < block.size && size <= block.size - offset ? &block : nullptr;
}

void HostMemory::free_all_of(std::uint64_t context) {
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto next = std::next(block);
    if (block->second.context == context) erase(block);
    block = next;
  }
}

bool HostMemory::overlaps(std::uint64_t start, std::uint64_t size) const {
  if (find(start) != nullptr) return true;
  const auto next = blocks_.lower_bound(start);
  return next != blocks_.end() && next->first - start < size;
}

void HostMemory::erase(std::map<std::uint64_t, Block>::iterator block) {
  if (!block->second.is_registered) {
    ::munmap(reinterpret_cast<void*>(block->first), block->second.size);  // NOLINT(performance-no-int-to-ptr)
  }
  blocks_.erase(block);
}

}  // namespace gpumem::sim
