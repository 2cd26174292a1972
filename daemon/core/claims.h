#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "daemon/core/ledger.h"
#include "daemon/core/request_queue.h"
#include "daemon/core/waiting_requests.h"

namespace gpumem::core {

/// The requests that wait by right: on every device that they ask for they are within guarantees. Finding the
/// first for which the free memory suffices takes time by the logarithm of the claims for the same devices,
/// and by how many such sets of devices there are.
class Claims {
 public:
  Claims(const WaitingRequests& requests, std::size_t devices);

  /// On the device the request, which waits, is one; or not any more, and it may have left. Counted, since
  /// several nodes may say so of one.
  void entitle(RequestId id, DeviceIndex device);
  void disentitle(RequestId id, DeviceIndex device);
  void clear();

  bool contains(RequestId id, DeviceIndex device) const { return devices_[device].claims.contains(id); }
  /// In the order they came, with their least; and the sum of that.
  const std::map<RequestId, Bytes>& of(DeviceIndex device) const { return devices_[device].claims; }
  Bytes sum(DeviceIndex device) const { return devices_[device].sum; }
  Bytes sum_without(RequestId id, DeviceIndex device) const;
  /// Another number than before: the claims on the device are others.
  std::uint64_t revision(DeviceIndex device) const { return devices_[device].revision; }
  bool any_joint(DeviceIndex device) const { return devices_[device].joint != 0; }

  /// The first of those after `after` that does not ask for more than is free on the first kKeys of its
  /// devices.
  std::optional<RequestId> first_at_most_free(DeviceIndex device, const Ledger& ledger,
                                              RequestId after) const;

 private:
  static constexpr std::size_t kKeys = 4;
  /// The claims for one set of devices. The amounts are by device of the set, in its order; zero beyond it.
  using Group = RequestQueue<kKeys>;
  using DeviceSet = std::vector<DeviceIndex>;
  using Groups = std::map<DeviceSet, Group>;
  struct OnDevice {
    std::unordered_map<RequestId, int> entitled;  ///< on the device alone; how many nodes say so
    std::map<RequestId, Bytes> claims;
    Bytes sum;
    std::uint64_t revision = 0;
    std::size_t joint = 0;  ///< of `claims`, those that are for other devices too
    std::vector<const Groups::value_type*> groups;
  };

  void add(const Request& request);
  void remove(RequestId id);

  const WaitingRequests& requests_;
  std::vector<OnDevice> devices_;
  Groups groups_;
  std::unordered_map<RequestId, Groups::iterator> group_of_;
};

}  // namespace gpumem::core
