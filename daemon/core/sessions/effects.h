#pragma once
#include <variant>
#include <vector>

#include "daemon/core/memory/job.h"
#include "daemon/core/words/denial.h"
#include "gpumem/result.h"

namespace gpumem::core {

/// One extent on its way to a session.
struct OfferedLease {
  LeaseId lease;
  Extent extent;
  SliceId slice;
  DeviceIndex device = 0;
  bool is_private = false;  ///< of a private slice
};

struct Grant {
  GrantId id;
  std::vector<OfferedLease> leases;  ///< part by part, largest first
};

/// To be done by the host, in the order they are given out.
/// Give the jobs to their device, all at once: before the last of them is there, nothing that is in order may
/// begin (JobQueue).
struct RunJobs {
  DeviceIndex device = 0;
  std::vector<Job> jobs;
};
/// A request waits for a job of the stock: JobQueue::hurry().
struct HurryJob {
  DeviceIndex device = 0;
  JobId job;
};
/// Send the descriptors on the session's lane.
struct SendOffer {
  SessionId session;
  Grant grant;
};
/// Answer a growth. A grant's offer comes before its answer.
struct AnswerGrow {
  RequestId request;
  Result<Grant, GrowFailure> answer;
};
/// What whoever redeems a handle gets.
struct Imported {
  ImportId id;
  DeviceIndex device = 0;
  std::vector<std::pair<LeaseId, Extent>> leases;
  Bytes offset;
  Bytes bytes;
  bool is_read_only = false;  ///< as far as the kind of memory allows to hold the session to it
};
/// The extents whose descriptors go with a packet.
struct SentExtents {
  std::vector<ExtentId> ids;
  bool is_read_only = false;  ///< as Imported's
};
/// A region, and what of it whoever maps it gets.
struct MappedRegion {
  RegionId version;
  Bytes layout;
  LayoutDigest digest{};
  Imported imported;
  std::optional<Duration> adopted;  ///< taken over by this; until then it was kept, and would linger so long
};
/// There is no such region: the session is the one to publish it.
struct NameReserved {
  ReservationId reservation;
  TimePoint expires{};
};
using MapOutcome = std::variant<MappedRegion, NameReserved>;
/// Answer whoever maps a region, and may have waited for it.
struct AnswerMap {
  RequestId request;
  SessionId session;
  Result<MapOutcome> answer;
};
/// The session is asked for more memory than before: its figures say how much of which device and until when.
struct RingDoorbell {
  SessionId session;
};
enum class Signal { kTerminate, kKill };
/// End the session's process.
struct SignalSession {
  SessionId session;
  Signal signal = Signal::kTerminate;
  bool may_wait = false;  ///< for requests of the session that are unread: Broker::hold_signal()
};
/// End a process that is no client, if it still is the one that started then.
struct SignalForeignProcess {
  std::int64_t pid = 0;
  std::uint64_t started = 0;  ///< as the kernel counts (/proc/PID/stat, field 22)
  Signal signal = Signal::kTerminate;
};
/// The session is over and holds nothing any more: forget it.
struct ForgetSession {
  SessionId session;
};

/// Ask the driver who uses how much of each device, on behalf of a user (Peer::account).
struct LookAtDevices {
  std::uint64_t account = 0;
};

using Effect = std::variant<RunJobs, HurryJob, SendOffer, AnswerGrow, AnswerMap, RingDoorbell, SignalSession,
                            SignalForeignProcess, ForgetSession, LookAtDevices>;

}  // namespace gpumem::core
