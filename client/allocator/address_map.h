#pragma once
#include <atomic>
#include <cstddef>

#include "client/allocator/span.h"

namespace gpumem::allocator {

/// Finds the span in use that an address belongs to. One pointer for each granule, in host memory that is
/// committed only where it was written.
/// Threads  find: any. The rest: one at a time.
class AddressMap {
 public:
  /// Errors  kResourceExhausted: no address space for the table.
  static Result<AddressMap> create(Address base, Bytes addresses);
  AddressMap() = default;
  AddressMap(AddressMap&& other) noexcept;
  AddressMap& operator=(AddressMap&& other) noexcept;
  ~AddressMap();

  /// The slab that contains `address`, else the span that begins in its granule, else null.
  Span* find(Address address) const {
    const std::uint64_t granule = (address - base_) / kGranule;
    return granule < count_ ? entries_[granule].load(std::memory_order_acquire) : nullptr;
  }
  /// Adds `span`, which is in use: a slab for all its granules, a block for the granule it begins in.
  void enter(Span& span) { set(span, &span); }
  void remove(Span& span) { set(span, nullptr); }
  /// Removes all entries. find() may run meanwhile.
  void clear();

 private:
  AddressMap(Address base, std::uint64_t count, std::atomic<Span*>* entries)
      : base_(base), count_(count), entries_(entries) {}
  void set(const Span& span, Span* to);

  Address base_ = 0;
  std::uint64_t count_ = 0;
  std::atomic<Span*>* entries_ = nullptr;
};

}  // namespace gpumem::allocator
