#pragma once
#include <functional>
#include <string>
#include <vector>

#include "daemon/core/executor.h"

namespace gpumem::core {

// What was prepared for pods of Kubernetes.

struct Pod {
  std::string uid;    ///< as pods::Container::pod
  std::string space;  ///< its namespace
  std::string name;
  bool operator==(const Pod&) const = default;
};

/// Memory of one device.
struct ClaimAmount {
  std::string device;  ///< UUID
  Bytes guarantee;
  Bytes limit;  ///< at least the guarantee
  bool operator==(const ClaimAmount&) const = default;
};

/// A ResourceClaim that was prepared on this node.
struct PodClaim {
  std::string uid;
  std::string space;  ///< its namespace, and that of its pods
  std::string name;
  std::vector<Pod> pods;
  std::vector<ClaimAmount> amounts;  ///< several of one device add up
  bool operator==(const PodClaim&) const = default;
};

/// Where claims are prepared while the broker runs. Answers come on a thread of the PodClaimAdmin's own: it
/// waits for the disk and for the core's thread, and so must none of theirs. Threads  any; does not block.
class PodClaimAdmin {
 public:
  virtual ~PodClaimAdmin() = default;
  /// Puts the amounts of `claim` in force for its pods, durably, in place of what was prepared under its UID;
  /// or changes nothing. `caller`  an administrator, here and below.
  /// Errors  kNotFound: a device is not lent; kInvalidArgument: pods::check(), or a limit is less than a
  /// device can lend;
  ///         kFailedPrecondition: the guarantees exceed what there is, and by how much; it cannot be
  ///         stored.
  virtual void prepare(PodClaim claim, Caller caller, std::function<void(Result<void>)> answer) = 0;
  /// Takes the amounts away, durably: what the pods still hold of them is a debt, as of a limit that was
  /// lowered. Nothing, if there is no such claim. Errors  kInvalidArgument: no UID; kFailedPrecondition: it
  /// cannot be stored.
  virtual void unprepare(std::string uid, Caller caller, std::function<void(Result<void>)> answer) = 0;
  /// By UID.
  virtual void list_claims(std::function<void(Result<std::vector<PodClaim>>)> answer) = 0;
};

}  // namespace gpumem::core
