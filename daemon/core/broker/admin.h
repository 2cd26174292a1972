#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/broker/executor.h"

namespace gpumem::core {

/// A requested change of one tenant's quota at run time. Amounts as in the configuration: 24GiB, 25%.
struct QuotaChange {
  std::string tenant;
  std::string device;  ///< UUID; empty: every device
  std::optional<std::string> guarantee;
  std::optional<std::string> limit;
  std::optional<std::uint32_t> weight;
  std::optional<std::uint32_t> priority;
  bool reset = false;          ///< back to what the configuration says; nothing else is given
  std::uint64_t revision = 0;  ///< that the change is based on
};

/// A tenant's quota on one device, and its origin.
struct QuotaLine {
  std::string tenant;
  std::string parent;
  std::string device;  ///< UUID
  Quota quota;
  bool set_at_run_time = false;
};

struct QuotaList {
  std::uint64_t revision = 0;
  std::vector<QuotaLine> quotas;
};

/// The result of a change: the quota lines that it is about.
struct QuotaOutcome {
  std::uint64_t revision = 0;
  std::vector<QuotaLine> before;
  std::vector<QuotaLine> after;
};

/// Where quotas are changed while the broker runs. Answers come on a thread of the quota_admin's own: it
/// waits for the disk and for the core's thread, and so must none of theirs. Threads  any; does not block.
class QuotaAdmin {
 public:
  virtual ~QuotaAdmin() = default;
  virtual void list(std::function<void(Result<QuotaList>)> answer) = 0;
  /// Puts the change in force, durably; or changes nothing.
  /// Errors  kNotFound (tenant, device), kAborted (another revision), kInvalidArgument (no amounts, or quotas
  ///         that cannot hold together), kFailedPrecondition (as Broker::apply; cannot be stored).
  virtual void set(QuotaChange change, Caller caller, std::function<void(Result<QuotaOutcome>)> answer) = 0;
};

/// Settings that take effect when the broker starts again, in words.
using Unapplied = std::vector<std::string>;
/// Has the configuration read again, and put in force or left as it was. The answer comes on another thread.
/// Threads  any; does not block.
using Reload = std::function<void(std::function<void(const Result<Unapplied>&)> answer)>;

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
  /// Errors  kNotFound: a device is not lent. kInvalidArgument: pods::check(), or a limit is less than a
  ///         device can lend. kFailedPrecondition: the guarantees exceed what there is, and by how much; it
  ///         cannot be stored.
  virtual void prepare(PodClaim claim, Caller caller, std::function<void(Result<void>)> answer) = 0;
  /// Takes the amounts away, durably: what the pods still hold of them is a debt, as of a limit that was
  /// lowered. Nothing, if there is no such claim. Errors  kInvalidArgument: no UID; kFailedPrecondition: it
  /// cannot be stored.
  virtual void unprepare(std::string uid, Caller caller, std::function<void(Result<void>)> answer) = 0;
  /// By UID.
  virtual void list_claims(std::function<void(Result<std::vector<PodClaim>>)> answer) = 0;
};

}  // namespace gpumem::core
