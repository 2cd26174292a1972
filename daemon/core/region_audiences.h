#pragma once
#include <map>
#include <set>
#include <span>
#include <string>
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
/// depend on the regions that are for none of them: nobody learns of others' regions by listing.
class RegionAudiences {
 public:
  void add(const Region& region);
  void remove(const Region& region);
  /// Behind `after`, for any of the audiences, in the order of their ids, `most` of them.
  std::vector<RegionId> page(std::span<const Audience> audiences, RegionId after, std::size_t most) const;

 private:
  std::map<Audience, std::set<RegionId>> regions_;
};

}  // namespace gpumem::core
