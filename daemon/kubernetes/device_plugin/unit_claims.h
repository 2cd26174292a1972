#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "daemon/kubernetes/claims/broker_client.h"
#include "daemon/kubernetes/device_plugin/kubelet_allocations.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// Keeps the broker's claims equal to the kubelet's allocations. Each pod with units has one claim, by the
/// pod's UID, with the units of all its containers as guarantee and limit. Everything is read from the
/// kubelet each time, so a restart loses nothing.
///
/// A claim is made, changed or removed by a checkpoint alone that the kubelet has written after it was asked
/// to. It is removed only if every unit that the kubelet lists is in that checkpoint.
///
/// Errors are fit to be the event of a pod. Threads  any, one at a time. Blocks.
class UnitClaims {
 public:
  UnitClaims(Bytes unit, KubeletAllocations& kubelet, BrokerClient& broker)
      : unit_(unit), kubelet_(kubelet), broker_(broker) {}

  /// A container with `units` is about to start: afterwards its pod's claim is prepared.
  /// Errors  kFailedPrecondition: the kubelet does not say which pod has the units, or what it is called;
  ///         those of the broker, the checkpoint and the list of pods.
  Result<void> prepare(const UnitSet& units);

  /// Brings the broker to what the kubelet has allocated. Errors  the first; the other claims are done.
  Result<void> reconcile();

 private:
  using Claims = std::map<std::string, v1::Claim>;  // by UID

  // The result of one round: errors by the UID of the pod, and the error that concerns no single pod.
  struct Outcome {
    std::map<std::string, Error> failed;
    Result<void> rest;
  };

  Result<Claims> claims();
  Result<std::string> owner_of(const UnitSet& units, KubeletRecord& record);
  Outcome apply(const KubeletRecord& record, const std::vector<ListedPod>& pods, const Claims& there);
  void remove_gone(const KubeletRecord& record, const std::vector<ListedPod>& pods, const Claims& there,
                   Outcome& outcome);
  bool is_in_force(const KubeletRecord& record, const std::vector<ListedPod>& pods,
                   const Claims& there) const;
  Result<v1::Claim> claim_for(const std::string& uid, const UnitSet& units,
                              const std::vector<ListedPod>& pods, const Claims& there) const;

  Bytes unit_;
  KubeletAllocations& kubelet_;
  BrokerClient& broker_;
  Mutex mutex_;  // held through a round
};

}  // namespace gpumem::kubernetes
