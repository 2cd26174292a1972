#pragma once
#include <string>

#include "daemon/kubernetes/http/api_values.h"

namespace gpumem::kubernetes::test {

/// A ResourceClaim of the namespace `team`, made for one pod, with `memory` of `device` of the pool `node-1`,
/// as the API server of Kubernetes 1.36 shows it.
inline Json claim_object(const std::string& name, const std::string& uid, const std::string& device,
                         const std::string& memory) {
  const Json result = {{"request", "gpu"},
                       {"driver", "gpumem.dev"},
                       {"pool", "node-1"},
                       {"device", device},
                       {"shareID", "a671734a-e8e5-11e4-8fde-42010af09327"},
                       {"consumedCapacity", {{"memory", memory}}}};
  const Json pod = {{"resource", "pods"}, {"name", name + "-pod"}, {"uid", "pod-of-" + uid}};
  const Json owner = {
      {"apiVersion", "v1"}, {"kind", "Pod"}, {"name", name + "-pod"}, {"uid", "pod-of-" + uid}};
  return {{"apiVersion", "resource.k8s.io/v1"},
          {"kind", "ResourceClaim"},
          {"metadata",
           {{"name", name}, {"namespace", "team"}, {"uid", uid}, {"ownerReferences", Json::array({owner})}}},
          {"status",
           {{"allocation", {{"devices", {{"results", Json::array({result})}}}}},
            {"reservedFor", Json::array({pod})}}}};
}

/// Opaque configuration for `driver`, as an allocation has it.
inline Json opaque_config(const std::string& driver, const Json& parameters) {
  return {{"source", "FromClaim"}, {"opaque", {{"driver", driver}, {"parameters", parameters}}}};
}

/// This driver's own parameters.
inline Json limit_parameters(const Json& limit) {
  return {{"apiVersion", "gpumem.dev/v1alpha1"}, {"kind", "SliceParameters"}, {"limit", limit}};
}

}  // namespace gpumem::kubernetes::test
