#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/reclaim/reclaimer.h"
#include "daemon/core/sessions/state.h"
#include "daemon/core/sessions/views.h"

namespace gpumem::core {

/// The obstacle of a request: the part that cannot be granted, and the reason.
struct Refusal {
  std::size_t part = 0;
  Denial::Reason reason{};
};

/// Explains in figures why a request is not granted; denial.cc makes words of them. Reads only.
class Explainer {
 public:
  /// The requests in one explanation, the longest waiting first. The others are only counted.
  static constexpr std::size_t kMostExplained = 64;

  /// Both outlive it.
  Explainer(const State& state, const Reclaimer& reclaimer) : state_(state), reclaimer_(reclaimer) {}

  /// The obstacle that no waiting removes. The request would exceed a limit even if its tenant had nothing
  /// else, and all others only what they are promised. None: waiting can help. The slice's limit counts only
  /// before the request waits.
  std::optional<Refusal> infeasible(const Request& request) const;
  /// The reason why a request waits: its first part that would not be granted by itself, or its turn.
  Refusal obstacle(const Request& request) const;
  Denial denial_of(const Request& request, const Refusal& refusal, TimePoint now) const;

  /// Whether requests of the tenant are to be listed.
  using IsWanted = std::function<bool(const std::string& tenant)>;
  /// The most requests that one page looks at.
  static constexpr std::size_t kMostVisited = 1024;
  /// The requests behind `after` whose tenants are wanted, in the order they came, `most` of them. A page
  /// ends early where many are not wanted.
  WaitingPage waiting(RequestId after, std::size_t most, const IsWanted& is_wanted, TimePoint now) const;

  /// Errors  kNotFound. `everything`: other tenants by name too.
  Result<Explanation> explain_session(SessionId session, bool everything, TimePoint now) const;
  Result<Explanation> explain_tenant(const std::string& tenant, bool everything, TimePoint now) const;
  /// The figures of a user who has neither tenant nor session.
  /// Errors  kNotFound (the user's tenant has another name; the message says which);
  ///         kPermissionDenied (such users are refused).
  Result<Explanation> explain_newcomer(std::uint32_t uid) const;

 private:
  using Holders = std::map<std::pair<TenantId, DeviceIndex>, std::vector<Denial::Holder>>;

  Denial figures_of(const Request& request, const Refusal& refusal, TimePoint now) const;
  // Without the figures that take a look at every session that is asked.
  Denial quick_figures_of(const Request& request, const Refusal& refusal, TimePoint now) const;
  void name_ceiling(Denial& denial, const Request& request, const Request::Part& part) const;
  Denial::Reason limit_reason(TenantId limiting, DeviceIndex device) const;
  bool exceeds_reserve(const Request& request, const Request::Part& part) const;
  Denial::Soonest soonest(const Request& request, const Refusal& refusal, TimePoint now) const;
  Denial::Soonest soonest_within_limit(const Request& request, const Request::Part& part,
                                       TimePoint now) const;
  Denial::Soonest soonest_memory(const Request& request, const Request::Part& part, TimePoint now) const;
  // The latest deadline of all sessions at or below `below` that are asked for memory. None: no session is.
  std::optional<TimePoint> asked_until(DeviceIndex device, TenantId below) const;
  bool has_emptied(DeviceIndex device, TenantId tenant) const;
  Bytes room_of_slice(const Session& session, SliceId slice) const;
  TenantId asked_of(const Request& request, const Denial& denial) const;
  std::vector<Denial::Holder> holders(TenantId tenant, DeviceIndex device) const;
  std::vector<Denial::Holder> largest_tenants(DeviceIndex device) const;
  Explanation explanation_of(TenantId tenant, const std::vector<SessionId>& sessions, bool everything,
                             TimePoint now) const;
  void add_waiting(RequestId id, bool everything, Holders& holders, Holders& others, Explanation& explanation,
                   TimePoint now) const;
  std::vector<Standing> standings(TenantId tenant, const std::vector<SessionId>& sessions) const;

  const State& state_;
  const Reclaimer& reclaimer_;
};

}  // namespace gpumem::core
