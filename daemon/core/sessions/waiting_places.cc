#include "daemon/core/sessions/waiting_places.h"

#include <algorithm>

namespace gpumem::core {
namespace {

bool asks_for(const Request::Parts& parts, const Checkpoint::Waiting& waiting) {
  return std::ranges::equal(parts, waiting.slices, {}, &Request::Part::slice) &&
         std::ranges::equal(parts, waiting.min_bytes, {}, &Request::Part::min_bytes);
}

}  // namespace

Checkpoint::Waiting checkpoint_of(const Request& request) {
  Checkpoint::Waiting waiting{request.id, request.session, request.asked, request.deadline, {}, {}};
  for (const Request::Part& part : request.parts) {
    waiting.slices.push_back(part.slice);
    waiting.min_bytes.push_back(part.min_bytes);
  }
  return waiting;
}

void WaitingPlaces::note(const Request& request) {
  outbox_.record(checkpoint_of(request));
  if (request.id <= last_restored_) places_.erase({request.session, request.id});
}

void WaitingPlaces::forget(const Request& request) {
  if (request.is_recorded)
    outbox_.record(Checkpoint::WaitingGone{request.session, request.id});
  else
    release(request.session, request.id);
}

void WaitingPlaces::release(SessionId session, RequestId request) {
  if (last_restored_ < request) return;  // as nearly always
  const auto found = places_.find({session, request});
  if (found == places_.end()) return;
  if (found->second.is_kept) --kept_;
  places_.erase(found);
  outbox_.record(Checkpoint::WaitingGone{session, request});
}

void WaitingPlaces::release_all_of(SessionId session) {
  std::vector<RequestId> all;
  for (auto one = places_.lower_bound({session, {}}); one != places_.end() && one->first.first == session;
       ++one)
    all.push_back(one->first.second);
  for (const RequestId request : all) release(session, request);
}

void WaitingPlaces::leave_to_next(const Request& request) {
  if (request.is_recorded) restore(checkpoint_of(request));
}

void WaitingPlaces::restore(const Checkpoint::Waiting& from) {
  places_.emplace(std::pair(from.session, from.id), Place{from, true, TimePoint::max()});
  ++kept_;
  last_restored_ = std::max(last_restored_, from.id);
}

void WaitingPlaces::keep_until(SessionId session, TimePoint until) {
  for (auto one = places_.lower_bound({session, {}}); one != places_.end() && one->first.first == session;
       ++one) {
    Place& place = one->second;
    if (place.is_kept) place.until = until;
  }
}

std::optional<RequestId> WaitingPlaces::take(SessionId session, const Request::Parts& parts, TimePoint now) {
  for (auto one = places_.lower_bound({session, {}}); one != places_.end() && one->first.first == session;
       ++one) {
    Place& place = one->second;
    if (!place.is_kept || std::min(place.waiting.deadline, place.until) <= now ||
        !asks_for(parts, place.waiting))
      continue;
    place.is_kept = false;
    --kept_;
    return one->first.second;
  }
  return std::nullopt;
}

std::optional<TimePoint> WaitingPlaces::since(SessionId session, RequestId request) const {
  if (last_restored_ < request) return std::nullopt;  // as nearly always
  const auto found = places_.find({session, request});
  return found == places_.end() ? std::nullopt : std::optional(found->second.waiting.asked);
}

void WaitingPlaces::add_to(Checkpoint& checkpoint) const {
  for (const auto& [key, place] : places_) checkpoint.waiting.emplace(key, place.waiting);
}

}  // namespace gpumem::core
