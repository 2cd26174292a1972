#pragma once
#include <string>
#include <vector>

#include "daemon/kubernetes/api_server.h"
#include "daemon/kubernetes/resource_slice.h"

namespace gpumem::kubernetes {

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
