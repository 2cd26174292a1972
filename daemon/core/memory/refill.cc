#include "daemon/core/memory/refill.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gpumem::core {

void Refill::lose(Bytes bytes, TimePoint now) {
  const bool was_whole = open().is_zero();
  missing_ += bytes;
  next_ = was_whole ? now + kFirstPause : std::min(next_, now + kFirstPause);
}

void Refill::set_aside(Bytes bytes) {
  missing_ += bytes;
  aside_ += bytes;
}

void Refill::keep_after_all(Bytes bytes) {
  missing_ -= bytes;
  aside_ -= bytes;
}

void Refill::reopen(Bytes bytes, TimePoint now) {
  const bool was_whole = open().is_zero();
  aside_ -= bytes;
  if (was_whole) next_ = now;
  hurry(now);
}

void Refill::retire(Bytes bytes) {
  missing_ += bytes;
  if (demand_.bytes != kUnlimited) dormant_ += bytes;
}

void Refill::set_demand(const Demand& demand, TimePoint now) {
  const Bytes before = open();
  demand_ = demand;
  demand_.bytes = demand.bytes.rounded_up(classes_.granularity()).value_or(kUnlimited);
  dormant_ = obtainable().minus(demand_.bytes);
  if (open() > before) ask_anew(now);
}

void Refill::ask_anew(TimePoint now) {
  unasked_ = true;
  if (!under_way_) start_anew(now);
}

void Refill::forget_refusals() {
  most_ = largest_ = classes_.largest();
  room_.reset();
  probes_ = false;
}

void Refill::start_anew(TimePoint now) {
  forget_refusals();
  pause_ = kFirstPause;
  next_ = now;
}

std::optional<TimePoint> Refill::next() const {
  return open().is_zero() || under_way_ ? std::nullopt : std::optional(next_);
}

void Refill::hurry(TimePoint now) {
  pause_ = kFirstPause;
  next_ = std::min(next_, now);
}

std::vector<Bytes> Refill::begin(std::size_t most_extents) {
  GPUMEM_CHECK(!under_way_ && !open().is_zero(), "one round at a time, of what is missing");
  under_way_ = true;
  unasked_ = false;
  Bytes bytes = std::min({open(), most_, room_.value_or(open())});
  if (most_extents != 0 && !demand_.first.is_zero() && demand_.first <= bytes) {
    if (demand_.as_one) return {demand_.first};
    bytes = demand_.first;
  }
  std::vector<Bytes> sizes;
  for (Bytes rest = bytes; rest >= classes_.granularity() && sizes.size() < most_extents;) {
    sizes.push_back(std::min(classes_.largest_within(rest), largest_));
    rest -= sizes.back();
  }
  return sizes;
}

void Refill::end(const Outcome& outcome, TimePoint now) {
  under_way_ = false;
  missing_ -= outcome.created;
  dormant_ = std::min(dormant_, obtainable());  // the demand may have been lowered meanwhile
  if (unasked_) return start_anew(now);
  room_ = outcome.room;
  const bool is_smaller_possible =
      outcome.refused && outcome.may_split && *outcome.refused > classes_.granularity();
  const bool has_room = !room_ || *room_ >= classes_.granularity();
  if (is_smaller_possible) {
    most_ = *outcome.refused;
    largest_ = {most_.count / SizeClasses::kStep};
  } else if (!outcome.refused && has_room && (room_ || !outcome.created.is_zero())) {
    most_ = largest_ = classes_.largest();
  } else {
    most_ = largest_ = classes_.granularity();
    room_.reset();  // of now, not of then
  }
  probes_ = most_ == classes_.granularity();
  pause_ = outcome.created.is_zero() && probes_ ? std::min(2 * pause_, kLongestPause) : kFirstPause;
  next_ = probes_ ? now + pause_ : now;
  if (open().is_zero()) forget_refusals();
}

}  // namespace gpumem::core
