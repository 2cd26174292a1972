#pragma once
#include <cstdint>
#include <optional>

#include "client/allocator/backing.h"

namespace gpumem::bench {

/// Streams that exist for ever and have no work, and whose calls cost nothing: what remains is the engine's
/// own time. docs/allocator.md has the driver calls that a program pays besides.
class IdleStreams final : public allocator::StreamPort {
 public:
  Result<Id> meet(StreamHandle stream) override { return *id_of(stream); }
  Result<Mark> mark(StreamHandle) override { return Mark{1}; }
  std::optional<Id> id_of(StreamHandle stream) override {
    return Id{reinterpret_cast<std::uintptr_t>(stream)};
  }
  bool renew(Mark, StreamHandle) override { return true; }
  Progress ask(Mark) override { return Progress::kReached; }
  Result<void> order(StreamHandle, Mark) override { return {}; }
  Result<void> wait(Mark) override { return {}; }
  void drop(Mark) override {}
  void forget(StreamHandle, Id) override {}
  Result<void> wait_for_contexts() override { return {}; }
};

}  // namespace gpumem::bench
