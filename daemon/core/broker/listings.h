#pragma once
#include <string>
#include <vector>

#include "daemon/core/lending/published_regions.h"

namespace gpumem::core {

/// The viewer of a listing.
struct RegionViewer {
  std::string tenant;       ///< empty: no tenant; such a viewer sees nothing
  bool everything = false;  ///< an administrator
};

/// A region as a viewer may see it.
struct RegionView {
  /// A session that is charged for the memory.
  struct Charged {
    SessionId session;
    std::int64_t pid = 0;
    std::string command;
    Bytes bytes;  ///< of all the extents that the region lies in
  };
  /// A session that has mapped all of the memory: by this region, by others of the same memory, or by
  /// handles.
  struct Mapping {
    SessionId session;
    std::int64_t pid = 0;
    std::string tenant;
    std::string command;
    std::size_t count = 0;  ///< so often
  };
  Region region;  ///< `readers` only for the owner's side
  std::string owner;
  std::vector<Charged> charged;
  std::vector<Mapping> mappings;  ///< of sessions that the viewer may follow; for the owner's side: all
};

struct RegionPage {
  std::vector<RegionView> regions;
  RegionId next;  ///< behind which the next page begins; none: there are no more
};

/// One viewer's list of regions: those that its tenant may map, and those that its tenant and the tenants
/// below it have published. Other regions seem not to exist. Reads only.
class RegionListing {
 public:
  /// All outlive it.
  RegionListing(const State& state, const PublishedRegions& regions, const RegionViewer& viewer,
                TimePoint now)
      : state_(state), regions_(regions), viewer_(viewer), now_(now) {}

  /// Behind `after`, in the order of their ids, `most` of them, or fewer where many have mapped them.
  /// `owner`  a tenant, whose only; empty: all.
  RegionPage page(const std::string& owner, RegionId after, std::size_t most) const;

 private:
  std::vector<const Region*> visible(const std::string& owner, RegionId after, std::size_t most) const;
  std::vector<Audience> audiences(TenantId owner) const;
  bool follows(const std::string& tenant) const;
  RegionView view_of(const Region& region) const;
  std::vector<RegionView::Mapping> mappings_of(const Region& region, bool all) const;

  const State& state_;
  const PublishedRegions& regions_;
  const RegionViewer& viewer_;
  const TimePoint now_;
};

}  // namespace gpumem::core
