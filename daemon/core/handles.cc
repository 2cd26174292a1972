#include "daemon/core/handles.h"

#include <cstring>

#include "daemon/core/drop_from.h"
#include "daemon/core/refusals.h"

namespace gpumem::core {
// The last of the bytes are random.
std::size_t Handles::Hash::operator()(const HandleBytes& bytes) const {
  std::size_t hash = 0;
  std::memcpy(&hash, bytes.data() + bytes.size() - sizeof hash, sizeof hash);
  return hash;
}

// No uses: it has ended.
void Handles::record(const HandleBytes& bytes, const Handle& handle, std::uint64_t uses) {
  if (handle.region)
    return outbox_.record(
        Checkpoint::RegionHandle{bytes, handle.holder, handle.region, handle.expires, uses});
  Checkpoint::Handle one{};
  one.name = bytes;
  if (uses != 0) {
    one = {bytes,         handle.holder, handle.device,  handle.leases,
           handle.offset, handle.bytes,  handle.expires, uses};
  }
  outbox_.record(std::move(one));
}

Result<void> Handles::check_room(const Handle& handle, TimePoint now) {
  const auto count = [](const auto& index, auto of) {
    const auto own = index.find(of);
    return own == index.end() ? 0 : own->second.size();
  };
  const auto full = [](const std::string& who, std::size_t most, const std::string& what) {
    return refusal(Bound::kHandles,
                   "the " + who + " has " + std::to_string(most) + " " + what +
                       " that nobody has redeemed, as many as it may; let them expire sooner");
  };
  if (count(by_holder_, handle.holder) >= kMostOfSession) drop_expired(handle.holder, now);
  if (count(by_holder_, handle.holder) >= kMostOfSession) return full("session", kMostOfSession, "handles");
  if (!handle.region) return {};
  drop_expired_of_regions(handle.tenant, now);
  if (count(by_tenant_, handle.tenant) >= kMostOfTenant)
    return full("tenant", kMostOfTenant, "handles of regions");
  return {};
}

Result<void> Handles::add(const HandleBytes& bytes, Handle handle, TimePoint now) {
  if (auto room = check_room(handle, now); !room) return room;
  const Number number = ++last_;
  by_bytes_.emplace(bytes, number);
  by_holder_[handle.holder].insert(number);
  for (const LeaseId lease : handle.leases) by_lease_[lease].insert(number);
  if (handle.region) {
    by_region_[handle.region].insert(number);
    by_tenant_[handle.tenant].emplace(handle.expires, number);
  }
  record(bytes, handle, handle.uses);
  handles_.emplace(number, Entry{bytes, std::move(handle)});
  return {};
}

const Handle* Handles::find(const HandleBytes& bytes, TimePoint now) const {
  const auto number = by_bytes_.find(bytes);
  if (number == by_bytes_.end()) return nullptr;
  const Handle& handle = handles_.at(number->second).handle;
  return handle.expires <= now ? nullptr : &handle;
}

void Handles::use(const HandleBytes& bytes) {
  const Number number = by_bytes_.at(bytes);
  Handle& handle = handles_.at(number).handle;
  if (--handle.uses == 0)
    erase(number);
  else
    record(bytes, handle, handle.uses);
}

bool Handles::revoke(SessionId holder, const HandleBytes& bytes) {
  const auto number = by_bytes_.find(bytes);
  if (number == by_bytes_.end() || handles_.at(number->second).handle.holder != holder) return false;
  erase(number->second);
  return true;
}

void Handles::add_to(Checkpoint& checkpoint) const {
  for (const auto& [number, entry] : handles_) {
    const Handle& one = entry.handle;
    if (one.region)
      checkpoint.region_handles[entry.bytes] = {entry.bytes, one.holder, one.region, one.expires, one.uses};
    else
      checkpoint.handles[entry.bytes] = {entry.bytes, one.holder, one.device,  one.leases,
                                         one.offset,  one.bytes,  one.expires, one.uses};
  }
}

void Handles::drop(LeaseId lease) {
  const auto named = by_lease_.find(lease);
  if (named == by_lease_.end()) return;
  for (const Number number : Numbers(named->second)) erase(number);
}

void Handles::drop(RegionId region) {
  const auto named = by_region_.find(region);
  if (named == by_region_.end()) return;
  for (const Number number : std::set(named->second)) erase(number);
}

void Handles::drop_all_of(SessionId holder) {
  const auto own = by_holder_.find(holder);
  if (own == by_holder_.end()) return;
  for (const Number number : Numbers(own->second)) erase(number);
}

void Handles::move(SessionId holder, TenantId to) {
  const auto own = by_holder_.find(holder);
  if (own == by_holder_.end()) return;
  for (const Number number : own->second) {
    Handle& handle = handles_.at(number).handle;
    if (!handle.region) continue;
    drop_from(by_tenant_, std::exchange(handle.tenant, to), std::pair(handle.expires, number));
    by_tenant_[to].emplace(handle.expires, number);
  }
}

void Handles::drop_expired_of_regions(TenantId tenant, TimePoint now) {
  for (auto own = by_tenant_.find(tenant); own != by_tenant_.end(); own = by_tenant_.find(tenant)) {
    const auto& [expires, number] = *own->second.begin();
    if (expires > now) return;
    erase(number);
  }
}

void Handles::drop_expired(SessionId holder, TimePoint now) {
  for (const Number number : Numbers(by_holder_.at(holder))) {
    if (handles_.at(number).handle.expires <= now) erase(number);
  }
}

void Handles::erase(Number number) {
  const auto entry = handles_.extract(number);
  const Handle& handle = entry.mapped().handle;
  record(entry.mapped().bytes, handle, 0);
  by_bytes_.erase(entry.mapped().bytes);
  drop_from(by_holder_, handle.holder, number);
  for (const LeaseId lease : handle.leases) drop_from(by_lease_, lease, number);
  if (!handle.region) return;
  drop_from(by_region_, handle.region, number);
  drop_from(by_tenant_, handle.tenant, std::pair(handle.expires, number));
}

}  // namespace gpumem::core
