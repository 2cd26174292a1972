#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/broker/broker.h"
#include "tests/model/rules.h"

namespace gpumem::core::model {

/// What the broker ought to do, in the plainest way there is: lists, and every figure counted afresh. Who is
/// granted what is told by the rules.
class Reference {
 public:
  struct Tenant {
    bool configured = false;
    std::vector<Quota> quotas;
    std::string parent;
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
    std::uint32_t uid = 0;
    bool alive = true;
    bool exited = false;  ///< its process is gone
    std::map<DeviceIndex, Number> declared{};
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
    Request request;  ///< its tenant is the record's
    std::string tenant;
    bool patient = true;  ///< asked to wait
    bool overdue = false;
    std::vector<Number> granted;  ///< of each part; not yet answered
    bool assembling() const { return !granted.empty(); }
    RequestId id() const { return request.id; }
    Number wanted(SliceId slice) const;
    Number granted_of(SliceId slice) const;
    Number granted_on(DeviceIndex device) const;
  };
  // Memory of a lease that the driver did not create again.
  struct Proof {
    Number bytes = 0;
    LeaseId lease;
  };

  explicit Reference(const Policy& policy);

  // ---- What happens. Each answers what the caller must be told; nothing: success. ----
  std::optional<Code> connect(std::uint32_t uid, std::string& tenant) const;
  void connected(SessionId id, const std::string& tenant, std::uint32_t uid,
                 const std::vector<Quota>& quotas);
  std::optional<Code> close_slice(SessionId session, SliceId slice);
  /// Nothing also for a request that waits now.
  std::optional<Code> grow(RequestId id, SessionId session, const std::vector<GrowthPart>& parts,
                           Duration wait, TimePoint now);
  void cancel(RequestId id);
  std::optional<Code> accept(SessionId session, GrantId grant);
  std::optional<Code> give_back(SessionId session, SliceId slice, const std::vector<LeaseId>& ids);
  void end(SessionId session, SessionEnd end);
  std::optional<Code> declare(SessionId session, DeviceIndex device, Bytes bytes);
  void age(TimePoint now);
  /// Takes the expired requests out of the line.
  std::vector<std::pair<RequestId, Code>> expire(TimePoint now);
  std::optional<Code> apply(const Policy& policy);
  /// After apply(): the waiting requests that can never be granted now.
  std::vector<std::pair<RequestId, Code>> refuse_hopeless(TimePoint now);
  /// A job that only tries again was started; it must try the proofs that failed, then no more than what is
  /// missing.
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
  /// Quarantined, or of a session that is over: it may be long on its way back.
  bool is_any_stuck(DeviceIndex device) const;
  Number charged(SliceId slice) const;
  Number held(SliceId slice) const;
  Number assembling(DeviceIndex device) const;
  /// Of that, what belongs to requests for several devices.
  Number assembling_jointly(DeviceIndex device) const;
  Number waiting(SliceId slice) const;
  std::size_t waiting(DeviceIndex device, const std::string* tenant = nullptr) const;
  bool waits(SessionId session) const;
  /// Negative where more is charged and missing than there is.
  Number free(DeviceIndex device) const;
  Number outside(const std::string& tenant, DeviceIndex device) const;
  /// What the session may be asked for besides what it holds: what it declared, or gave back and keeps.
  Number answers_for(SessionId session, DeviceIndex device) const;
  bool is_below(const std::string& tenant, const std::string& of) const;
  /// The accounts of the moment, and what waits.
  struct Standing {
    Books books;
    std::map<std::string, NodeIndex> nodes;
    std::vector<Waiting> queue;
  };
  Standing standing() const;
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
  std::vector<Number> missing;          ///< by device
  std::vector<Number> hindrance;        ///< of proofs by others, by device, at the last look
  std::vector<std::vector<Proof>> failed_proofs;
  std::vector<std::map<JobId, std::vector<Proof>>> retries;  ///< under way
  std::set<LeaseId> preferred;                               ///< their failed proofs are tried before others
  std::set<SessionId> forgotten;                             ///< since the world looked last

 private:
  static std::string owner_under(const Policy& next, const SessionRecord& session);
  static std::optional<Code> check(const std::map<std::string, Tenant>& tenants, const Policy& policy);
  static Standing tree_of(const std::map<std::string, Tenant>& tenants, const Policy& policy);
  std::optional<Code> parts_of(SessionId owner, const std::vector<GrowthPart>& asked,
                               Request::Parts& parts) const;
  bool is_hopeless(const std::string& tenant, const Request::Part& part) const;
  bool exceeds_ceiling(const std::string& tenant, const Request::Part& part) const;
  Duration patience(const std::string& tenant, const Request::Parts& parts, Duration wait) const;
  bool grant_what_may_be();
  void proof_ended(DeviceIndex device, const Proof& proof, bool failed);
  bool is_connected(const std::string& tenant) const;
};

}  // namespace gpumem::core::model
