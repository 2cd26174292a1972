#pragma once
#include <memory>

#include "client/allocator/engine.h"
#include "gpumem/allocator.h"

namespace gpumem {

/// Gives the C API and the adapters access to the engine of an Allocator.
struct AllocatorAccess {
  /// Null if the allocator was moved from. The engine keeps its memory while a copy of the pointer exists. In
  /// a forked child its end does nothing.
  static const std::shared_ptr<allocator::Engine>& engine(const Allocator& allocator) {
    return allocator.engine_;
  }
};

}  // namespace gpumem
