#pragma once
#include <optional>

#include "client/allocator/backing.h"

namespace gpumem::allocator {

/// The order of memory that has none: whoever frees a block says that nobody uses it any more, whatever
/// streams do. Host memory is such.
class NoStreams : public StreamPort {
 public:
  Result<Id> meet(StreamHandle) override { return Id{}; }
  Result<Mark> mark(StreamHandle) override { return Mark{1}; }
  std::optional<Id> id_of(StreamHandle) override { return std::nullopt; }
  bool renew(Mark, StreamHandle) override { return false; }
  Progress ask(Mark) override { return Progress::kReached; }
  Result<void> order(StreamHandle, Mark) override { return {}; }
  Result<void> wait(Mark) override { return {}; }
  void drop(Mark) override {}
  void forget(StreamHandle, Id) override {}
  Result<void> wait_for_contexts() override { return {}; }
};

}  // namespace gpumem::allocator
