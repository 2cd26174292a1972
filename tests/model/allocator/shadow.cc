#include "tests/model/allocator/shadow.h"

#include <algorithm>

#include "tests/support/allocator/broken_rule.h"

namespace gpumem::test {

using allocator::Address;
using allocator::Extent;

namespace {

std::string place(Address at, Bytes bytes) { return std::to_string(at) + " (+" + to_string(bytes) + ")"; }

}  // namespace

Shadow::Shadow(FakeBacking& backing, FakeStreams& streams) : backing_(backing), streams_(streams) {
  backing_.observe(this);
}

Shadow::~Shadow() { backing_.observe(nullptr); }

template <class Each>
void Shadow::for_each(std::uint64_t id, Address at, Bytes bytes, Each&& each) {
  const Address end = at + bytes.count;
  auto next = mapped_.upper_bound(at);
  if (next != mapped_.begin()) --next;
  while (at < end) {
    if (next == mapped_.end() || next->first > at || next->first + next->second.extent.size.count <= at) {
      broken_rule("block " + std::to_string(id) + " lies at " + place(at, {end - at}) +
                  ": nothing is mapped there");
    }
    if (!is_latest(next->first, next->second.extent)) {
      broken_rule("block " + std::to_string(id) + " lies at " + place(at, {end - at}) +
                  ", in an extent that is mapped elsewhere now");
    }
    const Address stop = std::min(end, next->first + next->second.extent.size.count);
    each(next->second.uses, at - next->first, stop - next->first, at);
    at = stop;
    ++next;
  }
}

void Shadow::replace(Uses& uses, std::uint64_t from, std::uint64_t to, const Use& with) {
  auto next = uses.lower_bound(from);
  if (next != uses.begin()) {
    const auto before = std::prev(next);
    if (before->second.end > from) {
      const Use rest = before->second;
      before->second.end = from;
      if (rest.end > to) uses.emplace(to, rest);
    }
  }
  while (next != uses.end() && next->first < to) {
    if (next->second.end > to) uses.emplace(to, next->second);
    next = uses.erase(next);
  }
  Use& use = uses[from] = with;
  use.end = to;
}

void Shadow::check_behind(StreamHandle stream, FakeStreams::Moment moment, const std::string& block) const {
  if (streams_.is_behind(stream, moment)) return;
  broken_rule(block + " was handed out too soon: stream " + streams_.name(streams_.now(stream).stream) +
              " is not behind work " + std::to_string(moment.number) + " of stream " +
              streams_.name(moment.stream));
}

void Shadow::check_turn(const Uses& uses, std::uint64_t from, std::uint64_t to, std::uint64_t id,
                        StreamHandle stream, Address at) {
  auto next = uses.upper_bound(from);
  if (next != uses.begin()) --next;
  for (; next != uses.end() && next->first < to; ++next) {
    if (next->second.end <= from) continue;
    const Use& use = next->second;
    if (use.id != 0) {
      broken_rule("block " + std::to_string(id) + " at " + place(at, {to - from}) + " overlaps block " +
                  std::to_string(use.id) + ", which is in use");
    }
    const std::string block = "block " + std::to_string(id) + " at " + place(at, {to - from});
    check_behind(stream, use.until, block);
    check_behind(stream, use.recorded, block);
  }
}

void Shadow::take(std::uint64_t id, Address at, Bytes bytes, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  for_each(id, at, bytes, [&](Uses& uses, std::uint64_t from, std::uint64_t to, Address where) {
    check_turn(uses, from, to, id, stream, where);
    replace(uses, from, to, {to, id, {}, {}});
  });
}

void Shadow::free(std::uint64_t id, Address at, Bytes bytes, FakeStreams::Moment until,
                  FakeStreams::Moment recorded) {
  const std::lock_guard lock(mutex_);
  for_each(id, at, bytes, [&](Uses& uses, std::uint64_t from, std::uint64_t to, Address where) {
    auto use = uses.upper_bound(from);
    if (use != uses.begin()) --use;
    std::uint64_t there = from;  // an extended block has several pieces
    for (; use != uses.end() && use->first <= there && there < to && use->second.id == id; ++use) {
      there = use->second.end;
    }
    if (there < to) {
      broken_rule("block " + std::to_string(id) + " at " + place(where, {to - from}) +
                  " is not there any more");
    }
    replace(uses, from, to, {to, 0, until, recorded});
  });
}

void Shadow::keep_room(Address at, Bytes room) {
  const std::lock_guard lock(mutex_);
  rooms_[at] = at + room.count;
}

void Shadow::give_up_room(Address at) {
  const std::lock_guard lock(mutex_);
  rooms_.erase(at);
}

bool Shadow::is_in_room(Address at) const {
  const auto behind = rooms_.upper_bound(at);
  return behind != rooms_.begin() && std::prev(behind)->second > at;
}

bool Shadow::has_block(const Mapped& mapped, std::uint64_t from, std::uint64_t to) {
  return std::ranges::any_of(mapped.uses, [from, to](const auto& use) {
    return use.second.id != 0 && use.first < to && use.second.end > from;
  });
}

Bytes Shadow::in_free_extents(Bytes margin) const {
  const std::lock_guard lock(mutex_);
  Bytes free;
  for (auto one = mapped_.begin(); one != mapped_.end(); ++one) {
    const std::uint64_t size = one->second.extent.size.count;
    bool used = is_in_room(one->first) || has_block(one->second, 0, size) ||
                !is_latest(one->first, one->second.extent);
    if (one != mapped_.begin()) {
      const auto before = std::prev(one);
      const std::uint64_t end = before->second.extent.size.count;
      used =
          used || (before->first + end == one->first && has_block(before->second, end - margin.count, end));
    }
    const auto behind = std::next(one);
    used = used || (behind != mapped_.end() && behind->first == one->first + size &&
                    has_block(behind->second, 0, margin.count));
    if (!used) free += one->second.extent.size;
  }
  return free;
}

bool Shadow::is_latest(Address at, const Extent& extent) const { return latest_.at(extent.id) == at; }

void Shadow::maps(Address at, const Extent& extent) {
  const std::lock_guard lock(mutex_);
  Uses uses;
  if (const auto former = latest_.find(extent.id); former != latest_.end()) {
    const Mapped& there = mapped_.at(former->second);
    if (has_block(there, 0, extent.size.count)) {
      broken_rule("extent " + std::to_string(extent.id) + " is mapped at " + place(at, extent.size) +
                  " while a block is in it at " + place(former->second, extent.size));
    }
    uses = there.uses;
  }
  latest_[extent.id] = at;
  mapped_.emplace(at, Mapped{extent, std::move(uses)});
}

void Shadow::unmaps(Address at, const Extent& extent) {
  const std::lock_guard lock(mutex_);
  const auto found = mapped_.find(at);
  for (const auto& [offset, use] : found->second.uses) {
    if (use.id != 0) {
      broken_rule("extent " + std::to_string(extent.id) + " at " + place(at, extent.size) +
                  " is unmapped under block " + std::to_string(use.id) + ", which is in use");
    }
    for (const FakeStreams::Moment& moment : {use.until, use.recorded}) {
      if (streams_.is_known_reached(moment)) continue;
      broken_rule("extent " + std::to_string(extent.id) + " at " + place(at, extent.size) +
                  " is unmapped while nobody knows that work " + std::to_string(moment.number) +
                  " of stream " + streams_.name(moment.stream) + " is over");
    }
  }
  // The work on it is over: whoever has it next, here or elsewhere, comes after that.
  if (is_latest(at, extent)) latest_.erase(extent.id);
  mapped_.erase(found);
}

}  // namespace gpumem::test
