#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/core/words/requests.h"
#include "gpumem/result.h"

namespace gpumem::core {

/// A session's request for a region that is not published yet, or not shared with its tenant.
struct RegionWait {
  SessionId session;
  TenantId tenant;          ///< the session's
  MapRegion terms;          ///< its owner is named
  bool is_own = false;      ///< the owner is the session's tenant, whoever that is
  bool is_pressed = false;  ///< the region exists, but its memory is being reclaimed
  TimePoint since{};
  TimePoint deadline{};

  std::tuple<std::string, std::string, TenantId> key() const { return {terms.owner, terms.name, tenant}; }
};

/// Requests of sessions that wait for regions, each until its deadline.
class RegionWaits {
 public:
  static constexpr std::size_t kMostOfSession = 64;
  /// One event may have to look at all of them: they can wait for one name.
  static constexpr std::size_t kMostOfTenant = 4096;
  using Key = std::tuple<std::string, std::string, TenantId>;  ///< owner, name, the waiting tenant

  /// Errors  kResourceExhausted: the session, or its tenant, waits for as many as it may.
  Result<void> add(RequestId id, RegionWait wait);
  /// Nothing: the request does not wait.
  std::optional<RegionWait> take(RequestId id);
  const RegionWait* find(RequestId id) const {
    const auto found = waits_.find(id);
    return found == waits_.end() ? nullptr : &found->second;
  }
  void drop_all_of(SessionId session) {
    for (const RequestId id : found(by_session_, session)) take(id);
  }
  /// Requests of that key, in the order they came.
  std::vector<RequestId> of(const Key& key) const { return found(by_key_, key); }
  std::vector<RequestId> all() const;
  /// `most` of those whose deadline has come.
  std::vector<RequestId> expired(TimePoint now, std::size_t most) const;
  std::optional<TimePoint> next_deadline() const {
    return by_deadline_.empty() ? std::nullopt : std::optional(by_deadline_.begin()->first);
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
  /// Tenants with sessions that wait for a region of that name.
  std::vector<TenantId> tenants_for(const std::string& owner, const std::string& name) const;
  /// Owners and names that are waited for.
  std::vector<std::pair<std::string, std::string>> names() const;

  /// The request can probably be answered.
  void note_due(RequestId id) { due_.insert(id); }
  /// The first noted request that still waits, in the order of arrival.
  std::optional<RequestId> take_due();
  bool has_due() const { return !due_.empty(); }

  void note_pressed(RequestId id) {
    waits_.at(id).is_pressed = true;
    pressed_.insert(id);
  }
  /// The requests that were noted since the last call and still wait.
  std::vector<RequestId> take_pressed();
  /// The session belongs to another tenant now, however many that has already. Its waits for regions of its
  /// own tenant are for regions of the new one.
  void follow(SessionId session, TenantId tenant, const std::string& tenant_name);

 private:
  template <class Index, class Of>
  static std::vector<RequestId> found(const Index& index, const Of& of) {
    const auto found = index.find(of);
    if (found == index.end()) return {};
    return {found->second.begin(), found->second.end()};
  }
  void count_out(TenantId tenant);

  std::map<RequestId, RegionWait> waits_;
  std::map<Key, std::set<RequestId>> by_key_;
  std::map<SessionId, std::set<RequestId>> by_session_;
  std::map<TenantId, std::size_t> count_of_tenant_;
  std::set<std::pair<TimePoint, RequestId>> by_deadline_;
  std::set<RequestId> pressed_;
  std::set<RequestId> due_;
};

/// A name of a tenant that a session has reserved: it is going to publish a region under it.
struct Reservation {
  ReservationId id;
  SessionId holder;
  std::string owner;  ///< the tenant's name
  std::string name;
  TimePoint expires{};
  std::uint64_t number = 0;  ///< the holder's own of the request that got it
};

/// The names that are reserved, each by one session. Publishing needs none. Not journaled: a restart of the
/// broker ends them all.
class RegionReservations {
 public:
  static constexpr std::size_t kMostOfSession = 64;

  /// Gives it its id, which is higher than that of every one before, whichever broker of this boot has given
  /// it out. The name is free. Errors  kResourceExhausted: the session has as many as it may.
  Result<Reservation> add(Reservation reservation, TimePoint now);
  /// Null: the name is free.
  const Reservation* find(const std::string& owner, const std::string& name) const;
  /// Nothing: the holder has none with this id (any more).
  std::optional<Reservation> take(SessionId holder, ReservationId id);
  /// By the holder's own number of the request.
  std::optional<Reservation> take_asked(SessionId holder, std::uint64_t number);
  /// The holder has published a region of the name.
  void fulfil(SessionId holder, const std::string& owner, const std::string& name);
  /// Both return those that have ended; the second takes `most` at one time.
  std::vector<Reservation> take_all_of(SessionId holder);
  std::vector<Reservation> take_expired(TimePoint now, std::size_t most);
  std::optional<TimePoint> next_expiry() const;

 private:
  Reservation take(ReservationId id);

  IdSource<ReservationId> ids_;
  std::map<ReservationId, Reservation> reservations_;
  std::map<std::pair<std::string, std::string>, ReservationId> by_name_;
  std::map<SessionId, std::set<ReservationId>> by_holder_;
  std::set<std::pair<TimePoint, ReservationId>> by_expiry_;
};

}  // namespace gpumem::core
