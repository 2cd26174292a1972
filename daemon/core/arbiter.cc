#include "daemon/core/arbiter.h"

#include <algorithm>

namespace gpumem::core {

std::vector<Request> Arbiter::admit(DeviceIndex device) {
  std::vector<Request> granted;
  while (admit_once(device, granted)) {
  }
  return granted;
}

// Goes through the line as far as the first that overtakes. True if there was one: then it has to be done
// again from the front, for somebody of the same tenant who was overtaken may be at the tenant's limit now,
// and hold up nobody any more.
bool Arbiter::admit_once(DeviceIndex device, std::vector<Request>& granted) {
  if (lines_[device].empty()) return false;
  std::deque<Request> stay;
  bool overtaken = false;
  bool short_of_memory = false;  // for somebody ahead: later bursts may not overtake
  for (Request& request : lines_[device]) {
    const bool guaranteed = ledger_.within_guarantee(request.tenant, device, request.bytes);
    if (!overtaken && (guaranteed || !short_of_memory)) {
      const auto verdict = ledger_.reserve(request.tenant, device, request.bytes);
      if (verdict == Ledger::Verdict::kFits) {
        granted.push_back(request);
        overtaken = short_of_memory;
        continue;
      }
      if (verdict == Ledger::Verdict::kNoMemory) short_of_memory = true;
    }
    stay.push_back(request);
  }
  lines_[device] = std::move(stay);
  return overtaken;
}

std::optional<Request> Arbiter::remove(RequestId id) {
  auto removed = remove_if([&](const Request& request) { return request.id == id; });
  if (removed.empty()) return std::nullopt;
  return removed.front();
}

std::vector<Request> Arbiter::remove_all_of(SessionId session) {
  return remove_if([&](const Request& request) { return request.session == session; });
}

std::vector<Request> Arbiter::remove_expired(TimePoint now) {
  return remove_if([&](const Request& request) { return request.deadline <= now; });
}

template <class Predicate>
std::vector<Request> Arbiter::remove_if(Predicate&& leaves) {
  std::vector<Request> removed;
  for (auto& line : lines_) {
    const auto rest = std::stable_partition(line.begin(), line.end(),
                                            [&](const Request& request) { return !leaves(request); });
    removed.insert(removed.end(), rest, line.end());
    line.erase(rest, line.end());
  }
  return removed;
}

std::optional<TimePoint> Arbiter::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& line : lines_) {
    for (const Request& request : line) {
      if (!next || request.deadline < *next) next = request.deadline;
    }
  }
  return next;
}

std::size_t Arbiter::waiting(DeviceIndex device, TenantId tenant) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      lines_[device], [&](const Request& request) { return request.tenant == tenant; }));
}

Bytes Arbiter::waiting_bytes(SliceId slice) const {
  Bytes sum;
  for (const auto& line : lines_) {
    for (const Request& request : line) {
      if (request.slice == slice) sum += request.bytes;
    }
  }
  return sum;
}

std::size_t Arbiter::waiting_of(SessionId session) const {
  std::ptrdiff_t count = 0;
  for (const auto& line : lines_) {
    count += std::ranges::count_if(line, [&](const Request& request) { return request.session == session; });
  }
  return static_cast<std::size_t>(count);
}

std::size_t Arbiter::waiting_before(const Request& request) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      lines_[request.device], [&](const Request& other) { return other.id < request.id; }));
}

}  // namespace gpumem::core
