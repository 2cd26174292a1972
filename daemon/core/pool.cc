#include "daemon/core/pool.h"

#include <algorithm>

#include "base/check.h"

namespace gpumem::core {
namespace {

// How many warm extents of each size serve a burst of grants without a driver call. The largest size is
// the rest of the pool.
constexpr std::array<std::size_t, SizeClasses::kCount> kStock{64, 16, 8, 4, 2, 0};
// No size's stock takes more than this part of the pool.
constexpr std::uint64_t kStockShare = 16;
// At most so many groups are merged in one step, so that the driver is never busy for long.
constexpr std::size_t kMergeStep = 16;

}  // namespace

Pool::Pool(Bytes size, Bytes granularity, IdSource<ExtentId>& ids) : classes_(granularity), ids_(ids) {
  for (std::size_t i = 0; i < SizeClasses::kCount; ++i) {
    const std::uint64_t share = size.count / kStockShare / classes_.size(i).count;
    aims_[i] = std::min(kStock[i], static_cast<std::size_t>(share));
  }
}

std::size_t Pool::warm_count() const {
  std::size_t count = 0;
  for (const auto& extents : warm_) count += extents.size();
  return count;
}

void Pool::add(Extent extent) {
  warm_[classes_.index_of(extent.size)].push_back(extent.id);
  warm_bytes_ += extent.size;
}

Pool::Stock Pool::all() const {
  Stock stock{};
  for (std::size_t i = 0; i < SizeClasses::kCount; ++i) stock[i] = warm_[i].size();
  return stock;
}

Pool::Stock Pool::spare_up_to(std::size_t index) const {
  Stock stock{};
  for (std::size_t i = 0; i <= index; ++i) stock[i] = warm_[i].size() - std::min(warm_[i].size(), low(i));
  return stock;
}

// As many as possible of the largest first: as each size divides the next, this covers `bytes` exactly
// whenever anything does, and with the fewest extents.
Pool::Selection Pool::select(Bytes bytes, const Stock& stock) const {
  Selection selection{.counts = {}, .rest = bytes, .extents = 0};
  for (std::size_t i = SizeClasses::kCount; i-- > 0;) {
    const Bytes size = classes_.size(i);
    const std::size_t count = std::min(stock[i], static_cast<std::size_t>(selection.rest.count / size.count));
    selection.counts[i] = count;
    selection.extents += count;
    selection.rest -= {size.count * count};
  }
  return selection;
}

// From the preferred size on up: what makes do with the smallest that serve. If none does, the preference
// costs nothing, neither a driver call nor the small ones that others will need next.
Pool::Selection Pool::select(Bytes bytes, std::size_t most, Bytes largest) const {
  for (std::size_t i = 0; !largest.is_zero() && i + 1 < SizeClasses::kCount; ++i) {
    if (classes_.size(i + 1) <= largest) continue;
    Selection preferred = select(bytes, spare_up_to(i));
    if (preferred.rest.is_zero() && preferred.extents <= most) return preferred;
  }
  return select(bytes, all());
}

std::optional<std::vector<Extent>> Pool::take(Bytes bytes, std::size_t most, Bytes largest) {
  const Selection selection = select(bytes, most, largest);
  if (!selection.rest.is_zero() || selection.extents > most) return std::nullopt;
  std::vector<Extent> taken;
  taken.reserve(selection.extents);
  for (std::size_t i = SizeClasses::kCount; i-- > 0;) {
    for (std::size_t n = 0; n < selection.counts[i]; ++n) taken.push_back({pop(i), classes_.size(i)});
  }
  return taken;
}

std::optional<Reshape> Pool::reshape_for(Bytes bytes, std::size_t most) {
  const Selection selection = select(bytes, all());
  for (std::size_t i = 0; i < SizeClasses::kCount; ++i) {
    if (!selection.rest.is_zero()) {
      // Whatever was not selected is larger than the rest.
      if (warm_[i].size() == selection.counts[i]) continue;
      std::vector<Bytes> parts = classes_.split(selection.rest);
      std::ranges::copy(classes_.split(classes_.size(i) - selection.rest), std::back_inserter(parts));
      return break_one(i, std::move(parts));
    }
    if (selection.extents > most && i + 1 < SizeClasses::kCount &&
        selection.counts[i] >= SizeClasses::kStep) {
      return merge(i, selection.counts[i] / SizeClasses::kStep);
    }
  }
  return std::nullopt;
}

std::optional<Reshape> Pool::tidy() {
  for (std::size_t i = 0; i + 1 < SizeClasses::kCount; ++i) {
    const std::size_t count = warm_[i].size();
    if (count < low(i)) {
      if (auto reshape = replenish(i)) return reshape;
    }
    if (count >= 2 * (aims_[i] + SizeClasses::kStep)) {
      return merge(i, std::min((count - aims_[i]) / SizeClasses::kStep, kMergeStep));
    }
  }
  return std::nullopt;
}

// Breaks the smallest larger extent that can be spared into what is lacking of size `index` and a rest.
std::optional<Reshape> Pool::replenish(std::size_t index) {
  for (std::size_t donor = index + 1; donor < SizeClasses::kCount; ++donor) {
    if (warm_[donor].size() <= low(donor)) continue;
    const Bytes size = classes_.size(index);
    const std::size_t lacking = aims_[index] - warm_[index].size();
    const std::size_t fit = static_cast<std::size_t>(classes_.size(donor).count / size.count);
    std::vector<Bytes> parts(std::min(lacking, fit), size);
    const Bytes rest{classes_.size(donor).count - parts.size() * size.count};
    std::ranges::copy(classes_.split(rest), std::back_inserter(parts));
    return break_one(donor, std::move(parts));
  }
  return std::nullopt;
}

Reshape Pool::break_one(std::size_t index, std::vector<Bytes> into) {
  return {.destroy = {pop(index)}, .create = named(into)};
}

Reshape Pool::merge(std::size_t index, std::size_t groups) {
  Reshape reshape;
  for (std::size_t n = 0; n < groups * SizeClasses::kStep; ++n) reshape.destroy.push_back(pop(index));
  reshape.create = named(std::vector<Bytes>(groups, classes_.size(index + 1)));
  return reshape;
}

std::vector<Extent> Pool::plan(Bytes bytes) { return named(classes_.split(bytes)); }

std::vector<Extent> Pool::named(const std::vector<Bytes>& sizes) {
  std::vector<Extent> extents;
  extents.reserve(sizes.size());
  for (const Bytes size : sizes) extents.push_back({ids_.next(), size});
  return extents;
}

ExtentId Pool::pop(std::size_t index) {
  GPUMEM_CHECK(!warm_[index].empty(), "an extent to take");
  const ExtentId id = warm_[index].back();
  warm_[index].pop_back();
  warm_bytes_ -= classes_.size(index);
  return id;
}

}  // namespace gpumem::core
