#include "tests/model/region_reference.h"

#include <algorithm>

namespace gpumem::core::model {

TimePoint RegionReference::Region::ends() const {
  if (left == TimePoint::max() || linger == Duration::max()) return expires;
  return std::min(expires, left + linger);
}

void RegionReference::lend(LeaseId lease, SessionId session, Bytes size) {
  memory_[lease] = {
      tenant_of(session),
      size,
      {{session, 1}},
      {session},
  };
}

bool RegionReference::may_seal(const std::vector<LeaseId>& memory, bool is_sealed) const {
  return std::ranges::all_of(memory, [&](LeaseId lease) {
    const std::vector<RegionId> ids = regions_of(lease);
    int uses = 0;
    const Memory& one = memory_.at(lease);
    for (const auto& [session, times] : one.has) uses += times;
    if (ids.empty()) return !is_sealed || (uses == 1 && one.has_had.size() == 1);
    return std::ranges::all_of(ids, [&](RegionId id) { return regions_.at(id).sealed == is_sealed; });
  });
}

RegionId RegionReference::find(SessionId session, const std::string& owner, const std::string& name,
                               std::optional<DeviceIndex> device) const {
  RegionId newest{};
  for (const auto& [id, region] : regions_) {
    const bool may = owner == tenant_of(session) || region.is_public;
    if (may && region.owner == owner && region.name == name &&
        region.device == device.value_or(region.device))
      newest = std::max(newest, id);
  }
  return newest;
}

void RegionReference::map(SessionId session, RegionId region, TimePoint now) {
  for (const LeaseId lease : regions_.at(region).memory) {
    ++memory_.at(lease).has[session];
    memory_.at(lease).has_had.insert(session);
  }
  settle(now);
}

RegionReference::May RegionReference::may_adopt(SessionId session, RegionId region) const {
  if (!regions_.at(region).kept) return May::kNot;
  May may = May::kSurely;
  for (const LeaseId lease : regions_.at(region).memory) {
    const Memory& memory = memory_.at(lease);
    const bool others = std::ranges::any_of(memory.has, [&](const auto& one) {
      return one.first != session && tenant_of(one.first) == memory.tenant;
    });
    if (!others) continue;
    if (!memory.has.contains(session)) return May::kNot;
    may = May::kPerhaps;
  }
  return may;
}

void RegionReference::adopt(RegionId region) {
  Region& one = regions_.at(region);
  one.kept = false;
  one.linger = Duration::max();
  one.left = TimePoint::max();
}

void RegionReference::let_go(SessionId session, const std::vector<LeaseId>& memory, TimePoint now) {
  for (const LeaseId lease : memory) {
    std::map<SessionId, int>& has = memory_.at(lease).has;
    if (--has.at(session) == 0) has.erase(session);
  }
  settle(now);
}

void RegionReference::end(SessionId session, TimePoint now) {
  for (auto& [lease, memory] : memory_) {
    memory.has.erase(session);
    memory.has_had.erase(session);
  }
  settle(now);
}

void RegionReference::remove(RegionId region, TimePoint now) {
  erase(region);
  settle(now);
}

void RegionReference::pass_to(TimePoint now) {
  std::erase_if(regions_, [&](const auto& one) { return one.second.ends() <= now; });
  settle(now);
}

bool RegionReference::has(const Memory& memory, const std::string& tenant) const {
  return std::ranges::any_of(memory.has, [&](const auto& one) { return tenant_of(one.first) == tenant; });
}

std::vector<RegionId> RegionReference::regions_of(LeaseId lease) const {
  std::vector<RegionId> ids;
  for (const auto& [id, region] : regions_)
    if (std::ranges::find(region.memory, lease) != region.memory.end()) ids.push_back(id);
  return ids;
}

void RegionReference::settle(TimePoint now) {
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<LeaseId> leases;
    for (const auto& [lease, memory] : memory_) leases.push_back(lease);
    for (const LeaseId lease : leases) changed |= settle_one(lease, now);
  }
  note_left(now);
}

// "Who pays": a process of the tenant, then what is kept, then a reader of another tenant, then nobody.
bool RegionReference::settle_one(LeaseId lease, TimePoint) {
  Memory& memory = memory_.at(lease);
  if (has(memory, memory.tenant)) return false;
  const std::vector<RegionId> ids = regions_of(lease);
  const bool is_kept = std::ranges::any_of(ids, [&](RegionId id) { return regions_.at(id).kept; });
  bool changed = false;
  for (const RegionId id : ids) {
    if (is_kept && regions_.at(id).kept) continue;
    erase(id);
    changed = true;
  }
  if (is_kept) return changed;
  if (memory.has.empty())
    memory_.erase(lease);
  else
    memory.tenant = tenant_of(memory.has.begin()->first);
  return true;
}

void RegionReference::note_left(TimePoint now) {
  for (auto& [id, region] : regions_) {
    if (!region.kept) continue;
    const bool is_left =
        std::ranges::all_of(region.memory, [&](LeaseId lease) { return memory_.at(lease).has.empty(); });
    if (!is_left)
      region.left = TimePoint::max();
    else if (region.left == TimePoint::max())
      region.left = now;
  }
}

Bytes RegionReference::charged(const std::string& tenant) const {
  Bytes sum;
  for (const auto& [lease, memory] : memory_)
    if (memory.tenant == tenant) sum += memory.size;
  return sum;
}

Bytes RegionReference::kept(const std::string& tenant) const {
  Bytes sum;
  for (const auto& [lease, memory] : memory_)
    if (memory.tenant == tenant && !has(memory, tenant)) sum += memory.size;
  return sum;
}

}  // namespace gpumem::core::model
