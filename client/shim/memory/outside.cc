#include "client/shim/memory/outside.h"

namespace gpumem::shim {

void Outside::add(CUdeviceptr at, const Piece& piece) {
  const MutexLock lock(mutex_);
  pieces_.insert_or_assign(at, piece);
}

std::optional<Outside::Piece> Outside::take(CUdeviceptr at) {
  const MutexLock lock(mutex_);
  const auto found = pieces_.extract(at);
  if (found.empty()) return std::nullopt;
  return found.mapped();
}

void Outside::ended(CUcontext context) {
  std::vector<Piece> gone;
  {
    const MutexLock lock(mutex_);
    for (auto it = pieces_.begin(); it != pieces_.end();) {
      const bool ends = it->second.context == context;
      if (ends) gone.push_back(it->second);
      it = ends ? pieces_.erase(it) : std::next(it);
    }
  }
  for (const Piece& piece : gone) piece.memory->discharge_outside(piece.bytes);
}

}  // namespace gpumem::shim
