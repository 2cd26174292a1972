#pragma once
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/checkpoint.h"

namespace gpumem::core {

struct Region;

/// Who may map a region, besides the tenant that has published it.
enum class Sharing : std::uint8_t {
  kPrivate,  ///< nobody
  kGroup,    ///< whoever belongs to the tenant that it belongs to
  kPublic,   ///< everybody who may connect
  kNamed,    ///< the tenants that are named, and whoever belongs to them
};

/// Some of those whom regions are for.
struct Audience {
  Sharing sharing = Sharing::kPrivate;  ///< kPrivate: their owner, whomever else they are shared with
  TenantId owner;                       ///< whose regions; none: of all, but for kPrivate and kGroup
  std::string reader{};                 ///< with kNamed: the tenant that is named

  auto operator<=>(const Audience&) const = default;
};

/// The regions by whom they are for. What is found for some audiences, and how long that takes, does not
/// depend on the regions that are for none of them: nobody learns of others' regions by listing, nor by
/// asking for one.
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
