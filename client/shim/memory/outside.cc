#include "client/shim/memory/outside.h"

namespace gpumem::shim {

void Outside::add(const Name& name, const Piece& piece) {
  const MutexLock lock(mutex_);
  pieces_.insert_or_assign(name, piece);
}

void Outside::use_again(const Name& name) {
  const MutexLock lock(mutex_);
  if (const auto found = pieces_.find(name); found != pieces_.end()) ++found->second.uses;
}

std::optional<Outside::Piece> Outside::take(const Name& name) {
  const MutexLock lock(mutex_);
  const auto found = pieces_.extract(name);
  if (found.empty()) return std::nullopt;
  return found.mapped();
}

void Outside::ended(CUcontext context) {
  std::vector<Piece> gone;
  {
    const MutexLock lock(mutex_);
    for (auto it = pieces_.begin(); it != pieces_.end();) {
      const bool ends = it->second.context != nullptr && it->second.context == context;
      if (ends) gone.push_back(it->second);
      it = ends ? pieces_.erase(it) : std::next(it);
    }
  }
  for (const Piece& piece : gone) piece.memory->discharge_outside(piece.bytes);
}

void Outside::move(CUcontext from, CUcontext to) {
  const MutexLock lock(mutex_);
  for (auto& [name, piece] : pieces_)
    if (piece.context == from) piece.context = to;
}

}  // namespace gpumem::shim
