#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/reclaimer.h"
#include "daemon/core/state.h"
#include "daemon/core/views.h"

namespace gpumem::core {

/// What stands in the way of a request: which part of it, and what.
struct Refusal {
  std::size_t part = 0;
  Denial::Reason reason{};
};

/// Says why something is not granted, in figures; denial.cc makes words of them. Reads only.
class Explainer {
 public:
  /// Requests that one explanation tells of, the longest waiting first; of the others only the number.
  static constexpr std::size_t kMostExplained = 64;

  /// Both outlive it.
  Explainer(const State& state, const Reclaimer& reclaimer) : state_(state), reclaimer_(reclaimer) {}

  /// What no waiting can help: granted to a tenant that had nothing else, and with everybody else at what
  /// they are promised, the request would still pass a limit.
  std::optional<Refusal> infeasible(const Request& request) const;
  /// What keeps a request waiting: the first part of it that would not be granted by itself, or its turn.
  Refusal obstacle(const Request& request) const;
  Denial denial_of(const Request& request, const Refusal& refusal, TimePoint now) const;

  /// Errors  kNotFound. `everything`: other tenants by name too.
  Result<Explanation> explain_session(SessionId session, bool everything, TimePoint now) const;
  Result<Explanation> explain_tenant(const std::string& tenant, bool everything, TimePoint now) const;
  /// How a user without a tenant would stand who has no session. Errors  kNotFound (a tenant by another name,
  /// which it says), kPermissionDenied (such users are refused).
  Result<Explanation> explain_newcomer(std::uint32_t uid) const;

 private:
  using Holders = std::map<std::pair<TenantId, DeviceIndex>, std::vector<Denial::Holder>>;

  Denial figures_of(const Request& request, const Refusal& refusal, TimePoint now) const;
  Denial::Reason limit_reason(TenantId limiting, DeviceIndex device) const;
  Denial::Soonest soonest(const Request& request, const Refusal& refusal, TimePoint now) const;
  Denial::Soonest soonest_within_limit(const Request& request, const Request::Part& part,
                                       TimePoint now) const;
  Denial::Soonest soonest_memory(const Request& request, const Request::Part& part, TimePoint now) const;
  // When all who are asked for memory, at `below` or beneath it, are to have given it. None: nobody is.
  std::optional<TimePoint> asked_until(DeviceIndex device, TenantId below) const;
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
