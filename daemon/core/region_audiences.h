#pragma once
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/checkpoint.h"
#include "daemon/core/requests.h"

namespace gpumem::core {

struct Region;

/// One group of tenants that regions can be shared with.
struct Audience {
  Sharing sharing = Sharing::kPrivate;  ///< kPrivate: their owner, whomever else they are shared with
  TenantId owner;                       ///< the publisher; none: any, but for kPrivate and kGroup
  std::string reader{};                 ///< with kNamed: the tenant that is named

  auto operator<=>(const Audience&) const = default;
};

/// The regions by audience. The result of a search for some audiences, and its duration, do not depend on
/// regions of other audiences: neither a listing nor a request for one region reveals anything of them.
/// docs/trust-boundary.md says what this protects.
class RegionAudiences {
 public:
  void add(const Region& region);
  void remove(const Region& region);
  /// Behind `after`, for any of the audiences, in the order of their ids, `most` of them.
  std::vector<RegionId> page(std::span<const Audience> audiences, RegionId after, std::size_t most) const;
  /// The newest of a name that is for any of the audiences, which name an owner; or that of a version. Of any
  /// device, if none is named. Nothing: there is none.
  struct Sought {
    std::string name;
    std::optional<DeviceIndex> device;
    std::uint64_t version = 0;  ///< 0: the newest
  };
  std::optional<RegionId> find(std::span<const Audience> audiences, const Sought& sought) const;

 private:
  using Name = std::pair<std::string, std::optional<DeviceIndex>>;  ///< of a device, and of all

  std::map<Audience, std::set<RegionId>> regions_;
  std::map<Audience, std::map<Name, std::set<RegionId>>> names_;  ///< for others than the owner
};

}  // namespace gpumem::core
