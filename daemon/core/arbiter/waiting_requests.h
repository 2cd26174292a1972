#pragma once
#include <cstdint>
#include <ext/pb_ds/assoc_container.hpp>
#include <ext/pb_ds/tree_policy.hpp>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/core/arbiter/request_queue.h"
#include "daemon/core/ledger/ledger.h"
#include "daemon/core/words/request.h"

namespace gpumem::core {

/// The bytes that the request needs of the device: the least that it accepts, less the unused reservation of
/// its leaf. A request to reserve needs all of it.
inline Bytes needed_of(const Ledger& ledger, const Request& request, DeviceIndex device) {
  const Bytes least = request.part_on(device).min_bytes;
  return request.is_reservation() ? least : least.minus(ledger.reserved(request.tenant, device));
}

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

  void set_tenant(SessionId session, TenantId tenant, CommandJobId job, TenantId besides);
  std::vector<RequestId> of(SessionId session) const;
  std::size_t count_of(SessionId session) const;
  /// The requests of a user or a pod (Peer::account).
  std::size_t count_of_account(std::uint64_t account) const;
  /// Whether a request of the session for the device is `id`, or arrived before it.
  bool waits_up_to(RequestId id, SessionId session, DeviceIndex device) const;
  Bytes wanted_for(SliceId slice) const;
  /// The least that the requests of a leaf accept, all together.
  Bytes wanted_by(TenantId leaf, DeviceIndex device) const;
  /// The leaves whose wanted_by() may be another than at the last call. They replace the contents of `into`.
  void take_touched(Ledger::Changes& into) {
    into.clear();
    into.swap(touched_);
  }

 private:
  void count(const Request& request, bool more);

  using Ranks = __gnu_pbds::tree<RequestId, __gnu_pbds::null_type, std::less<>, __gnu_pbds::rb_tree_tag,
                                 __gnu_pbds::tree_order_statistics_node_update>;

  std::map<RequestId, Request> requests_;
  std::vector<Ranks> on_device_;
  std::set<std::pair<TimePoint, RequestId>> deadlines_;
  std::unordered_map<SessionId, std::set<RequestId>> by_session_;
  std::unordered_map<std::uint64_t, std::size_t> by_account_;
  std::unordered_map<SliceId, Bytes> by_slice_;
  std::map<std::pair<TenantId, DeviceIndex>, Bytes> by_leaf_;
  Ledger::Changes touched_;
};

/// The waiting claims: requests that are within guarantees on every device that they ask for. The search for
/// the first claim that the free memory suffices for takes logarithmic time for each set of devices that
/// claims ask for.
class Claims {
 public:
  Claims(const WaitingRequests& requests, const Ledger& ledger);

  /// The request is within a guarantee on the device. It waits. Counted, since several nodes may entitle it.
  void entitle(RequestId id, DeviceIndex device);
  /// Takes back one entitle(). The request need not wait any more.
  void disentitle(RequestId id, DeviceIndex device);
  /// What a request needs has changed.
  void renew(RequestId id);
  /// Takes everything back. A request that becomes a claim again before settle() keeps its number, because
  /// sessions are asked on behalf of the claims up to a number.
  void clear();
  /// A claim that is taken out, and becomes one again before settle(), keeps its number, too.
  void keep_number(RequestId id);
  void settle() { numbers_before_.clear(); }

  bool contains(RequestId id, DeviceIndex device) const { return devices_[device].claims.contains(id); }
  /// In the order of arrival, each with what it needs; and their sum.
  const std::map<RequestId, Bytes>& of(DeviceIndex device) const { return devices_[device].claims; }
  Bytes sum(DeviceIndex device) const { return devices_[device].sum; }
  Bytes sum_without(RequestId id, DeviceIndex device) const;
  /// Changes whenever the claims on the device change.
  std::uint64_t revision(DeviceIndex device) const { return devices_[device].revision; }
  bool any_joint(DeviceIndex device) const { return devices_[device].joint != 0; }
  /// The number of the request that became a claim last, on any device. Requests become claims in another
  /// order than they arrive in.
  std::uint64_t last_number() const { return last_number_; }
  /// Whether a request that became a claim before last_number() passed `number`, or then, is still a claim.
  bool any_up_to(std::uint64_t number, DeviceIndex device) const {
    const auto& numbers = devices_[device].numbers;
    return !numbers.empty() && *numbers.begin() <= number;
  }

  /// The first claim after `after` for which the free memory of each of its first kKeys devices suffices.
  std::optional<RequestId> first_at_most_free(DeviceIndex device, const Ledger& ledger,
                                              RequestId after) const;

 private:
  static constexpr std::size_t kKeys = 4;
  /// The claims for one set of devices. The amounts are by device of the set, in its order; zero beyond it.
  using Group = RequestQueue<kKeys>;
  using DeviceSet = std::vector<DeviceIndex>;
  using Groups = std::map<DeviceSet, Group>;
  struct OnDevice {
    std::unordered_map<RequestId, int> entitled;  ///< on this device; the number of nodes that entitle it
    std::map<RequestId, Bytes> claims;
    std::set<std::uint64_t> numbers;  ///< of the claims
    Bytes sum;
    std::uint64_t revision = 0;
    std::size_t joint = 0;  ///< the claims that are for other devices, too
    std::vector<const Groups::value_type*> groups;
  };

  struct Place {
    Groups::iterator group;
    std::uint64_t number = 0;
  };

  void add(const Request& request, std::uint64_t number);
  void remove(RequestId id);

  const WaitingRequests& requests_;
  const Ledger& ledger_;
  std::vector<OnDevice> devices_;
  Groups groups_;
  std::unordered_map<RequestId, Place> places_;
  std::unordered_map<RequestId, std::uint64_t> numbers_before_;  ///< of the claims before clear()
  std::uint64_t last_number_ = 0;
};

}  // namespace gpumem::core
