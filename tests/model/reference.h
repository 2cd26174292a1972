#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/broker.h"

namespace gpumem::core::model {

/// What the broker ought to do, in the plainest way there is: lists, and every figure counted afresh.
/// Amounts are signed, so that a debt is a negative number.
using Number = std::int64_t;
inline Number number(Bytes bytes) { return static_cast<Number>(bytes.count); }

class Reference {
 public:
  struct Tenant {
    bool configured = false;
    std::vector<Quota> quotas;
  };
  struct SliceRecord {
    SliceId id;
    SessionId session;
    DeviceIndex device = 0;
    Number limit = 0;
  };
  struct SessionRecord {
    SessionId id;
    std::string tenant;
    bool alive = true;
  };
  struct LeaseRecord {
    LeaseId id;
    GrantId grant;
    Extent extent;
    SessionId session;
    SliceId slice;
    std::string tenant;
    DeviceIndex device = 0;
    Charge state = Charge::kOffered;
    bool in_store = false;
    Number bytes() const { return number(extent.size); }
  };
  struct RequestRecord {
    RequestId id;
    SessionId session;
    SliceId slice;
    std::string tenant;
    DeviceIndex device = 0;
    Number bytes = 0;
    TimePoint deadline;
    bool patient = true;      ///< asked to wait
    bool assembling = false;  ///< granted, not yet answered
  };
  // Something the driver did not create: a lease's proof, or a piece of the pool.
  struct Failure {
    Number bytes = 0;
    LeaseId lease;
  };

  explicit Reference(const Policy& policy);

  // ---- What happens. Each answers what the caller must be told; nothing: success. ----
  std::optional<Code> connect(std::uint32_t uid, std::string& tenant) const;
  void connected(SessionId id, const std::string& tenant, const std::vector<Quota>& quotas);
  std::optional<Code> close_slice(SessionId session, SliceId slice);
  /// Nothing also for a request that waits now.
  std::optional<Code> grow(RequestId id, SessionId session, SliceId slice, Bytes bytes, Duration wait,
                           TimePoint now);
  void cancel(RequestId id);
  std::optional<Code> accept(SessionId session, GrantId grant);
  std::optional<Code> give_back(SessionId session, SliceId slice, const std::vector<LeaseId>& ids);
  void end(SessionId session, Farewell farewell);
  /// Takes the expired requests out of the line.
  std::vector<std::pair<RequestId, Code>> expire(TimePoint now);
  std::optional<Code> apply(const Policy& policy);
  /// A job that only tries again was started; it must try what failed so far, proofs first.
  bool retried(const Job& job);
  void job_done(const Job& job, const JobResult& result);

  /// Grants what can be granted; forgets sessions and tenants that are over.
  void settle();
  void assembled(RequestId request, const Grant& grant);
  void unobtainable(RequestId request);

  // ---- Counted afresh. ----
  Number charged(const std::string& tenant, DeviceIndex device, std::optional<Charge> state = {}) const;
  Number charged(DeviceIndex device) const;
  bool is_any_returning(DeviceIndex device) const;
  Number charged(SliceId slice) const;
  Number held(SliceId slice) const;
  Number assembling(DeviceIndex device) const;
  Number waiting(SliceId slice) const;
  std::size_t waiting(DeviceIndex device, const std::string* tenant = nullptr) const;
  Number missing(DeviceIndex device) const;
  /// Negative where more is charged and missing than there is.
  Number free(DeviceIndex device) const;
  Number unmet(const std::string& tenant, DeviceIndex device) const;
  Number unmet_of_others(const std::string& tenant, DeviceIndex device) const;
  Number ceiling(const std::string& tenant, DeviceIndex device) const;
  Number pool(DeviceIndex device) const { return number(policy.devices[device].pool); }

  const SessionRecord* session(SessionId id) const;
  const SliceRecord* slice(SliceId id) const;
  const RequestRecord* request(RequestId id) const;
  const LeaseRecord* lease_of(ExtentId id) const;
  bool holds_leases(SessionId id) const;

  Policy policy;
  std::map<std::string, Tenant> tenants;
  std::vector<SessionRecord> sessions;
  std::vector<SliceRecord> slices;
  std::vector<LeaseRecord> leases;
  std::vector<RequestRecord> requests;  ///< in the order of asking
  std::vector<std::vector<Failure>> failures;
  std::vector<std::map<JobId, std::vector<Failure>>> retries;  ///< under way
  std::set<SessionId> forgotten;                               ///< since the world looked last

 private:
  enum class Obstacle { kNone, kOwn, kMemory };
  Obstacle obstacle(const RequestRecord& request) const;
  bool grant_first_that_may();
  void attempt_ended(DeviceIndex device, const Failure& attempt, bool failed);
  bool is_connected(const std::string& tenant) const;
};

}  // namespace gpumem::core::model
