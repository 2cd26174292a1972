#include "daemon/core/memory/use_proofs.h"

#include <algorithm>
#include <utility>

namespace gpumem::core {

void UseProofs::look(Used used) {
  if (used) note_figure(signed_of(*used) - own_);
}

// A fall that was seen once counts, whatever rises later. After a rise, a fall from there counts.
void UseProofs::note_figure(std::int64_t figure) {
  figure_ = figure;
  while (Unproved* const one = largest_fallen()) {
    one->has_fallen = true;
    note_fall(*one);
  }
  for (auto& [lease, one] : unproved_) one.peak = std::max(one.peak, figure_);
}

// Of several of one size, the last that was given back: whoever lets go late does so soon.
UseProofs::Unproved* UseProofs::largest_fallen() {
  Unproved* found = nullptr;
  for (auto& [lease, one] : unproved_) {
    const bool is_fallen = !one.has_fallen && figure_ <= one.peak - signed_of(one.size) / 2;
    if (is_fallen && (found == nullptr || found->size <= one.size)) found = &one;
  }
  return found;
}

void UseProofs::begin(Used used) { look(used); }

bool UseProofs::end(const Job::Step::Proof& proof, bool has_destroyed, Used used) {
  const std::int64_t before = figure_;
  const std::int64_t size = signed_of(proof.size);
  look(used);
  if (has_destroyed) {
    if (!used) note_figure(before + size);  // all of it is still used, as far as is known
    if (figure_ - before < (size + 1) / 2) return true;
    unproved_[proof.lease] = {proof.size, figure_};
    return false;
  }
  const auto found = unproved_.find(proof.lease);
  if (found == unproved_.end()) return true;
  if (!found->second.has_fallen) return false;
  unproved_.erase(found);
  return true;
}

// The fall that proves it proves no other lease. A fall from the present figure on may.
void UseProofs::note_fall(const Unproved& proved) {
  const std::int64_t fall = std::clamp<std::int64_t>(proved.peak - figure_, 0, signed_of(proved.size));
  for (auto& [lease, other] : unproved_) other.peak = std::max(other.peak - fall, figure_);
}

void UseProofs::note_outcome(const Job::Step::Proof& proof, bool proved, Used used) {
  look(used);
  const auto found = unproved_.find(proof.lease);
  if (proved && found != unproved_.end()) {
    if (!std::exchange(found->second.has_fallen, true)) note_fall(found->second);
    unproved_.erase(found);
  }
  if (proved || !used) return;
  unproved_.try_emplace(proof.lease, Unproved{proof.size, figure_});
}

}  // namespace gpumem::core
