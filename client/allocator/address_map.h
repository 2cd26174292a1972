#pragma once
#include <sys/mman.h>

#include <atomic>
#include <new>

#include "client/allocator/span.h"

namespace gpumem::allocator {

/// Finds the span in use that an address belongs to. One pointer for each granule, in host memory that is
/// committed only where it was written.
/// Threads  find: any. The rest: one at a time.
class AddressMap {
 public:
  /// Throws std::bad_alloc: the process has no addresses for the table.
  AddressMap(Address base, Bytes addresses) : base_(base), count_(addresses.count / kGranule) {
    void* table = ::mmap(nullptr, count_ * sizeof(std::atomic<Span*>), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED) throw std::bad_alloc();
    entries_ = static_cast<std::atomic<Span*>*>(table);
  }
  AddressMap(const AddressMap&) = delete;
  AddressMap& operator=(const AddressMap&) = delete;
  ~AddressMap() { ::munmap(entries_, count_ * sizeof(std::atomic<Span*>)); }

  /// The slab that contains `address`, else the span that begins in its granule, else null.
  Span* find(Address address) const {
    const std::uint64_t granule = (address - base_) / kGranule;
    return granule < count_ ? entries_[granule].load(std::memory_order_acquire) : nullptr;
  }
  /// Adds `span`, which is in use: a slab for all its granules, a block for the granule it begins in.
  void enter(Span& span) { set(span, &span); }
  void remove(Span& span) { set(span, nullptr); }

 private:
  void set(const Span& span, Span* to) {
    const std::uint64_t first = (span.base - base_) / kGranule;
    const std::uint64_t granules = span.use == Span::Use::kSlab ? span.bytes / kGranule : 1;
    for (std::uint64_t i = first; i < first + granules; ++i) entries_[i].store(to, std::memory_order_release);
  }

  const Address base_;
  const std::uint64_t count_;
  std::atomic<Span*>* entries_ = nullptr;
};

}  // namespace gpumem::allocator
