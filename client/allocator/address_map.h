#pragma once
#include <atomic>
#include <cstddef>
#include <optional>

#include "client/allocator/span.h"

namespace gpumem::allocator {

/// Finds the span in use that an address belongs to. One pointer for each granule, in host memory that is
/// committed only where it was written.
/// Threads  find: any. The rest: one at a time.
class AddressMap {
 public:
  AddressMap(Address base, Bytes addresses);
  AddressMap(const AddressMap&) = delete;
  AddressMap& operator=(const AddressMap&) = delete;
  ~AddressMap();

  /// Why there is no table, so that nothing is found: no address space (kResourceExhausted).
  const std::optional<Error>& error() const { return error_; }

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
  void set(const Span& span, Span* to);

  const Address base_;
  std::uint64_t count_;
  std::atomic<Span*>* entries_ = nullptr;
  std::optional<Error> error_;
};

}  // namespace gpumem::allocator
