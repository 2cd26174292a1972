#include "client/allocator/address_map.h"

#include <sys/mman.h>

#include <cerrno>

namespace gpumem::allocator {

AddressMap::AddressMap(Address base, Bytes addresses) : base_(base), count_(addresses.count / kGranule) {
  void* table = ::mmap(nullptr, count_ * sizeof(std::atomic<Span*>), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table != MAP_FAILED) {
    entries_ = static_cast<std::atomic<Span*>*>(table);
    return;
  }
  error_ =
      errno_error(errno, "no addresses for the table of the " + to_string(addresses) + " of an allocator");
  count_ = 0;
}

void AddressMap::clear() {
  if (entries_ != nullptr) ::madvise(entries_, count_ * sizeof(std::atomic<Span*>), MADV_DONTNEED);
}

AddressMap::~AddressMap() {
  if (entries_ != nullptr) ::munmap(entries_, count_ * sizeof(std::atomic<Span*>));
}

void AddressMap::set(const Span& span, Span* to) {
  const std::uint64_t first = (span.base - base_) / kGranule;
  const std::uint64_t granules = span.use == Span::Use::kSlab ? span.bytes / kGranule : 1;
  for (std::uint64_t i = first; i < first + granules; ++i) entries_[i].store(to, std::memory_order_release);
}

}  // namespace gpumem::allocator
