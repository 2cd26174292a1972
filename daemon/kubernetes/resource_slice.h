#pragma once
#include <string>
#include <vector>

#include "daemon/kubernetes/broker_client.h"
#include "daemon/kubernetes/json_fields.h"

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

}  // namespace gpumem::kubernetes
