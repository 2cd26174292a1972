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

/// The waiting claims: requests that are within guarantees on every device that they ask for. The search for
/// the first claim that the free memory suffices for takes logarithmic time for each set of devices that
/// claims ask for.
class Claims {
 public:
  Claims(const WaitingRequests& requests, std::size_t devices);

  /// The request is within a guarantee on the device. It waits. Counted, since several nodes may entitle it.
  void entitle(RequestId id, DeviceIndex device);
  /// Takes back one entitle(). The request need not wait any more.
  void disentitle(RequestId id, DeviceIndex device);
  void clear();

  bool contains(RequestId id, DeviceIndex device) const { return devices_[device].claims.contains(id); }
  /// In the order of arrival, each with its least amount; and their sum.
  const std::map<RequestId, Bytes>& of(DeviceIndex device) const { return devices_[device].claims; }
  Bytes sum(DeviceIndex device) const { return devices_[device].sum; }
  Bytes sum_without(RequestId id, DeviceIndex device) const;
  /// Changes whenever the claims on the device change.
  std::uint64_t revision(DeviceIndex device) const { return devices_[device].revision; }
  bool any_joint(DeviceIndex device) const { return devices_[device].joint != 0; }

  /// The first claim after `after` that asks for no more than is free on each of the first kKeys of its
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
    std::unordered_map<RequestId, int> entitled;  ///< on this device; the number of nodes that entitle it
    std::map<RequestId, Bytes> claims;
    Bytes sum;
    std::uint64_t revision = 0;
    std::size_t joint = 0;  ///< the claims that are for other devices, too
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
