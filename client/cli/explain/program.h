#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "client/cli/explain/account.h"
#include "client/cli/views/host_memory.h"
#include "gpumem/result.h"

// The memory of a process, or of a job's processes together. Arithmetic alone.

namespace gpumem::cli {

/// Which processes: one, or those of a job.
struct Subject {
  std::int64_t pid = 0;
  std::uint64_t job = 0;  ///< if it is not 0, that of all sessions in it
};

inline constexpr std::string_view kPidPrefix = "pid:", kJobPrefix = "job:";

/// The job with this number; null: there is none.
const v1::JobInfo* find_job(const v1::ListJobsResponse& jobs, std::uint64_t id);

/// The UUID of a device, or a program.
using Named = std::variant<std::string, Subject>;
/// The device at the place `number`, the process with a session and that PID, or that job; else any process.
/// Errors  kInvalidArgument: more than one of them; names them. kNotFound: 0, and no device.
Result<Named> named_by(std::int64_t number, const v1::GetStatusResponse& status,
                       const v1::ListJobsResponse& jobs, const v1::ListSessionsResponse& sessions);

struct Member {
  std::int64_t pid = 0;
  std::uint32_t uid = 0;
  std::string command{};  ///< as the kernel has it; empty: not known
  std::string tenant{};
  std::optional<HostMemory> host{};  ///< nothing: not told
};
/// The processes of the subject that have a session, or that the broker's look has found.
std::vector<Member> members_of(const Subject& subject, const v1::ListSessionsResponse& sessions,
                               const v1::ReconcileResponse& look);

/// What the subject has of one device.
struct DeviceUse {
  std::string device;          ///< UUID
  Line sum{};                  ///< `charged`, and its parts
  bool is_told = false;        ///< the pages of all its sessions tell what follows
  std::uint64_t reserved = 0;  ///< addresses
  std::uint64_t committed = 0;
  std::uint64_t in_use = 0;
  std::uint64_t imported = 0;             ///< mapped, and charged to others
  std::optional<std::uint64_t> listed{};  ///< the driver's figures, as nvidia-smi lists them
  std::optional<std::uint64_t> context{};
  std::uint64_t limit = 0;  ///< the smallest of the job's and its tenants'; 0: not known
};
/// The devices of which the members have something.
std::vector<DeviceUse> uses_of(const Subject& subject, const std::vector<Member>& members,
                               const Ledger& ledger, const v1::ListJobsResponse& jobs,
                               const v1::ReconcileResponse& look);

}  // namespace gpumem::cli
