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

/// Requests of sessions that wait until a deadline, each for what its key says. `Wait` has `session`,
/// `deadline`, `key()`, and `kWhat`, what the session waits for.
template <class Wait>
class Waits {
 public:
  static constexpr std::size_t kMostOfSession = 64;
  using Key = std::remove_cvref_t<decltype(std::declval<const Wait&>().key())>;

  /// Errors  kResourceExhausted: the session waits for as many as it may.
  Result<void> add(RequestId id, Wait wait) {
    std::set<RequestId>& of_session = by_session_[wait.session];
    if (of_session.size() >= kMostOfSession) {
      return refusal(Bound::kRegions, "the session waits for " + std::to_string(kMostOfSession) + " " +
                                          Wait::kWhat + ", as many as it may");
    }
    of_session.insert(id);
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
  /// `change`  may give the wait another key.
  template <class Change>
  void change(RequestId id, Change change) {
    Wait& wait = waits_.at(id);
    drop_from(by_key_, wait.key(), id);
    change(wait);
    by_key_[wait.key()].insert(id);
  }

 private:
  template <class Index, class Of>
  static std::vector<RequestId> found(const Index& index, const Of& of) {
    const auto found = index.find(of);
    if (found == index.end()) return {};
    return {found->second.begin(), found->second.end()};
  }

  std::map<RequestId, Wait> waits_;
  std::map<Key, std::set<RequestId>> by_key_;
  std::map<SessionId, std::set<RequestId>> by_session_;
  std::set<std::pair<TimePoint, RequestId>> by_deadline_;
};

}  // namespace gpumem::core
