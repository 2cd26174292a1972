#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/drop_from.h"
#include "daemon/core/refusals.h"
#include "daemon/core/types.h"

namespace gpumem::core {

/// Requests of sessions that wait until a deadline, each for what its key says. `Wait` has `session`, the
/// `tenant` of that, `deadline`, `key()`, and `kWhat`, what the session waits for.
template <class Wait>
class Waits {
 public:
  static constexpr std::size_t kMostOfSession = 64;
  /// They all may wait for one thing, and are looked at in one event.
  static constexpr std::size_t kMostOfTenant = 4096;
  using Key = std::remove_cvref_t<decltype(std::declval<const Wait&>().key())>;

  /// Errors  kResourceExhausted: the session, or its tenant, waits for as many as it may.
  Result<void> add(RequestId id, Wait wait) {
    const auto full = [](const std::string& who, std::size_t most) {
      return refusal(Bound::kRegions, "the " + who + " waits for " + std::to_string(most) + " " +
                                          Wait::kWhat + ", as many as it may");
    };
    if (count_of(wait.session) >= kMostOfSession) return full("session", kMostOfSession);
    if (count_of(wait.tenant) >= kMostOfTenant) return full("tenant", kMostOfTenant);
    by_session_[wait.session].insert(id);
    ++count_of_tenant_[wait.tenant];
    by_key_[wait.key()].insert(id);
    by_deadline_.emplace(wait.deadline, id);
    waits_.emplace(id, std::move(wait));
    return {};
  }
  /// Nothing: nobody waits by this number (any more).
  std::optional<Wait> take(RequestId id) {
    auto taken = waits_.extract(id);
    if (taken.empty()) return std::nullopt;
    Wait& wait = taken.mapped();
    drop_from(by_key_, wait.key(), id);
    drop_from(by_session_, wait.session, id);
    count_out(wait.tenant);
    by_deadline_.erase({wait.deadline, id});
    return std::move(wait);
  }
  const Wait* find(RequestId id) const {
    const auto found = waits_.find(id);
    return found == waits_.end() ? nullptr : &found->second;
  }
  void drop_all_of(SessionId session) {
    for (const RequestId id : found(by_session_, session)) take(id);
  }
  /// Those of that key, in the order they came.
  std::vector<RequestId> of(const Key& key) const { return found(by_key_, key); }
  /// The session belongs to another tenant now, however many that has already.
  void move(SessionId session, TenantId to) {
    for (const RequestId id : of_session(session)) change(id, [to](Wait& wait) { wait.tenant = to; });
  }
  std::vector<RequestId> all() const {
    std::vector<RequestId> ids;
    for (const auto& [id, wait] : waits_) ids.push_back(id);
    return ids;
  }
  /// How many the session has.
  std::size_t count_of(SessionId session) const {
    const auto found = by_session_.find(session);
    return found == by_session_.end() ? 0 : found->second.size();
  }
  /// How many the tenant's sessions have together.
  std::size_t count_of(TenantId tenant) const {
    const auto found = count_of_tenant_.find(tenant);
    return found == count_of_tenant_.end() ? 0 : found->second;
  }
  std::vector<RequestId> expired(TimePoint now) const {
    std::vector<RequestId> ids;
    for (const auto& [deadline, id] : by_deadline_) {
      if (deadline > now) break;
      ids.push_back(id);
    }
    return ids;
  }
  std::optional<TimePoint> next_deadline() const {
    return by_deadline_.empty() ? std::nullopt : std::optional(by_deadline_.begin()->first);
  }

 protected:
  std::vector<RequestId> of_session(SessionId session) const { return found(by_session_, session); }
  const std::map<Key, std::set<RequestId>>& by_key() const { return by_key_; }
  /// `change`  may give the wait another key, or tenant.
  template <class Change>
  void change(RequestId id, Change change) {
    Wait& wait = waits_.at(id);
    drop_from(by_key_, wait.key(), id);
    count_out(wait.tenant);
    change(wait);
    by_key_[wait.key()].insert(id);
    ++count_of_tenant_[wait.tenant];
  }

 private:
  template <class Index, class Of>
  static std::vector<RequestId> found(const Index& index, const Of& of) {
    const auto found = index.find(of);
    if (found == index.end()) return {};
    return {found->second.begin(), found->second.end()};
  }

  void count_out(TenantId tenant) {
    const auto found = count_of_tenant_.find(tenant);
    if (--found->second == 0) count_of_tenant_.erase(found);
  }

  std::map<RequestId, Wait> waits_;
  std::map<Key, std::set<RequestId>> by_key_;
  std::map<SessionId, std::set<RequestId>> by_session_;
  std::map<TenantId, std::size_t> count_of_tenant_;
  std::set<std::pair<TimePoint, RequestId>> by_deadline_;
};

}  // namespace gpumem::core
