#include "client/allocator/extent_heap.h"

#include <algorithm>
#include <utility>

namespace gpumem::allocator {
ExtentHeap::ExtentHeap(Backing& backing, Heap& heap)
    : backing_(backing),
      heap_(heap),
      unit_(backing.granularity().count),
      most_aliases_(backing.addresses().count / 4),
      space_(backing.base(), backing.addresses()) {}

Bytes ExtentHeap::returnable() const {
  Bytes sum = spare_bytes_;
  auto streams = heap_.streams();
  streams.push_back(kNoStream);
  for (const StreamIndex stream : streams) {
    for (const Span& span : heap_.long_spans_of(stream)) {
      sum += {space_.whole_within(span.base, span.end()).bytes()};
    }
  }
  return sum;
}

void ExtentHeap::add(std::vector<Extent> extents) {
  for (const Extent& extent : extents) spare_bytes_ += extent.size;
  spare_.insert(spare_.end(), extents.begin(), extents.end());
}

// ---- A free span of a size ----

ExtentHeap::Plan ExtentHeap::plan_span(std::uint64_t bytes, StreamIndex stream) const {
  const auto plan_for = [&](const Site& site) {
    if (site.maps == 0) return Plan{};
    Plan plan = choose_for(site.maps, site.gap.bytes(), stream, site.before, site.after);
    plan.at = site.at_end ? site.gap.to - plan.bytes : site.gap.from;
    const bool takes_after = site.after != nullptr && site.after->stream != kNoStream;
    plan.owner = takes_after ? site.after : site.before;
    return plan;
  };
  Plan best = plan_for(best_site(bytes, stream));
  if (best.missing == 0) return best;
  // The available extents may be too large for that gap.
  Plan wide = plan_for(site_of(space_.largest_gap(), bytes, stream));
  return wide.at != 0 && wide.missing < best.missing ? wide : best;
}

ExtentHeap::Plan ExtentHeap::plan_after(const Span& block, std::uint64_t bytes, StreamIndex stream) const {
  const Span* after = block.after;
  if (after != nullptr && (!after->is_free() || (after->stream != kNoStream && after->stream != stream))) {
    return {};
  }
  const std::uint64_t there = after != nullptr ? after->bytes : 0;
  const Address at = block.end() + there;
  Plan plan;
  plan.at = at;
  if (there >= bytes) return plan;
  const bool enclosed = after != nullptr && after->after != nullptr;
  const std::uint64_t outside = block.room_end != 0 ? block.room_end - at : space_.gap_at(at).bytes();
  const std::uint64_t most = enclosed ? 0 : outside;
  if (rounded_up(bytes - there, unit_) > most) return {};
  plan = choose_for(bytes - there, most, kNoStream, after);
  plan.at = at;
  plan.owner = after;
  return plan;
}

ExtentHeap::Plan ExtentHeap::plan_at(Address at, std::uint64_t bytes, std::uint64_t room) const {
  Plan plan = choose_for(bytes, room);
  plan.at = at;
  return plan;
}

Address ExtentHeap::reserve_room(std::uint64_t bytes) {
  const std::uint64_t kept = bytes + 2 * unit_;
  const AddressSpace::Range gap = space_.largest_gap();
  if (gap.bytes() < kept + unit_) return 0;
  const Address at = gap.to - kept;  // at the end: blocks without room grow from the front
  space_.reserve(at, kept);
  return at + unit_;
}

void ExtentHeap::release_room(Address from, Address end, Address to) {
  space_.release(from - unit_, unit_);
  space_.release(end, to + unit_ - end);
}

// If work of a stream may still use an extent or the adjacent free span, the new span belongs to that stream.
Result<void> ExtentHeap::make(Plan plan) {
  if (plan.sources.empty()) return {};
  const Span* owner = plan.owner;
  StreamIndex stream = owner != nullptr ? owner->stream : kNoStream;
  std::uint64_t epoch = owner != nullptr ? owner->epoch : 0;
  std::vector<Source> used;
  for (const Source& source : plan.sources) {
    moved_ += source.span != nullptr ? 1 : 0;
    if (!source.is_used()) continue;
    stream = source.span->stream;
    epoch = std::max(epoch, source.span->epoch);
    used.push_back(source);
  }
  std::erase_if(plan.sources, [](const Source& source) { return source.is_used(); });
  auto extents = gather(std::move(plan.sources));
  if (!extents) return extents.error();
  const auto gathered = static_cast<std::ptrdiff_t>(extents->size());
  for (const Source& source : used) extents->push_back(source.extent);
  if (auto mapped = backing_.map(plan.at, *extents); !mapped) {
    add({extents->begin(), extents->begin() + gathered});
    return mapped;
  }
  leave(std::move(used));
  space_.map(plan.at, *extents);
  heap_.add(plan.at, plan.bytes, stream, epoch);
  return {};
}

// From the highest address down, so that cutting a span does not change the start of its rest.
void ExtentHeap::leave(std::vector<Source> used) {
  std::ranges::sort(used, std::ranges::greater(), &Source::at);
  const Span* last = nullptr;
  for (const auto& [extent, span, at] : used) {
    const AddressSpace::Range range{at, at + extent.size.count};
    if (span != last || aliases_.back().range.from != range.to) {
      aliases_.push_back({{range.to, range.to}, {}, span->stream, span->epoch});
    }
    last = span;
    aliases_.back().range.from = at;
    aliases_.back().extents.push_back(extent);
    aliased_.insert(extent.id);
    alias_bytes_ += extent.size.count;
    heap_.cut(*span, range.from, range.to);
    space_.take_out(range);
  }
}

bool ExtentHeap::unmap_alias(const Alias& alias) {
  if (!backing_.unmap(alias.range.from, {alias.range.bytes()})) return false;
  space_.release(alias.range.from, alias.range.bytes());
  for (const Extent& extent : alias.extents) aliased_.erase(aliased_.find(extent.id));
  alias_bytes_ -= alias.range.bytes();
  return true;
}

// What the driver refuses to unmap is tried again at the next mark.
void ExtentHeap::settle(StreamIndex stream, std::uint64_t epoch) {
  std::erase_if(aliases_, [&](const Alias& alias) {
    return alias.stream == stream && alias.epoch < epoch && unmap_alias(alias);
  });
}

// ---- Sites: where to map ----

// Next to the free span on one side, or filling the gap to join both sides: whichever maps less.
ExtentHeap::Site ExtentHeap::site_of(const AddressSpace::Range& gap, std::uint64_t bytes,
                                     StreamIndex stream) const {
  const auto usable = [stream](Span* span) {
    const bool ours = span != nullptr && span->is_free() && !span->small &&
                      (span->stream == kNoStream || span->stream == stream);
    return ours ? span : nullptr;
  };
  Span* before = usable(heap_.ending_at(gap.from));
  Span* after = usable(heap_.beginning_at(gap.to));
  const std::uint64_t left = before != nullptr ? before->bytes : 0;
  const std::uint64_t right = after != nullptr ? after->bytes : 0;
  Site best;
  const auto consider = [&](const Site& site) {
    if (site.maps <= gap.bytes() && (best.maps == 0 || site.maps < best.maps)) best = site;
  };
  if (left + gap.bytes() + right >= bytes) consider({gap, gap.bytes(), before, after, false});
  if (left < bytes) consider({gap, rounded_up(bytes - left, unit_), before, nullptr, false});
  if (right < bytes) consider({gap, rounded_up(bytes - right, unit_), nullptr, after, true});
  return best;
}

// The site where least must be mapped. Among equals the widest gap, which leaves space to grow.
ExtentHeap::Site ExtentHeap::best_site(std::uint64_t bytes, StreamIndex stream) const {
  Site best;
  for (const auto& gap : space_.gaps()) {
    const Site site = site_of(gap, bytes, stream);
    if (site.maps == 0) continue;
    const bool wider = site.maps == best.maps && site.gap.bytes() > best.gap.bytes();
    if (best.maps == 0 || site.maps < best.maps || wider) best = site;
  }
  return best;
}

// ---- Sources: which extents to map ----

// An extent that no work uses, but that has an alias, stays: its next mapping, or its next owner, must not
// see the alias.
std::vector<ExtentHeap::Source> ExtentHeap::sources(StreamIndex stream, const Span* excluded,
                                                    const Span* also_excluded) const {
  std::vector<Source> found;
  if (stream == kNoStream) {
    for (std::size_t i = 0; i < spare_.size(); ++i) found.push_back({spare_[i], nullptr, i});
  }
  for (const Span& span : heap_.long_spans_of(stream)) {
    if (&span == excluded || &span == also_excluded) continue;
    const AddressSpace::Range range = space_.whole_within(span.base, span.end());
    Address at = range.from;
    for (const Extent& extent : space_.extents_in(range)) {
      if (stream != kNoStream || !aliased_.contains(extent.id)) {
        found.push_back({extent, const_cast<Span*>(&span), at});
      }
      at += extent.size.count;
    }
  }
  return found;
}

// The largest that fit, then the smallest that covers the rest. Each size divides the next, so this finds an
// exact sum whenever there is one.
ExtentHeap::Plan ExtentHeap::choose(std::vector<Source> sources, std::uint64_t bytes, std::uint64_t most) {
  std::ranges::stable_sort(sources,
                           [](const Source& a, const Source& b) { return a.extent.size > b.extent.size; });
  Plan plan;
  std::optional<Source> enough;
  for (const Source& source : sources) {
    if (plan.bytes >= bytes) break;
    if (source.extent.size.count > bytes - plan.bytes) {
      enough = source;
      continue;
    }
    plan.sources.push_back(source);
    plan.bytes += source.extent.size.count;
  }
  if (plan.bytes < bytes && enough && enough->extent.size.count <= most - plan.bytes) {
    plan.sources.push_back(*enough);
    plan.bytes += enough->extent.size.count;
  }
  plan.missing = bytes - std::min(bytes, plan.bytes);
  return plan;
}

ExtentHeap::Plan ExtentHeap::choose_for(std::uint64_t bytes, std::uint64_t most, StreamIndex stream,
                                        const Span* excluded, const Span* also_excluded) const {
  std::vector<Source> all = sources(kNoStream, excluded, also_excluded);
  Plan plan = choose(all, rounded_up(bytes, unit_), most);
  if (plan.missing == 0 || stream == kNoStream || alias_bytes_ + bytes > most_aliases_) return plan;
  const auto used = sources(stream, excluded, also_excluded);
  all.insert(all.end(), used.begin(), used.end());
  Plan more = choose(std::move(all), rounded_up(bytes, unit_), most);
  return more.missing < plan.missing ? more : plan;
}

// ---- Remapping ----

Result<std::vector<Extent>> ExtentHeap::gather(std::vector<Source> chosen) {
  // From the highest address down, so that cutting a span does not change the start of its rest.
  std::ranges::sort(chosen, [](const Source& a, const Source& b) {
    return std::pair(a.span == nullptr, a.at) > std::pair(b.span == nullptr, b.at);
  });
  std::vector<Extent> gathered;
  Result<void> unmapped;
  for (std::size_t i = 0; i < chosen.size() && unmapped;) {
    const Source& last = chosen[i++];
    if (last.span == nullptr) {
      gathered.push_back(std::exchange(spare_[last.at], spare_.back()));
      spare_.pop_back();
      spare_bytes_ -= gathered.back().size;
      continue;
    }
    AddressSpace::Range range{last.at, last.at + last.extent.size.count};
    for (; i < chosen.size() && chosen[i].span == last.span &&
           chosen[i].at + chosen[i].extent.size.count == range.from;
         ++i) {
      range.from = chosen[i].at;
    }
    unmapped = unmap(*last.span, range, gathered);
  }
  if (unmapped) return gathered;
  add(std::move(gathered));
  return unmapped.error();
}

Result<void> ExtentHeap::unmap(Span& span, const AddressSpace::Range& range, std::vector<Extent>& into) {
  if (auto unmapped = backing_.unmap(range.from, Bytes{range.bytes()}); !unmapped) return unmapped;
  heap_.cut(span, range.from, range.to);
  const auto extents = space_.unmap(range);
  into.insert(into.end(), extents.begin(), extents.end());
  return {};
}

std::vector<Extent> ExtentHeap::take_free(std::uint64_t bytes, std::uint64_t most) {
  auto extents = gather(choose_for(std::min(bytes, committed().count), most).sources);
  if (extents) return std::move(*extents);
  spare_bytes_ = {};  // what was unmapped before the driver refused is spare now
  return std::exchange(spare_, {});
}

std::vector<Extent> ExtentHeap::take_all() {
  std::vector<Extent> all = std::exchange(spare_, {});
  spare_bytes_ = {};
  std::erase_if(aliases_, [this](const Alias& alias) { return unmap_alias(alias); });
  const auto unmap = [&](const AddressSpace::Range& range) {
    if (!backing_.unmap(range.from, Bytes{range.bytes()})) return false;
    const auto extents = space_.unmap(range);
    all.insert(all.end(), extents.begin(), extents.end());
    return true;
  };
  for (const AddressSpace::Range& range : space_.segments()) {
    if (unmap(range)) continue;
    Address at = range.from;
    for (const Extent& extent : space_.extents_in(range)) {  // unmap extent by extent what the driver allows
      (void)unmap({at, at + extent.size.count});
      at += extent.size.count;
    }
  }
  std::erase_if(all, [this](const Extent& extent) {
    if (!aliased_.contains(extent.id)) return false;
    spare_bytes_ += extent.size;  // the driver keeps an alias
    return true;
  });
  return all;
}

}  // namespace gpumem::allocator
