#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/executor.h"

namespace gpumem::core {

/// A change of one tenant's quota at run time, as it is asked for. Amounts as in the configuration: 24GiB,
/// 25%.
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
  /// that
  ///         cannot hold together), kFailedPrecondition (as Broker::apply; cannot be stored).
  virtual void set(QuotaChange change, Caller caller, std::function<void(Result<QuotaOutcome>)> answer) = 0;
};

}  // namespace gpumem::core
