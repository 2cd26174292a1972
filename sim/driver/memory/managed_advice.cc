#include "sim/driver/memory/managed_advice.h"

#include <iterator>

namespace gpumem::sim {
namespace {

constexpr std::uint64_t kPage = 4096;

std::uint64_t page_start(std::uint64_t address) { return address / kPage * kPage; }
std::uint64_t page_end(std::uint64_t address) { return page_start(address + kPage - 1); }

}  // namespace

/// Makes a piece begin at `address`.
ManagedAdvice::Pieces::iterator ManagedAdvice::split(std::uint64_t address) {
  const auto after = pieces_.upper_bound(address);
  if (after == pieces_.begin()) return pieces_.emplace_hint(after, address, Advice{});
  const auto around = std::prev(after);
  return around->first == address ? around : pieces_.emplace_hint(after, address, around->second);
}

void ManagedAdvice::change(std::uint64_t start, std::uint64_t size, const std::function<void(Advice&)>& act) {
  const auto end = split(page_end(start + size));
  for (auto piece = split(page_start(start)); piece != end; ++piece) act(piece->second);
}

void ManagedAdvice::for_each(std::uint64_t start, std::uint64_t size,
                             const std::function<void(const Advice&)>& visit) const {
  auto piece = pieces_.upper_bound(page_start(start));
  visit(piece == pieces_.begin() ? Advice{} : std::prev(piece)->second);
  for (; piece != pieces_.end() && piece->first < start + size; ++piece) visit(piece->second);
}

void ManagedAdvice::forget(std::uint64_t start, std::uint64_t size) {
  if (pieces_.empty()) return;
  const auto end = split(page_end(start + size));
  const auto begin = split(page_start(start));
  begin->second = {};
  pieces_.erase(std::next(begin), end);
  // What says the same as the piece before says nothing.
  const auto same = [this](Pieces::iterator piece) {
    return piece->second == (piece == pieces_.begin() ? Advice{} : std::prev(piece)->second);
  };
  if (same(end)) pieces_.erase(end);
  if (same(begin)) pieces_.erase(begin);
}

}  // namespace gpumem::sim
