#include "daemon/core/handles.h"

#include <cstring>

#include "daemon/core/algorithms.h"
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
  Checkpoint::Handle one{};
  one.name = bytes;
  if (uses != 0) {
    one = {bytes,         handle.holder, handle.device,  handle.leases,
           handle.offset, handle.bytes,  handle.expires, uses};
  }
  outbox_.record(std::move(one));
}

Result<void> Handles::add(const HandleBytes& bytes, Handle handle, TimePoint now) {
  const auto is_full = [&] {
    const auto own = by_holder_.find(handle.holder);
    return own != by_holder_.end() && own->second.size() >= kMostOfSession;
  };
  if (is_full()) drop_expired(handle.holder, now);
  if (is_full()) {
    return refusal(Bound::kHandles, "the session has " + std::to_string(kMostOfSession) +
                                        " handles that nobody has redeemed, as many as it may; let them "
                                        "expire sooner");
  }
  const Number number = ++last_;
  by_bytes_.emplace(bytes, number);
  by_holder_[handle.holder].insert(number);
  for (const LeaseId lease : handle.leases) by_lease_[lease].insert(number);
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
    checkpoint.handles[entry.bytes] = {entry.bytes, one.holder, one.device,  one.leases,
                                       one.offset,  one.bytes,  one.expires, one.uses};
  }
}

void Handles::drop(LeaseId lease) {
  const auto named = by_lease_.find(lease);
  if (named == by_lease_.end()) return;
  for (const Number number : Numbers(named->second)) erase(number);
}

void Handles::drop_all_of(SessionId holder) {
  const auto own = by_holder_.find(holder);
  if (own == by_holder_.end()) return;
  for (const Number number : Numbers(own->second)) erase(number);
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
}

}  // namespace gpumem::core
