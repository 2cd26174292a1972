#include "daemon/core/memory/pool.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "daemon/core/words/types.h"

namespace gpumem::core {
namespace {

// How many warm extents of each class serve a burst of grants without a driver call, before anybody has asked
// for any. The largest class is the rest of the pool.
constexpr std::array<std::size_t, SizeClasses::kCount> kStock{64, 16, 8, 4, 2, 0};
// No class takes more than this part of the pool without demand.
constexpr std::uint64_t kStockShare = 16;
// The sizes asked for within the last part of the pool this large are likely to be asked for next.
constexpr std::uint64_t kDemandShare = 4;
// The stock of one size has at most so many extents, whatever the demand: each costs a descriptor.
constexpr std::size_t kMostOfASize = 256;
// A size that is not a class is stocked once it was asked for this often.
constexpr std::size_t kFewestAsked = 2;
// Up to this class, memory that a request finds no extents for is made as one extent, unless it needs parts.
constexpr std::size_t kLargestAsOne = 3;
// One step merges at most so many groups, so that the driver is never busy for long.
constexpr std::size_t kMergeStep = 16;

}  // namespace

Pool::Pool(Bytes size, Bytes granularity, IdSource<ExtentId>& ids)
    : classes_(granularity), ids_(ids), demand_({size.count / kDemandShare}) {
  for (std::size_t i = 0; i < SizeClasses::kCount; ++i) {
    const Bytes one = classes_.size(i);
    least_[one] = std::min(kStock[i], static_cast<std::size_t>(size.count / kStockShare / one.count));
  }
}

std::size_t Pool::warm_count(Bytes size) const {
  const auto found = warm_.find(size);
  return found == warm_.end() ? 0 : found->second.size();
}

void Pool::add(Extent extent) {
  warm_[extent.size].push_back(extent.id);
  warm_bytes_ += extent.size;
}

// ---- Demand ----

// Large requests, and those of slices, are made of classes, so that parts of them can be returned.
bool Pool::is_made_as_one(Bytes bytes, Bytes largest) const {
  return largest == kOneExtent || (!largest.is_zero() && bytes <= classes_.size(kLargestAsOne));
}

Bytes Pool::stocked_for(Bytes bytes, Bytes largest) const {
  if (largest == kOneExtent) return bytes;
  return classes_.largest_within(largest.is_zero() ? bytes : std::min(bytes, largest));
}

void Pool::note_demand(Bytes bytes, Bytes largest) {
  const Bytes size = stocked_for(bytes, largest);
  if (size < classes_.largest()) demand_.note(size, bytes.count / size.count);
}

std::size_t Pool::goal(Bytes size) const {
  if (size >= classes_.largest()) return 0;
  const std::size_t most = std::min(kMostOfASize, demand_.window().count / size.count);
  const std::size_t asked = std::min(demand_.of(size), most);
  const auto least = least_.find(size);
  if (least != least_.end()) return std::max(asked, least->second);
  return asked < kFewestAsked ? 0 : asked;
}

std::size_t Pool::spare(Bytes size) const {
  const std::size_t count = warm_count(size);
  return count - std::min(count, classes_.has(size) ? low(size) : goal(size));
}

// ---- Selection ----

// Takes as many as possible of the largest size first. Since each class divides the next, this covers `bytes`
// exactly whenever extents of classes can, and with the fewest extents.
template <class Usable>
Pool::Selection Pool::select(Bytes bytes, Usable usable) const {
  Selection selection{.counts = {}, .rest = bytes, .extents = 0};
  for (const auto& [size, extents] : warm_) {
    const std::size_t fit = selection.rest.count / size.count;
    const std::size_t count = std::min(usable(size, extents.size()), fit);
    if (count == 0) continue;
    selection.counts.emplace_back(size, count);
    selection.extents += count;
    selection.rest -= {size.count * count};
  }
  return selection;
}

Pool::Selection Pool::select_classes(Bytes bytes) const {
  return select(bytes, [this](Bytes size, std::size_t there) { return classes_.has(size) ? there : 0; });
}

Pool::Selection Pool::select_all(Bytes bytes) const {
  return select(bytes, [](Bytes, std::size_t there) { return there; });
}

// Tries the classes from the preferred one upwards, so that the smallest extents that serve are taken. If no
// class serves, the preference is dropped: it costs neither a driver call nor small extents that others need.
Pool::Selection Pool::select(Bytes bytes, std::size_t most, Bytes largest) const {
  for (std::size_t i = 0; !largest.is_zero() && i + 1 < SizeClasses::kCount; ++i) {
    if (classes_.size(i + 1) <= largest) continue;
    Selection preferred = select(bytes, [this, i](Bytes size, std::size_t) {
      return size <= classes_.size(i) && classes_.has(size) ? spare(size) : 0;
    });
    if (preferred.rest.is_zero() && preferred.extents <= most) return preferred;
  }
  Selection of_classes = select_classes(bytes);
  return of_classes.rest.is_zero() ? of_classes : select_all(bytes);
}

std::optional<std::vector<Extent>> Pool::take(Bytes bytes, std::size_t most, Bytes largest) {
  if (largest == kOneExtent) return warm_count(bytes) != 0 ? std::optional(take({{bytes, 1}})) : std::nullopt;
  const Selection selection = select(bytes, most, largest);
  if (!selection.rest.is_zero() || selection.extents > most) return std::nullopt;
  return take(selection.counts);
}

std::vector<Extent> Pool::take(const Counts& counts) {
  std::vector<Extent> taken;
  for (const auto& [size, count] : counts) {
    for (std::size_t n = 0; n < count; ++n) taken.push_back({pop(size), size});
  }
  return taken;
}

// ---- Making extents ----

std::optional<Making> Pool::make(Bytes bytes, std::size_t most, Bytes largest, std::size_t room) {
  if (largest == kOneExtent) {
    const auto donor = bytes < classes_.largest() ? larger_than(bytes) : std::nullopt;
    return donor ? make_one_of(*donor, bytes, room) : merge_into_one(bytes, room);
  }
  auto made = complete(select_classes(bytes), bytes, most, largest, room);
  return made ? std::move(made) : complete(select_all(bytes), bytes, most, largest, room);
}

std::optional<Bytes> Pool::larger_than(Bytes bytes, const Counts& selected) const {
  std::optional<Bytes> larger;
  for (const auto& [size, extents] : warm_) {
    if (size <= bytes) break;
    const auto used = std::ranges::find(selected, size, &Counts::value_type::first);
    const std::size_t left = extents.size() - (used == selected.end() ? 0 : used->second);
    if (left == 0) continue;
    if (spare(size) != 0 || !larger || spare(*larger) == 0) larger = size;
  }
  return larger;
}

// Makes the missing stock of this size in the same driver job.
std::optional<Making> Pool::make_one_of(Bytes donor, Bytes bytes, std::size_t room) {
  const std::vector<Bytes> rest = stock_up(bytes, donor - bytes, room);
  if (rest.size() > room) return std::nullopt;
  return Making{.taken = {}, .destroy = {pop(donor)}, .wanted = named({bytes}), .rest = named(rest)};
}

std::optional<Making> Pool::merge_into_one(Bytes bytes, std::size_t room) {
  const Selection selection = select(bytes, warm_bytes_.count, {});
  Making made;
  if (!selection.rest.is_zero()) {
    const auto donor = larger_than(selection.rest, selection.counts);
    if (!donor) return std::nullopt;
    const std::vector<Bytes> rest = classes_.split(*donor - selection.rest);
    if (rest.size() > room + selection.extents) return std::nullopt;
    made.destroy.push_back(pop(*donor));
    made.rest = named(rest);
  }
  for (const auto& [size, count] : selection.counts) pop(size, count, made.destroy);
  made.wanted = named({bytes});
  return made;
}

// Takes the selection, breaks the missing rest out of a larger extent, and merges the smallest extents if
// there are too many.
std::optional<Making> Pool::complete(Selection selection, Bytes bytes, std::size_t most, Bytes largest,
                                     std::size_t room) {
  Making made;
  std::vector<Bytes> wanted;
  if (!selection.rest.is_zero()) {
    const auto donor = larger_than(selection.rest, selection.counts);
    if (!donor) return std::nullopt;
    wanted = is_made_as_one(bytes, largest) ? std::vector{selection.rest} : classes_.split(selection.rest);
    if (wanted.size() > room + 1) return std::nullopt;
    const std::size_t left = room + 1 - wanted.size();
    const std::vector<Bytes> rest = stock_up(stocked_for(bytes, largest), *donor - selection.rest, left);
    if (rest.size() > left) return std::nullopt;
    made.destroy.push_back(pop(*donor));
    made.rest = named(rest);
  }
  Bytes merged;
  while (selection.extents + wanted.size() + classes_.split(merged).size() > most &&
         !selection.counts.empty()) {
    const auto [size, count] = selection.counts.back();
    pop(size, count, made.destroy);
    merged += {size.count * count};
    selection.extents -= count;
    selection.counts.pop_back();
  }
  std::ranges::copy(classes_.split(merged), std::back_inserter(wanted));
  made.taken = take(selection.counts);
  made.wanted = named(wanted);
  return made;
}

// ---- The stock ----

std::optional<Reshape> Pool::tidy(std::size_t room) {
  for (std::size_t i = 0; i + 1 < SizeClasses::kCount; ++i) {
    const Bytes size = classes_.size(i);
    if (auto reshape = replenish(size, room)) return reshape;
    const std::size_t count = warm_count(size);
    if (count >= 2 * (goal(size) + SizeClasses::kStep))
      return merge(i, std::min((count - goal(size)) / SizeClasses::kStep, kMergeStep));
  }
  for (const Bytes size : demand_.sizes()) {
    if (auto reshape = replenish(size, room)) return reshape;
  }
  for (const auto& [size, extents] : warm_) {
    if (auto reshape = reduce(size, room)) return reshape;
  }
  return std::nullopt;
}

// Breaks the smallest larger extent that can be spared.
std::optional<Reshape> Pool::replenish(Bytes size, std::size_t room) {
  if (warm_count(size) >= low(size)) return std::nullopt;
  const auto donor = larger_than(size);
  if (!donor || spare(*donor) == 0) return std::nullopt;
  const std::vector<Bytes> parts = stock_up(size, *donor, room + 1);
  if (parts.size() > room + 1 || std::ranges::find(parts, size) == parts.end()) return std::nullopt;
  return Reshape{.destroy = {pop(*donor)}, .create = named(parts)};
}

// Turns surplus extents of a size that is not a class into extents of classes.
std::optional<Reshape> Pool::reduce(Bytes size, std::size_t room) {
  const std::size_t good = goal(size);
  const std::size_t count = warm_count(size);
  if (classes_.has(size) || count <= good + good / 2) return std::nullopt;
  const std::size_t surplus = std::min(count - good, kMergeStep);
  if (classes_.split({surplus * size.count}).size() > room + surplus) return std::nullopt;
  Reshape reshape;
  pop(size, surplus, reshape.destroy);
  reshape.create = plan({surplus * size.count});
  return reshape;
}

Reshape Pool::merge(std::size_t index, std::size_t groups) {
  Reshape reshape;
  pop(classes_.size(index), groups * SizeClasses::kStep, reshape.destroy);
  reshape.create = named(std::vector<Bytes>(groups, classes_.size(index + 1)));
  return reshape;
}

std::vector<Bytes> Pool::stock_up(Bytes size, Bytes bytes, std::size_t room) const {
  const std::size_t good = goal(size);
  const std::size_t lacking = good - std::min(good, warm_count(size));
  std::vector<Bytes> sizes(std::min(lacking, static_cast<std::size_t>(bytes.count / size.count)), size);
  std::ranges::copy(classes_.split({bytes.count - sizes.size() * size.count}), std::back_inserter(sizes));
  return sizes.size() <= room ? sizes : classes_.split(bytes);
}

std::vector<Extent> Pool::plan(Bytes bytes) { return named(classes_.split(bytes)); }

std::vector<Bytes> Pool::merged(Bytes size, std::size_t count) const {
  const auto least = least_.find(size);
  if (least == least_.end()) return std::vector<Bytes>(count, size);
  const std::size_t lacking = least->second - std::min(least->second, warm_count(size));
  std::vector<Bytes> sizes(std::min(lacking, count), size);
  std::ranges::copy(classes_.split({size.count * (count - sizes.size())}), std::back_inserter(sizes));
  return sizes;
}

std::vector<Extent> Pool::named(const std::vector<Bytes>& sizes) {
  std::vector<Extent> extents;
  extents.reserve(sizes.size());
  for (const Bytes size : sizes) extents.push_back({ids_.next(), size});
  return extents;
}

ExtentId Pool::pop(Bytes size) {
  const auto found = warm_.find(size);
  GPUMEM_CHECK(found != warm_.end(), "an extent to take");
  const ExtentId id = found->second.back();
  found->second.pop_back();
  if (found->second.empty()) warm_.erase(found);
  warm_bytes_ -= size;
  return id;
}

void Pool::pop(Bytes size, std::size_t count, std::vector<ExtentId>& into) {
  for (std::size_t n = 0; n < count; ++n) into.push_back(pop(size));
}

}  // namespace gpumem::core
