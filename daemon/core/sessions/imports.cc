#include "daemon/core/sessions/imports.h"

#include <cstring>

#include "daemon/core/words/algorithms.h"
#include "daemon/core/words/refusals.h"

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

Result<void> Imports::check_room(SessionId session) const {
  const auto own = by_session_.find(session);
  if (own == by_session_.end() || own->second.size() < kMostOfSession) return {};
  return refusal(Bound::kImports, "the session has " + std::to_string(own->second.size()) +
                                      " imports, as many as it may; close some");
}

ImportId Imports::add(SessionId session, std::vector<LeaseId> leases) {
  const ImportId id = ids_.next();
  put(id, session, std::move(leases));
  return id;
}

void Imports::restore(ImportId id, SessionId session, std::vector<LeaseId> leases) {
  ids_.skip(id);
  put(id, session, std::move(leases));
}

void Imports::put(ImportId id, SessionId session, std::vector<LeaseId> leases) {
  for (const LeaseId lease : leases) {
    change_user(shared_.at(lease), session, [](std::size_t uses) { return uses + 1; });
    by_user_[session].insert(lease);
  }
  by_session_[session].emplace(id, std::move(leases));
}

void Imports::restore_suspect(LeaseId lease, SessionId session) {
  change_user(shared_.at(lease), session, [](std::size_t uses) { return uses; });
  by_user_[session].insert(lease);
}

const std::map<ImportId, std::vector<LeaseId>>& Imports::of(SessionId session) const {
  static const std::map<ImportId, std::vector<LeaseId>> none;
  const auto own = by_session_.find(session);
  return own == by_session_.end() ? none : own->second;
}

Result<std::vector<LeaseId>> Imports::release(SessionId session, ImportId import) {
  const auto own = by_session_.find(session);
  if (own == by_session_.end() || !own->second.contains(import))
    return Error{Code::kNotFound, "the session has no such import"};
  std::vector<LeaseId> unused = std::move(own->second.extract(import).mapped());
  if (own->second.empty()) by_session_.erase(own);
  std::erase_if(unused, [&](LeaseId lease) {
    const auto shared = shared_.find(lease);
    if (shared == shared_.end()) return true;
    change_user(shared->second, session, [](std::size_t uses) { return uses - 1; });
    return shared->second.users.at(session) != 0;
  });
  return unused;
}

void Imports::release_all(SessionId session, bool forever) {
  if (const auto own = by_session_.extract(session); !own.empty()) {
    for (const auto& [import, leases] : own.mapped()) {
      for (const LeaseId lease : leases) {
        const auto shared = shared_.find(lease);
        if (shared != shared_.end())
          change_user(shared->second, session, [](std::size_t) { return std::size_t{0}; });
      }
    }
  }
  if (!forever) return;
  const auto known = by_user_.extract(session);
  if (known.empty()) return;
  for (const LeaseId lease : known.mapped()) {
    Shared& shared = shared_.at(lease);
    count(shared, session, Count::kOut);
    shared.users.erase(session);
  }
}

bool Imports::suspects(LeaseId lease, SessionId session) const {
  const Shared* const shared = find(lease);
  if (shared == nullptr) return false;
  const auto user = shared->users.find(session);
  return user != shared->users.end() && user->second == 0;
}

std::vector<LeaseId> Imports::suspected_of(SessionId session) const {
  std::vector<LeaseId> leases;
  const auto known = by_user_.find(session);
  if (known == by_user_.end()) return leases;
  for (const LeaseId lease : known->second)
    if (suspects(lease, session)) leases.push_back(lease);
  return leases;
}

void Imports::add_to(Checkpoint& checkpoint) const {
  for (const auto& [session, imports] : by_session_)
    for (const auto& [id, leases] : imports)
      checkpoint.imports.emplace(id, Checkpoint::Import{id, session, leases});
  for (const auto& [lease, shared] : shared_)
    for (const auto& [user, uses] : shared.users)
      if (uses == 0) checkpoint.suspects.emplace(lease, user);
}

void Imports::remember_with(SessionId from, SessionId to) {
  const auto known = by_user_.extract(from);
  if (known.empty()) return;
  for (const LeaseId lease : known.mapped()) {
    Shared& shared = shared_.at(lease);
    count(shared, from, Count::kOut);
    shared.users.erase(from);
    change_user(shared, to, [](std::size_t uses) { return uses; });
    by_user_[to].insert(lease);
  }
}

void Imports::share(LeaseId lease, const Shared& shared) { shared_.try_emplace(lease, shared); }

const Imports::Shared* Imports::find(LeaseId lease) const {
  const auto found = shared_.find(lease);
  return found == shared_.end() ? nullptr : &found->second;
}

void Imports::set_unproved(LeaseId lease, bool unproved) {
  const auto found = shared_.find(lease);
  if (found == shared_.end() || found->second.unproved == unproved) return;
  count_all(found->second, Count::kOut);
  found->second.unproved = unproved;
  count_all(found->second, Count::kIn);
}

const std::set<LeaseId>& Imports::known(SessionId session) const {
  static const std::set<LeaseId> none;
  const auto own = by_user_.find(session);
  return own == by_user_.end() ? none : own->second;
}

void Imports::pass(LeaseId lease, SessionId holder, bool may_keep) {
  Shared& shared = shared_.at(lease);
  count_all(shared, Count::kOut);
  if (may_keep) {
    shared.users.try_emplace(shared.holder);
    by_user_[shared.holder].insert(lease);
  }
  shared.holder = holder;
  count_all(shared, Count::kIn);
}

std::vector<SessionId> Imports::forget(LeaseId lease) {
  std::vector<SessionId> users;
  const auto shared = shared_.find(lease);
  if (shared == shared_.end()) return users;
  count_all(shared->second, Count::kOut);
  for (const auto& [user, uses] : shared->second.users) {
    drop(user, lease);
    users.push_back(user);
  }
  shared_.erase(shared);
  return users;
}

const std::map<SessionId, Imports::Kept>& Imports::keepers(SessionId holder, DeviceIndex device) const {
  static const std::map<SessionId, Kept> nobody;
  const auto found = keepers_.find({holder, device});
  return found == keepers_.end() ? nobody : found->second;
}

Imports::Kept Imports::kept(SessionId session, DeviceIndex device) const {
  const auto found = kept_.find({session, device});
  return found == kept_.end() ? Kept{} : found->second;
}

void Imports::drop(SessionId user, LeaseId lease) {
  const auto own = by_user_.find(user);
  own->second.erase(lease);
  if (own->second.empty()) by_user_.erase(own);
}

template <class Change>
void Imports::change_user(Shared& shared, SessionId user, Change change) {
  const bool is_new = !shared.users.contains(user);
  if (!is_new) count(shared, user, Count::kOut);
  std::size_t& uses = shared.users[user];
  uses = change(uses);
  count(shared, user, Count::kIn);
}

void Imports::count_all(const Shared& shared, Count how) {
  for (const auto& [user, uses] : shared.users) count(shared, user, how);
}

// What a session has imported of its own is its own.
void Imports::count(const Shared& shared, SessionId user, Count how) {
  if (user == shared.holder) return;
  const std::size_t uses = shared.users.at(user);
  const auto add = [&](Kept& sum) {
    const auto one = [&](Bytes& bytes, bool counts) {
      if (counts) bytes = how == Count::kIn ? bytes + shared.size : bytes - shared.size;
    };
    one(sum.used, uses != 0);
    one(sum.suspected, uses == 0 && shared.unproved);
    one(sum.known, true);
    return sum.known.is_zero();
  };
  const OnDevice holder{shared.holder, shared.device}, own{user, shared.device};
  auto& keepers = keepers_[holder];
  if (add(keepers[user])) keepers.erase(user);
  if (keepers.empty()) keepers_.erase(holder);
  if (add(kept_[own])) kept_.erase(own);
}

}  // namespace gpumem::core
