#pragma once
#include <map>
#include <optional>
#include <vector>

#include "daemon/core/arbiter/device_order.h"
#include "daemon/core/arbiter/waiting_requests.h"
#include "daemon/core/ledger/ledger.h"
#include "daemon/core/words/request.h"

namespace gpumem::core {

/// Decides who is granted what, when: docs/arbiter.md has the rules, and what an event costs.
class Arbiter {
 public:
  /// `granularity`  of each device: what is granted beyond the least is a multiple of it.
  Arbiter(Ledger& ledger, std::vector<Bytes> granularities, Duration aging);

  /// `request`  was not added before. Requests go in the order of their ids.
  void add(Request request);
  /// The request waits, and is recorded for the next broker.
  void set_recorded(RequestId id) { waiting_.set_recorded(id); }
  /// Grants, and charges, all that can be granted now.
  std::vector<Granted> admit();
  /// Grants the request, though others may be first. None: it does not fit.
  std::optional<Granted> grant_out_of_turn(RequestId id);
  /// Takes a request out. None: it does not wait.
  std::optional<Request> remove(RequestId id);
  std::vector<Request> remove_all_of(SessionId session);
  /// Removes the session's requests, whose tenant changes. Claims among them keep their numbers.
  std::vector<Request> take_out(SessionId session);
  void put_back(std::vector<Request> requests);
  /// Takes out requests whose deadline has come, the most urgent ones, `most` of them.
  std::vector<Request> remove_expired(TimePoint now, std::size_t most);
  /// Makes the requests overdue that have waited long: only claims overtake them from now on.
  void age(TimePoint now);
  /// Orders all requests anew, after a change of the tree or of many quotas.
  void rebuild();
  void set_aging(Duration aging, TimePoint now);
  /// Moves the requests of the session to another leaf, `job`'s or none's, but not its reservation's. Those
  /// for contexts go to `besides`. The caller calls rebuild() afterwards.
  void set_tenant(SessionId session, TenantId tenant, CommandJobId job, TenantId besides);

  std::optional<TimePoint> next_deadline() const;
  const Request* find(RequestId id) const { return waiting_.find(id); }
  /// The first request that arrived after `id`. Null: there is none.
  const Request* first_after(RequestId id) const { return waiting_.first_after(id); }
  /// Whether the request is a claim: within guarantees on every device that it asks for.
  bool is_claim(RequestId id, DeviceIndex device) const { return claims_.contains(id, device); }
  /// The claims that wait on a device, in the order of arrival, each with what it needs; and their sum.
  const std::map<RequestId, Bytes>& claims(DeviceIndex device) const { return claims_.of(device); }
  Bytes claimed(DeviceIndex device) const { return claims_.sum(device); }
  /// As Claims::last_number() and Claims::any_up_to().
  std::uint64_t last_claim() const { return claims_.last_number(); }
  bool any_claim_up_to(std::uint64_t number, DeviceIndex device) const {
    return claims_.any_up_to(number, device);
  }
  /// The sum of all claims but this request, if the device lends idle guarantees; else zero.
  Bytes spoken_for(RequestId id, DeviceIndex device) const;
  GrantTerms terms_of(const Request& request, DeviceIndex device) const;
  /// The first request that is not a claim. It does not fit at present.
  std::optional<RequestId> next(DeviceIndex device) const;

  /// Changes whenever the requests for the device or their order change. A request that came and went while
  /// nothing else changed has changed nothing.
  std::uint64_t revision(DeviceIndex device) const {
    const Undone& undone = undone_[device];
    return changes(device) == undone.changes ? undone.revision : changes(device);
  }
  /// Tenants whose own limit holds back the first request below them, with that request.
  const std::map<TenantId, RequestId>& held_back(DeviceIndex device) const {
    return orders_[device].held_back();
  }
  /// The first requests of leaves that have no room for them, with the leaf.
  const std::map<RequestId, TenantId>& full(DeviceIndex device) const { return orders_[device].full(); }

  template <class See>
  void for_each(See&& see) const {
    waiting_.for_each(see);
  }
  std::size_t waiting() const { return waiting_.size(); }
  std::size_t waiting(DeviceIndex device) const { return waiting_.size(device); }
  std::size_t waiting(DeviceIndex device, TenantId tenant) const { return orders_[device].waiting(tenant); }
  /// The requests of the tenant and of all tenants below it.
  std::size_t waiting_below(DeviceIndex device, TenantId tenant) const {
    return orders_[device].waiting_below(tenant);
  }
  Bytes waiting_bytes(SliceId slice) const { return waiting_.wanted_for(slice); }
  Bytes wanted_by(TenantId leaf, DeviceIndex device) const { return waiting_.wanted_by(leaf, device); }
  void take_touched(Ledger::Changes& into) { waiting_.take_touched(into); }
  std::size_t waiting_of(SessionId session) const { return waiting_.count_of(session); }
  /// The requests of a user or a pod (Peer::account).
  std::size_t waiting_of_account(std::uint64_t account) const { return waiting_.count_of_account(account); }
  /// Whether a request of the session for the device is `id`, or arrived before it.
  bool waits_up_to(RequestId id, SessionId session, DeviceIndex device) const {
    return waiting_.waits_up_to(id, session, device);
  }
  /// The requests for the device that arrived before `id`, which need not wait itself.
  std::size_t waiting_before(RequestId id, DeviceIndex device) const { return waiting_.before(id, device); }
  std::vector<RequestId> requests_of(SessionId session) const { return waiting_.of(session); }

 private:
  // So many changes of a device leave it as it was at a revision.
  struct Undone {
    std::uint64_t changes = 0;
    std::uint64_t revision = 0;
  };

  std::uint64_t changes(DeviceIndex device) const {
    return orders_[device].revision() + claims_.revision(device);
  }
  /// The first request that is not overdue.
  const Request* next_to_age() const { return waiting_.first_after(last_overdue_); }
  Request take_out(RequestId id);
  void refresh(TenantId tenant, DeviceIndex device);
  void refresh(const Request& request);
  void take_changes();
  bool are_linked(DeviceIndex one, DeviceIndex other) const;
  void add_linked(Ledger::Changes& changes) const;

  bool grant_one(DeviceIndex device, std::vector<Granted>& granted);
  bool fits(const Candidate& candidate, DeviceIndex device) const;
  bool fits(const Request& request) const;
  bool overtakes(const Candidate& candidate, DeviceIndex device) const;
  bool is_to_be_looked_at(DeviceIndex device, bool any_changed) const;
  Bytes amount(const Request& request, const Request::Part& part) const;
  Granted grant(RequestId id);

  Ledger& ledger_;
  std::vector<Bytes> granularities_;
  Duration aging_;
  WaitingRequests waiting_;
  RequestId last_overdue_;  ///< this request and all that arrived before it are overdue
  Claims claims_;
  std::vector<DeviceOrder> orders_;           ///< by device
  std::vector<bool> changed_;                 ///< by device: a request may fit that did not
  std::vector<std::uint64_t> claims_seen_;    ///< by device: the revision of claims_ at the last look
  std::vector<std::uint64_t> promises_seen_;  ///< by device: the ledger's promises_revision at the last look
  Ledger::Changes changes_;                   ///< a buffer for take_changes()
  RequestId newest_;                          ///< the request that was added last
  std::vector<Undone> at_newest_;             ///< by part: the changes with it, the revision without
  std::vector<Undone> undone_;                ///< by device
};

}  // namespace gpumem::core
