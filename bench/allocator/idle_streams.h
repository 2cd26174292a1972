#pragma once
#include <cstdint>
#include <optional>

#include "client/allocator/no_streams.h"

namespace gpumem::bench {

/// Streams that exist for ever and have no work. Their calls cost nothing, so the engine's own time remains.
/// docs/allocator.md has the driver calls that a program pays besides.
class IdleStreams final : public allocator::NoStreams {
 public:
  Result<Id> meet(StreamHandle stream) override { return *id_of(stream); }
  std::optional<Id> id_of(StreamHandle stream) override {
    return Id{reinterpret_cast<std::uintptr_t>(stream)};
  }
  bool renew(Mark, StreamHandle) override { return true; }
};

}  // namespace gpumem::bench
