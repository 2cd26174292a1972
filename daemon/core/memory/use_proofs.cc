#include "daemon/core/memory/use_proofs.h"

#include <algorithm>

namespace gpumem::core {

void UseProofs::look(Used used) {
  if (used) figure_ = signed_of(*used) - own_;
}

void UseProofs::begin(Used used) { look(used); }

bool UseProofs::end(const Job::Step::Proof& proof, bool has_destroyed, Used used) {
  const std::int64_t before = figure_;
  const std::int64_t size = signed_of(proof.size);
  look(used);
  if (has_destroyed) {
    if (!used) figure_ = before + size;  // all of it is still used, as far as is known
    if (figure_ - before < (size + 1) / 2) return true;
    unproved_[proof.lease] = {proof.size, figure_};
    return false;
  }
  const auto found = unproved_.find(proof.lease);
  if (found == unproved_.end()) return true;
  if (!used) return false;
  std::int64_t& peak = found->second.peak;
  peak = std::max(peak, figure_);
  if (figure_ > peak - size / 2) return false;
  prove(found);
  return true;
}

// The fall that has proved it proves no other lease. A fall from the present figure on may.
void UseProofs::prove(std::map<LeaseId, Unproved>::iterator found) {
  const std::int64_t fall =
      std::clamp<std::int64_t>(found->second.peak - figure_, 0, signed_of(found->second.size));
  unproved_.erase(found);
  for (auto& [lease, other] : unproved_) other.peak = std::max(other.peak - fall, figure_);
}

void UseProofs::note_outcome(const Job::Step::Proof& proof, bool proved, Used used) {
  look(used);
  const auto found = unproved_.find(proof.lease);
  if (proved && found != unproved_.end()) prove(found);
  if (proved || !used) return;
  Unproved& one = unproved_.try_emplace(proof.lease, Unproved{proof.size, figure_}).first->second;
  one.peak = std::max(one.peak, figure_);
}

}  // namespace gpumem::core
