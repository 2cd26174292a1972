#include "client/shim/memory/outside/outside.h"

namespace gpumem::shim {

void Outside::add(const Name& name, const Piece& piece) {
  std::optional<Piece> before;
  {
    const MutexLock lock(mutex_);
    const auto [place, is_new] = pieces_.emplace(name, piece);
    if (!is_new) before = std::exchange(place->second, piece);
  }
  if (before) before->memory->discharge_outside(before->bytes);
}

// The name may be another piece's by now.
void Outside::put_back(const Name& name, const Piece& piece) {
  {
    const MutexLock lock(mutex_);
    if (pieces_.emplace(name, piece).second) return;
  }
  piece.memory->discharge_outside(piece.bytes);
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

std::optional<Bytes> MeasuredCharge::begin(const Need& need) {
  const MutexLock lock(mutex_);
  const auto all = (need.kept + reserved_).plus(need.growth);
  if (!all) return std::nullopt;
  const Bytes missing = all->minus(charged_ + asked_);
  reserved_ += need.growth;
  asked_ += missing;
  return missing;
}

CUresult MeasuredCharge::charge(const char* call, Bytes growth, Bytes missing) {
  if (missing.is_zero()) return CUDA_SUCCESS;
  const CUresult charged = memory_.charge_outside(call, missing);
  const MutexLock lock(mutex_);
  asked_ -= missing;
  if (charged == CUDA_SUCCESS)
    charged_ += missing;
  else
    reserved_ -= growth;
  return charged;
}

void MeasuredCharge::unreserve(Bytes reserved) {
  const MutexLock lock(mutex_);
  reserved_ -= reserved;
}

bool MeasuredCharge::change_to(Bytes kept) {
  Bytes less;
  Bytes more;
  {
    const MutexLock lock(mutex_);
    const Bytes wanted = (kept + reserved_).minus(asked_);
    less = charged_.minus(wanted);
    more = wanted.minus(charged_);
    charged_ -= less;
  }
  if (!less.is_zero()) memory_.discharge_outside(less);
  if (more.is_zero()) return true;
  const Bytes charged = memory_.charge_outside_up_to(more);
  const MutexLock lock(mutex_);
  charged_ += charged;
  return charged == more;
}

}  // namespace gpumem::shim
