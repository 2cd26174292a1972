#include "client/allocator/stock.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gpumem::allocator {
namespace {

constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();

Error no_addresses(std::uint64_t bytes) {
  return {Code::kResourceExhausted, "no range of addresses of " + to_string(Bytes{bytes}) +
                                        " is left; open the allocator with a higher limit"};
}

}  // namespace

Stock::Stock(Backing& backing, Heap& heap)
    : backing_(backing),
      heap_(heap),
      unit_(backing.granularity().count),
      ground_(backing.base(), backing.addresses()) {}

Bytes Stock::returnable() const {
  Bytes sum = spare_bytes_;
  auto streams = heap_.streams();
  streams.push_back(kNoStream);
  for (const StreamIndex stream : streams) {
    for (const Piece& piece : heap_.long_pieces_of(stream)) {
      sum += {ground_.whole_within(piece.base, piece.end()).bytes()};
    }
  }
  return sum;
}

void Stock::add(std::vector<Extent> extents) {
  for (const Extent& extent : extents) spare_bytes_ += extent.size;
  spare_.insert(spare_.end(), extents.begin(), extents.end());
}

// ---- A free piece of a size ----

Stock::Plan Stock::plan(std::uint64_t bytes, StreamIndex stream) const {
  const auto plan_for = [&](const Site& site) {
    if (site.maps == 0) return Plan{};
    return Plan{site, choice_for(site.maps, site.gap.bytes(), site.before, site.behind)};
  };
  Plan best = plan_for(best_site(bytes, stream));
  if (best.choice.missing == 0) return best;
  // What there is may be too large for that gap.
  Plan wide = plan_for(site_of(ground_.largest_gap(), bytes, stream));
  return wide.site.maps != 0 && wide.choice.missing < best.choice.missing ? wide : best;
}

std::uint64_t Stock::missing_for(std::uint64_t bytes, StreamIndex stream) const {
  return plan(bytes, stream).choice.missing;  // without a site nothing is, and make() says so
}

Result<void> Stock::make(std::uint64_t bytes, StreamIndex stream) {
  Plan best = plan(bytes, stream);
  const Site& site = best.site;
  if (site.maps == 0) return no_addresses(bytes);
  const Address at = site.at_end ? site.gap.to - best.choice.bytes : site.gap.from;
  const bool of_behind = site.behind != nullptr && site.behind->stream != kNoStream;
  return build(std::move(best.choice), at, of_behind ? site.behind : site.before);
}

std::optional<Stock::Behind> Stock::behind(const Piece& block, StreamIndex stream) const {
  Behind found{.lead = 0, .at = block.end(), .most = 0};
  if (const Piece* after = block.after) {
    if (!after->is_free() || (after->stream != kNoStream && after->stream != stream)) return std::nullopt;
    found.lead = after->bytes;
    found.at = after->end();
    if (after->after != nullptr) return found;
  }
  found.most = block.room_end != 0 ? block.room_end - found.at : ground_.gap_at(found.at).bytes();
  return found;
}

bool Stock::can_make_behind(const Piece& block, std::uint64_t bytes, StreamIndex stream) const {
  const auto there = behind(block, stream);
  return there && (there->lead >= bytes || rounded_up(bytes - there->lead, unit_) <= there->most);
}

std::uint64_t Stock::missing_behind(const Piece& block, std::uint64_t bytes, StreamIndex stream) const {
  const auto there = behind(block, stream);
  if (!there || there->lead >= bytes) return 0;
  return choice_for(bytes - there->lead, there->most, block.after).missing;
}

Result<void> Stock::make_behind(const Piece& block, std::uint64_t bytes, StreamIndex stream) {
  if (block.after != nullptr) heap_.open_unit(*block.after);  // so that what is mapped becomes one with it
  const auto there = behind(block, stream);
  if (!there) return no_addresses(bytes);
  if (there->lead >= bytes) return {};
  return build(choice_for(bytes - there->lead, there->most, block.after), there->at, block.after);
}

Address Stock::keep_room(std::uint64_t bytes) {
  const std::uint64_t kept = bytes + 2 * unit_;
  const Ground::Span gap = ground_.gap_of(kept + unit_);
  if (gap.bytes() == 0) return 0;
  const Address at = gap.to - kept;  // from the end: what grows without room grows from the front
  ground_.keep(at, kept);
  return at + unit_;
}

void Stock::give_up_room(Address from, Address end, Address to) {
  ground_.unkeep(from - unit_, unit_);
  ground_.unkeep(end, to + unit_ - end);
}

std::uint64_t Stock::missing_at(std::uint64_t bytes, std::uint64_t room) const {
  return choice_for(bytes, room).missing;
}

Result<void> Stock::make_at(Address at, std::uint64_t bytes, std::uint64_t room) {
  return build(choice_for(bytes, room), at, nullptr);
}

Result<void> Stock::build(Choice choice, Address at, const Piece* owner) {
  if (choice.missing != 0) {
    return Error{Code::kResourceExhausted, to_string(Bytes{choice.missing}) + " are missing"};
  }
  const auto moved =
      std::ranges::count_if(choice.sources, [](const Source& source) { return source.piece != nullptr; });
  auto extents = collect(std::move(choice.sources));
  if (!extents) return extents.error();
  moved_ += static_cast<std::uint64_t>(moved);
  return lay(at, std::move(*extents), owner);
}

// ---- Where ----

// Beside what is free on one side, or from one side to the other: whichever needs less.
Stock::Site Stock::site_of(const Ground::Span& gap, std::uint64_t bytes, StreamIndex stream) const {
  const auto usable = [stream](Piece* piece) {
    const bool ours = piece != nullptr && piece->is_free() && !piece->small &&
                      (piece->stream == kNoStream || piece->stream == stream);
    return ours ? piece : nullptr;
  };
  Piece* before = usable(heap_.ending_at(gap.from));
  Piece* behind = usable(heap_.beginning_at(gap.to));
  const std::uint64_t left = before != nullptr ? before->bytes : 0;
  const std::uint64_t right = behind != nullptr ? behind->bytes : 0;
  Site best;
  const auto consider = [&](const Site& site) {
    if (site.maps <= gap.bytes() && (best.maps == 0 || site.maps < best.maps)) best = site;
  };
  if (left + gap.bytes() + right >= bytes) consider({gap, gap.bytes(), before, behind, false});
  if (left < bytes) consider({gap, rounded_up(bytes - left, unit_), before, nullptr, false});
  if (right < bytes) consider({gap, rounded_up(bytes - right, unit_), nullptr, behind, true});
  return best;
}

// Where the least has to be mapped; of those the widest, where more may follow.
Stock::Site Stock::best_site(std::uint64_t bytes, StreamIndex stream) const {
  Site best;
  for (const auto& gap : ground_.gaps()) {
    const Site site = site_of(gap, bytes, stream);
    if (site.maps == 0) continue;
    const bool wider = site.maps == best.maps && site.gap.bytes() > best.gap.bytes();
    if (best.maps == 0 || site.maps < best.maps || wider) best = site;
  }
  return best;
}

// ---- Out of what ----

std::vector<Stock::Source> Stock::sources(const Piece* without, const Piece* nor) const {
  std::vector<Source> found;
  for (std::size_t i = 0; i < spare_.size(); ++i) found.push_back({spare_[i].size, nullptr, i});
  for (const Piece& piece : heap_.long_pieces_of(kNoStream)) {
    if (&piece == without || &piece == nor) continue;
    const Ground::Span span = ground_.whole_within(piece.base, piece.end());
    Address at = span.from;
    for (const Extent& extent : ground_.extents_in(span)) {
      found.push_back({extent.size, const_cast<Piece*>(&piece), at});
      at += extent.size.count;
    }
  }
  return found;
}

// The largest that fit, then the smallest that is enough for the rest. As each size divides the next, this
// comes to `bytes` exactly whenever anything does.
Stock::Choice Stock::choose(std::vector<Source> sources, std::uint64_t bytes, std::uint64_t most) {
  std::ranges::stable_sort(sources, [](const Source& a, const Source& b) { return a.size > b.size; });
  Choice choice;
  std::optional<Source> enough;
  for (const Source& source : sources) {
    if (choice.bytes >= bytes) break;
    if (source.size.count > bytes - choice.bytes) {
      enough = source;
      continue;
    }
    choice.sources.push_back(source);
    choice.bytes += source.size.count;
  }
  if (choice.bytes < bytes && enough && enough->size.count <= most - choice.bytes) {
    choice.sources.push_back(*enough);
    choice.bytes += enough->size.count;
  }
  choice.missing = bytes - std::min(bytes, choice.bytes);
  return choice;
}

Stock::Choice Stock::choice_for(std::uint64_t bytes, std::uint64_t most, const Piece* without,
                                const Piece* nor) const {
  return choose(sources(without, nor), rounded_up(bytes, unit_), most);
}

// ---- Moving ----

Result<std::vector<Extent>> Stock::collect(std::vector<Source> chosen) {
  // From the highest address down, so that cutting a piece leaves the rest of it where it was.
  std::ranges::sort(chosen, [](const Source& a, const Source& b) {
    return std::pair(a.piece == nullptr, a.at) > std::pair(b.piece == nullptr, b.at);
  });
  std::vector<Extent> collected;
  Result<void> lifted;
  for (std::size_t i = 0; i < chosen.size() && lifted;) {
    const Source& last = chosen[i++];
    if (last.piece == nullptr) {
      collected.push_back(std::exchange(spare_[last.at], spare_.back()));
      spare_.pop_back();
      spare_bytes_ -= collected.back().size;
      continue;
    }
    Ground::Span span{last.at, last.at + last.size.count};
    for (; i < chosen.size() && chosen[i].piece == last.piece &&
           chosen[i].at + chosen[i].size.count == span.from;
         ++i) {
      span.from = chosen[i].at;
    }
    lifted = lift(*last.piece, span, collected);
  }
  if (lifted) return collected;
  add(std::move(collected));
  return lifted.error();
}

Result<void> Stock::lift(Piece& piece, const Ground::Span& span, std::vector<Extent>& into) {
  if (auto unmapped = backing_.unmap(span.from, Bytes{span.bytes()}); !unmapped) return unmapped;
  heap_.cut(piece, span.from, span.to);
  const auto extents = ground_.lift(span);
  into.insert(into.end(), extents.begin(), extents.end());
  return {};
}

// What is beside, and may still be used by its stream's work, becomes one with it only as that stream's.
Result<void> Stock::lay(Address at, std::vector<Extent> extents, const Piece* owner) {
  if (extents.empty()) return {};
  if (auto mapped = backing_.map(at, extents); !mapped) {
    add(std::move(extents));
    return mapped;
  }
  ground_.lay(at, extents);
  std::uint64_t bytes = 0;
  for (const Extent& extent : extents) bytes += extent.size.count;
  heap_.add(at, bytes, owner != nullptr ? owner->stream : kNoStream, owner != nullptr ? owner->epoch : 0);
  return {};
}

std::vector<Extent> Stock::take_out(std::uint64_t bytes) {
  return collect_or_spare(choice_for(std::min(bytes, committed().count), kAny).sources);
}

std::vector<Extent> Stock::take_out_within(std::uint64_t bytes) {
  const std::uint64_t whole = bytes / unit_ * unit_;
  return collect_or_spare(choice_for(whole, whole).sources);
}

std::vector<Extent> Stock::take_everything() {
  std::vector<Extent> all = std::exchange(spare_, {});
  spare_bytes_ = {};
  const auto lift = [&](const Ground::Span& span) {
    if (!backing_.unmap(span.from, Bytes{span.bytes()})) return false;
    const auto extents = ground_.lift(span);
    all.insert(all.end(), extents.begin(), extents.end());
    return true;
  };
  for (const Ground::Span& span : ground_.segments()) {
    if (lift(span)) continue;
    Address at = span.from;
    for (const Extent& extent : ground_.extents_in(span)) {  // what can be had of it
      (void)lift({at, at + extent.size.count});
      at += extent.size.count;
    }
  }
  return all;
}

std::vector<Extent> Stock::collect_or_spare(std::vector<Source> chosen) {
  auto extents = collect(std::move(chosen));
  if (extents) return std::move(*extents);
  spare_bytes_ = {};  // what could be unmapped before the driver refused is spare now
  return std::exchange(spare_, {});
}

}  // namespace gpumem::allocator
