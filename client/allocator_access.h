#pragma once
#include <memory>

#include "client/allocator/engine.h"
#include "gpumem/allocator.h"

namespace gpumem {

/// What is behind an Allocator, for what else of the library stands on it: the C ABI and the adapters.
struct AllocatorAccess {
  /// Null: it has been moved from. Whoever keeps it keeps the memory; in a forked child its end does nothing.
  static const std::shared_ptr<allocator::Engine>& engine(const Allocator& allocator) {
    return allocator.engine_;
  }
};

}  // namespace gpumem
