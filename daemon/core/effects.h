#pragma once
#include <variant>
#include <vector>

#include "daemon/core/denial.h"
#include "daemon/core/store.h"
#include "gpumem/result.h"

namespace gpumem::core {

/// One extent on its way to a session.
struct OfferedLease {
  LeaseId lease;
  Extent extent;
};

struct Grant {
  GrantId id;
  DeviceIndex device = 0;
  std::vector<OfferedLease> leases;  ///< largest first
};

/// To be done by the host, in the order they are given out.
struct RunJob {
  Job job;
};
/// Send the descriptors on the session's lane.
struct SendOffer {
  SessionId session;
  SliceId slice;
  Grant grant;
};
/// Answer a growth. A grant's offer comes before its answer.
struct AnswerGrow {
  RequestId request;
  Result<Grant, GrowFailure> answer;
};
/// The session is over and holds nothing any more: forget it.
struct ForgetSession {
  SessionId session;
};

using Effect = std::variant<RunJob, SendOffer, AnswerGrow, ForgetSession>;

}  // namespace gpumem::core
