#include "tests/promises/books.h"

#include <algorithm>
#include <functional>

namespace gpumem::core::promises {

void Books::add(SessionId session, DeviceIndex device, Bytes bytes) {
  auto& charges = charges_[session];
  charges.resize(devices_);
  charges[device] += bytes;
}

void Books::take(SessionId session, DeviceIndex device, Bytes bytes) {
  charges_.at(session)[device] -= bytes;
}

void Books::granted(RequestId request, SessionId session, DeviceIndex device, Bytes bytes) {
  pending_.insert({request, {session, device, bytes}});
  add(session, device, bytes);
}

void Books::settled(RequestId request) {
  const auto [begin, end] = pending_.equal_range(request);
  for (auto it = begin; it != end; ++it) take(it->second.session, it->second.device, it->second.bytes);
  pending_.erase(begin, end);
}

void Books::ended(SessionId session) {
  std::set<RequestId> requests;
  for (const auto& [request, pending] : pending_) {
    if (pending.session == session) requests.insert(request);
  }
  for (const RequestId request : requests) settled(request);
}

void Books::close_lane(SessionId session) {
  ended(session);
  for (const ExtentId extent : by_session_[session]) lent_.at(extent).returned = true;
}

void Books::lent(ExtentId extent, SessionId session, DeviceIndex device, Bytes size) {
  lent_[extent] = {session, device, size};
  by_session_[session].insert(extent);
  add(session, device, size);
}

void Books::unmapped(ExtentId extent) {
  Lent& one = lent_.at(extent);
  --one.users;
  if (!one.lost || one.users != 0) return;
  lost_[one.device] -= one.size;
  lent_.erase(extent);
}

void Books::passed(ExtentId extent, SessionId to, bool returned) {
  Lent& one = lent_.at(extent);
  take(one.session, one.device, one.size);
  by_session_[one.session].erase(extent);
  one.session = to;
  one.returned = returned;
  by_session_[to].insert(extent);
  add(to, one.device, one.size);
}

// Largest first: as each size divides the next, this makes up `bytes` exactly whenever anything does.
std::vector<ExtentId> Books::given_back(SessionId session, DeviceIndex device, Bytes& bytes,
                                        bool mapped_too) const {
  std::vector<std::pair<Bytes, ExtentId>> all;
  for (const ExtentId extent : by_session_.at(session)) {
    const Lent& one = lent_.at(extent);
    if (one.published) continue;
    if (one.device == device && one.returned && (mapped_too || one.users == 0))
      all.emplace_back(one.size, extent);
  }
  std::ranges::sort(all, std::greater{});
  std::vector<ExtentId> chosen;
  for (const auto& [size, extent] : all) {
    if (size > bytes) continue;
    bytes -= size;
    chosen.push_back(extent);
  }
  return chosen;
}

bool Books::freed(SessionId session, DeviceIndex device, Bytes bytes) {
  if (!by_session_.contains(session)) return false;
  Bytes rest = bytes;
  std::vector<ExtentId> freed = given_back(session, device, rest, false);
  if (!rest.is_zero()) freed = given_back(session, device, rest = bytes, true);
  for (const ExtentId extent : freed) forget(extent);
  return rest.is_zero();
}

Books::Freed Books::freed(ExtentId extent) {
  const Lent& one = lent_.at(extent);
  const Freed freed{one.session, one.device, one.size, one.returned};
  forget(extent);
  return freed;
}

void Books::forget(ExtentId extent) {
  Lent& one = lent_.at(extent);
  take(one.session, one.device, one.size);
  by_session_[one.session].erase(extent);
  if (one.users == 0) {
    lent_.erase(extent);
    return;
  }
  one.lost = true;
  lost_[one.device] += one.size;
}

std::vector<Bytes> Books::charges_of(SessionId session) const {
  const auto found = charges_.find(session);
  return found == charges_.end() ? std::vector<Bytes>(devices_) : found->second;
}

Bytes Books::kept(SessionId session, DeviceIndex device) const {
  Bytes sum;
  const auto found = by_session_.find(session);
  if (found == by_session_.end()) return sum;
  for (const ExtentId extent : found->second) {
    const Lent& one = lent_.at(extent);
    if (one.device == device && one.returned && one.users != 0) sum += one.size;
  }
  return sum;
}

}  // namespace gpumem::core::promises
