#pragma once
#include <cstdint>
#include <ext/pb_ds/assoc_container.hpp>
#include <ext/pb_ds/tree_policy.hpp>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/core/request.h"

namespace gpumem::core {

/// The requests that wait: by id, by device, by session, by user and by deadline. Ids are in the order of
/// arrival. Each operation takes logarithmic time at most, but those that give all requests of a session.
class WaitingRequests {
 public:
  explicit WaitingRequests(std::size_t devices) : on_device_(devices) {}

  /// `request`  was not added before.
  const Request& add(Request request);
  /// The request waits.
  Request take(RequestId id);
  void set_recorded(RequestId id) { requests_.at(id).is_recorded = true; }

  const Request* find(RequestId id) const;
  const Request& at(RequestId id) const { return requests_.at(id); }
  std::size_t size() const { return requests_.size(); }
  std::size_t size(DeviceIndex device) const { return on_device_[device].size(); }
  /// The requests for the device that arrived before `id`, which need not wait itself.
  std::size_t before(RequestId id, DeviceIndex device) const { return on_device_[device].order_of_key(id); }
  template <class See>
  void for_each(See&& see) const {
    for (const auto& [id, request] : requests_) see(request);
  }

  /// The request with the earliest deadline. Null: none waits.
  const Request* most_urgent() const {
    return deadlines_.empty() ? nullptr : &at(deadlines_.begin()->second);
  }
  /// The first request that arrived after `id`. Null: there is none.
  const Request* first_after(RequestId id) const {
    const auto next = requests_.upper_bound(id);
    return next == requests_.end() ? nullptr : &next->second;
  }

  void set_tenant(SessionId session, TenantId tenant);
  std::vector<RequestId> of(SessionId session) const;
  std::size_t count_of(SessionId session) const;
  /// The requests of a user or a pod (Peer::account).
  std::size_t count_of_account(std::uint64_t account) const;
  /// Whether a request of the session for the device is `id`, or arrived before it.
  bool waits_up_to(RequestId id, SessionId session, DeviceIndex device) const;
  Bytes wanted_for(SliceId slice) const;

 private:
  using Ranks = __gnu_pbds::tree<RequestId, __gnu_pbds::null_type, std::less<>, __gnu_pbds::rb_tree_tag,
                                 __gnu_pbds::tree_order_statistics_node_update>;

  std::map<RequestId, Request> requests_;
  std::vector<Ranks> on_device_;
  std::set<std::pair<TimePoint, RequestId>> deadlines_;
  std::unordered_map<SessionId, std::set<RequestId>> by_session_;
  std::unordered_map<std::uint64_t, std::size_t> by_account_;
  std::unordered_map<SliceId, Bytes> by_slice_;
};

}  // namespace gpumem::core
