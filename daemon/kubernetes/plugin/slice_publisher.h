#pragma once
#include <string>
#include <vector>

#include "daemon/kubernetes/claims/broker_client.h"
#include "daemon/kubernetes/http/api_server.h"
#include "daemon/kubernetes/http/api_values.h"

namespace gpumem::kubernetes {

/// The publisher of a ResourceSlice. Its pool has the node's name.
struct Publisher {
  std::string driver;
  std::string node;

  /// The name of the one ResourceSlice.
  std::string slice_name() const { return node + "-" + driver; }
};

/// A device's entry in a ResourceSlice: many claims may have parts of the device, in steps of 2 MiB. A claim
/// without an amount gets the whole device, as everywhere in Kubernetes, so sharing is never accidental.
Json device_entry(const Device& device);

/// The spec of the node's ResourceSlice of resource.k8s.io/v1. Devices too small to be lent from (under 4
/// MiB) are left out.
Json slice_spec(const Publisher& publisher, const std::vector<Device>& devices, std::uint64_t generation);

/// Whether two specs say the same, whatever their generations.
bool is_same_pool(const Json& one, const Json& other);

/// The names of fields that are in `sent` but not in `stored`, because the server does not know them. Empty
/// if all were stored.
std::string dropped_fields(const Json& sent, const Json& stored);

/// Keeps the node's ResourceSlice as the broker's devices are. Others delete it: the kubelet when it starts,
/// and when the driver was away; so this is repeated. Threads  one.
class SlicePublisher {
 public:
  SlicePublisher(Publisher publisher, const ApiServer& server)
      : publisher_(std::move(publisher)), server_(server) {}

  /// Makes the ResourceSlice, or replaces one that says something else under the next generation, and removes
  /// others of this driver and node. Changes nothing if all is as it should be. Errors  as ApiServer;
  /// kFailedPrecondition: the server does not serve resource.k8s.io/v1; more than 128 devices.
  Result<void> reconcile(const std::vector<Device>& devices);

 private:
  Result<Json> store(const Json* there, Json spec);
  Json owner();
  void look_for_dropped(const Json& sent, const Json& stored);

  Publisher publisher_;
  const ApiServer& server_;
  Json sent_;                // the spec that was sent last
  std::string version_;      // of the stored object; a server may keep less than it was sent
  bool told_owner_ = false;  // that there is none
};

}  // namespace gpumem::kubernetes
