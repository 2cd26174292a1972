#include "client/allocator/extent_heap.h"

#include <algorithm>
#include <utility>

namespace gpumem::allocator {
ExtentHeap::ExtentHeap(Backing& backing, Heap& heap)
    : backing_(backing),
      heap_(heap),
      unit_(backing.properties().granularity.count),
      most_aliases_(backing.properties().addresses.count / 4) {}

Bytes ExtentHeap::returnable() const {
  Bytes sum = spare_bytes_;
  auto streams = heap_.free_spans().streams();
  streams.push_back(kNoStream);
  for (const StreamIndex stream : streams) {
    heap_.free_spans().each_long(stream, [&](const Span& span) {
      each_within(span, [&sum](Address, const Extent& extent) { sum += extent.size; });
    });
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
    Plan plan = choose_for(site.maps, site.gap->bytes, stream, site.before, site.after);
    plan.at = site.before == nullptr && site.after != nullptr ? site.gap->end() - plan.bytes : site.gap->base;
    const bool takes_after = site.after != nullptr && site.after->stream != kNoStream;
    plan.owner = takes_after ? site.after : site.before;
    return plan;
  };
  const Site site = best_site(bytes, stream);
  Plan best = plan_for(site);
  FreeSet& gaps = heap_.free_spans().gaps();
  if (best.missing == 0 || gaps.empty() || site.gap == &*gaps.rbegin()) return best;
  // The available extents may be too large for that gap.
  Plan wide = plan_for(site_of(*gaps.rbegin(), bytes, stream));
  return wide.at != 0 && wide.missing < best.missing ? wide : best;
}

ExtentHeap::Plan ExtentHeap::plan_after(const Span& block, std::uint64_t bytes, StreamIndex stream) const {
  const Span* after = block.after->is_free() ? block.after : nullptr;
  if (block.is_unused() || (after && after->stream != kNoStream && after->stream != stream)) return {};
  const std::uint64_t there = after != nullptr ? after->bytes : 0;
  Span* const next = after != nullptr ? after->after : block.after;
  Plan plan{.at = next->base};
  if (there >= bytes) return plan;
  const bool in_room = (block.has_room || !block.is_in_use()) && next->use == Span::Use::kReserved;
  const std::uint64_t most = in_room ? next->bytes - unit_ : next->is_gap() ? next->bytes : 0;
  if (rounded_up(bytes - there, unit_) > most) return {};
  plan = choose_for(bytes - there, most, kNoStream, after);
  plan.at = next->base;
  plan.room = in_room ? next : nullptr;
  plan.owner = after;
  return plan;
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
  auto extents = gather(plan.sources);
  if (!extents) return extents.error();
  const std::size_t gathered = extents->size();
  for (const Source& source : used) extents->push_back(source.extent);
  if (auto mapped = backing_.map(plan.at, *extents); !mapped) {
    extents->resize(gathered);
    add(std::move(*extents));
    return mapped;
  }
  leave(runs_of(std::move(used)));
  Address at = plan.at;
  for (const Extent& extent : *extents) {
    mapped_.emplace(at, extent);
    at += extent.size.count;
  }
  mapped_bytes_ += {plan.bytes};
  heap_.add(plan.room != nullptr ? *plan.room : heap_.gap_around(plan.at), plan.at, plan.bytes, stream,
            epoch);
  return {};
}

void ExtentHeap::leave(std::vector<Run> used) {
  for (Run& run : used) {
    take_out(run.from, run.bytes);
    for (const Extent& extent : run.extents) aliased_.insert(extent.id);
    alias_bytes_ += run.bytes;
    run.span = &heap_.cut(*run.span, run.from, run.bytes);
    aliases_.push_back(std::move(run));
  }
}

bool ExtentHeap::unmap_alias(const Run& alias) {
  if (!backing_.unmap(alias.from, {alias.bytes})) return false;
  heap_.release(*alias.span);
  for (const Extent& extent : alias.extents) aliased_.erase(aliased_.find(extent.id));
  alias_bytes_ -= alias.bytes;
  return true;
}

void ExtentHeap::take_out(Address from, std::uint64_t bytes) {
  mapped_.erase(mapped_.lower_bound(from), mapped_.lower_bound(from + bytes));
  mapped_bytes_ -= {bytes};
}

// If the driver refuses to unmap an alias, the next mark tries again.
void ExtentHeap::settle(StreamIndex stream, std::uint64_t epoch) {
  std::erase_if(aliases_, [&](const Run& alias) {
    return alias.span->stream == stream && alias.span->epoch < epoch && unmap_alias(alias);
  });
}

// ---- Sites: where to map ----

// Next to the free span on one side, or filling the gap to join both sides: whichever maps less.
ExtentHeap::Site ExtentHeap::site_of(Span& gap, std::uint64_t bytes, StreamIndex stream) const {
  const auto usable = [stream](Span* span) {
    const bool ours = span->is_free() && (span->stream == kNoStream || span->stream == stream);
    return ours ? span : nullptr;
  };
  Span* before = usable(gap.before);
  Span* after = usable(gap.after);
  const std::uint64_t left = before != nullptr ? before->bytes : 0;
  const std::uint64_t right = after != nullptr ? after->bytes : 0;
  Site best;
  const auto consider = [&](const Site& site) {
    if (site.maps <= gap.bytes && (best.maps == 0 || site.maps < best.maps)) best = site;
  };
  if (left + gap.bytes + right >= bytes) consider({&gap, gap.bytes, before, after});
  if (left < bytes) consider({&gap, rounded_up(bytes - left, unit_), before, nullptr});
  if (right < bytes) consider({&gap, rounded_up(bytes - right, unit_), nullptr, after});
  return best;
}

// The site where least must be mapped. Among equals the widest gap, which leaves space to grow.
ExtentHeap::Site ExtentHeap::best_site(std::uint64_t bytes, StreamIndex stream) const {
  Site best;
  FreeSet& gaps = heap_.free_spans().gaps();
  for (auto gap = gaps.rbegin(); gap != gaps.rend(); ++gap) {
    const Site site = site_of(*gap, bytes, stream);
    if (site.maps != 0 && (best.maps == 0 || site.maps < best.maps)) best = site;
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
    for (const Extent& extent : spare_) found.push_back({extent});
  }
  heap_.free_spans().each_long(stream, [&](Span& span) {
    if (&span == excluded || &span == also_excluded) return;
    each_within(span, [&](Address at, const Extent& extent) {
      if (stream != kNoStream || !aliased_.contains(extent.id)) found.push_back({extent, &span, at});
    });
  });
  return found;
}

// The largest that fit, then the smallest that covers the rest. Each size divides the next, so this finds an
// exact sum whenever there is one.
ExtentHeap::Plan ExtentHeap::choose(std::vector<Source>& sources, std::uint64_t bytes, std::uint64_t most) {
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
  if (used.empty()) return plan;
  all.insert(all.end(), used.begin(), used.end());
  Plan more = choose(all, rounded_up(bytes, unit_), most);
  return more.missing < plan.missing ? more : plan;
}

// ---- Remapping ----

std::vector<ExtentHeap::Run> ExtentHeap::runs_of(std::vector<Source> sources) {
  std::erase_if(sources, [](const Source& source) { return source.span == nullptr; });
  std::ranges::sort(sources, std::ranges::greater(), &Source::at);
  std::vector<Run> runs;
  for (const auto& [extent, span, at] : sources) {
    const Address end = at + extent.size.count;
    if (runs.empty() || runs.back().span != span || runs.back().from != end)
      runs.push_back({span, end, 0, {}});
    runs.back().from = at;
    runs.back().bytes += extent.size.count;
    runs.back().extents.push_back(extent);
  }
  return runs;
}

Result<std::vector<Extent>> ExtentHeap::gather(const std::vector<Source>& chosen) {
  std::vector<Extent> gathered;
  for (const Run& run : runs_of(chosen)) {
    if (auto unmapped = backing_.unmap(run.from, {run.bytes}); !unmapped) {
      add(std::move(gathered));
      return unmapped.error();
    }
    heap_.release(heap_.cut(*run.span, run.from, run.bytes));
    take_out(run.from, run.bytes);
    gathered.insert(gathered.end(), run.extents.begin(), run.extents.end());
  }
  std::unordered_set<std::uint64_t> taken;
  for (const Source& source : chosen) {
    if (source.span != nullptr) continue;
    taken.insert(source.extent.id);
    gathered.push_back(source.extent);
    spare_bytes_ -= source.extent.size;
  }
  std::erase_if(spare_, [&taken](const Extent& extent) { return taken.contains(extent.id); });
  return gathered;
}

std::vector<Extent> ExtentHeap::take_free(std::uint64_t bytes, std::uint64_t most) {
  auto extents = gather(choose_for(std::min(bytes, committed().count), most).sources);
  if (extents) return std::move(*extents);
  spare_bytes_ = {};  // what was unmapped before the driver refused is spare now
  return std::exchange(spare_, {});
}

std::vector<Extent> ExtentHeap::take_all() {
  std::erase_if(aliases_, [this](const Run& alias) { return unmap_alias(alias); });
  std::vector<Extent> all = take_free(committed().count);
  for (auto at = mapped_.begin(); at != mapped_.end();) {  // in use, or not unmapped above
    const auto [from, extent] = *at++;
    if (!backing_.unmap(from, extent.size)) continue;
    all.push_back(extent);
    take_out(from, extent.size.count);
  }
  std::erase_if(all, [this](const Extent& extent) {
    if (!aliased_.contains(extent.id)) return false;
    spare_bytes_ += extent.size;  // the driver keeps an alias
    return true;
  });
  return all;
}

}  // namespace gpumem::allocator
