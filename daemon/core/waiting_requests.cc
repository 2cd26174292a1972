#include "daemon/core/waiting_requests.h"

#include <algorithm>

#include "base/check.h"

namespace gpumem::core {

const Request& WaitingRequests::add(Request request) {
  GPUMEM_CHECK(!slots_.contains(request.id), "a request comes once");
  if (arrivals_.full()) renumber();
  const Slot slot = new_slot();
  slots_.emplace(request.id, slot);
  deadlines_.add({request.deadline, slot}, deadline_positions_);
  for (const Request::Part& part : request.parts) by_slice_[part.slice] += part.wanted;
  Record& record = records_[slot];
  record.request = std::move(request);
  const auto kept = arrivals_.fill(record.request.id, slot);
  record.place = kept ? *kept : arrivals_.add(record.request.id, slot);
  count(record);
  link(slot);
  return record.request;
}

void WaitingRequests::keep_place(RequestId id) {
  if (arrivals_.full()) renumber();
  arrivals_.keep(id);
}

Request WaitingRequests::take(RequestId id) {
  const auto found = slots_.find(id);
  const Slot slot = found->second;
  slots_.erase(found);
  Record& record = records_[slot];
  deadlines_.remove(deadline_positions_[slot], deadline_positions_);
  for (const Request::Part& part : record.request.parts) {
    const auto slice = by_slice_.find(part.slice);
    slice->second -= part.wanted;
    if (slice->second.is_zero()) by_slice_.erase(slice);
    arrivals_.uncount(record.place, part.device);
  }
  arrivals_.remove(record.place);
  unlink(record);
  vacant_.push_back(slot);
  return std::exchange(record, {}).request;
}

const Request* WaitingRequests::find(RequestId id) const {
  const auto found = slots_.find(id);
  return found == slots_.end() ? nullptr : &records_[found->second].request;
}

void WaitingRequests::set_tenant(SessionId session, TenantId tenant) {
  for (const RequestId id : of(session)) records_[slots_.at(id)].request.tenant = tenant;
}

std::vector<RequestId> WaitingRequests::of(SessionId session) const {
  std::vector<RequestId> ids;
  const auto found = by_session_.find(session);
  if (found == by_session_.end()) return ids;
  for (Slot slot = found->second.first; slot != kNone; slot = records_[slot].next)
    ids.push_back(records_[slot].request.id);
  std::ranges::sort(ids);
  return ids;
}

bool WaitingRequests::waits_up_to(RequestId id, SessionId session, DeviceIndex device) const {
  const auto found = by_session_.find(session);
  if (found == by_session_.end()) return false;
  for (Slot slot = found->second.first; slot != kNone; slot = records_[slot].next) {
    const Request& request = records_[slot].request;
    if (request.id <= id && request.is_for(device)) return true;
  }
  return false;
}

std::size_t WaitingRequests::count_of(SessionId session) const {
  const auto found = by_session_.find(session);
  return found == by_session_.end() ? 0 : found->second.count;
}

Bytes WaitingRequests::wanted_for(SliceId slice) const {
  const auto found = by_slice_.find(slice);
  return found == by_slice_.end() ? Bytes{} : found->second;
}

WaitingRequests::Slot WaitingRequests::new_slot() {
  if (vacant_.empty()) {
    records_.emplace_back();
    return static_cast<Slot>(records_.size() - 1);
  }
  const Slot slot = vacant_.back();
  vacant_.pop_back();
  return slot;
}

void WaitingRequests::renumber() {
  arrivals_.renumber([this](Slot slot, std::uint32_t place) {
    records_[slot].place = place;
    count(records_[slot]);
  });
}

void WaitingRequests::count(const Record& record) {
  for (const Request::Part& part : record.request.parts) arrivals_.count(record.place, part.device);
}

void WaitingRequests::link(Slot slot) {
  Record& record = records_[slot];
  OfSession& session = by_session_[record.request.session];
  record.next = session.first;
  if (record.next != kNone) records_[record.next].previous = slot;
  session.first = slot;
  ++session.count;
}

void WaitingRequests::unlink(const Record& record) {
  const auto session = by_session_.find(record.request.session);
  if (record.next != kNone) records_[record.next].previous = record.previous;
  if (record.previous != kNone)
    records_[record.previous].next = record.next;
  else
    session->second.first = record.next;
  if (--session->second.count == 0) by_session_.erase(session);
}

}  // namespace gpumem::core
