#pragma once
#include <string>
#include <vector>

#include "daemon/kubernetes/broker_client.h"
#include "daemon/kubernetes/json_fields.h"

namespace gpumem::kubernetes {

/// Who publishes: the pool has the node's name.
struct Publisher {
  std::string driver;
  std::string node;

  /// The name of the one ResourceSlice.
  std::string slice_name() const { return node + "-" + driver; }
};

/// What a ResourceSlice says of a device: many claims may have parts of it, in steps of 2 MiB. A claim that
/// asks for no amount gets all of it, as with any device of Kubernetes: nobody shares by accident.
Json device_entry(const Device& device);

/// The spec of the node's ResourceSlice of resource.k8s.io/v1. Devices too small to be lent from (under 4
/// MiB) are left out.
Json slice_spec(const Publisher& publisher, const std::vector<Device>& devices, std::uint64_t generation);

/// Whether two specs say the same, whatever their generations.
bool is_same_pool(const Json& one, const Json& other);

/// What of `sent` a server has not `stored`, because it does not know it: names of fields; empty: nothing.
std::string dropped_fields(const Json& sent, const Json& stored);

}  // namespace gpumem::kubernetes
