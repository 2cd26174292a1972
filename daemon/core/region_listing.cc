#include "daemon/core/region_listing.h"

#include <algorithm>
#include <utility>

namespace gpumem::core {
namespace {

// Leases and mappings that a page looks at: nobody's listing keeps the core for long.
constexpr std::size_t kPageWork = 16'384;

// How often each session has mapped all of the leases.
using Users = boost::container::flat_map<SessionId, std::size_t>;
Users users_of_all(const Imports& imports, const std::vector<LeaseId>& leases) {
  Users users;
  for (std::size_t i = 0; i < leases.size(); ++i) {
    const Imports::Shared* shared = imports.find(leases[i]);
    if (shared == nullptr) return {};
    if (i == 0) users = shared->users;
    for (auto& [session, count] : users) {
      const auto found = shared->users.find(session);
      count = found == shared->users.end() ? 0 : std::min(count, found->second);
    }
  }
  for (auto next = users.begin(); next != users.end();)
    next = next->second == 0 ? users.erase(next) : next + 1;
  return users;
}

}  // namespace

RegionPage RegionListing::page(const std::string& owner, RegionId after, std::size_t most) const {
  const std::vector<const Region*> found = visible(owner, after, most);
  RegionPage page;
  std::size_t work = 0;
  for (const Region* region : found) {
    page.next = region->id;
    if (region->ends() > now_) page.regions.push_back(view_of(*region));
    const Imports::Shared* shared = state_.imports.find(region->leases.front());
    work += region->leases.size() * (1 + (shared == nullptr ? 0 : shared->users.size()));
    if (work > kPageWork) break;
  }
  if (!page.next || visible(owner, page.next, 1).empty()) page.next = {};
  return page;
}

std::vector<const Region*> RegionListing::visible(const std::string& owner, RegionId after,
                                                  std::size_t most) const {
  const Tenant* of = owner.empty() ? nullptr : state_.tenants.find(owner);
  if (!owner.empty() && of == nullptr) return {};
  if (viewer_.everything && of == nullptr) return regions_.regions().page(after, most);
  return regions_.regions().page(audiences(of == nullptr ? TenantId{} : of->id), after, most);
}

bool RegionListing::follows(const std::string& tenant) const {
  if (viewer_.everything || tenant == viewer_.tenant) return true;
  const Tenant* one = state_.tenants.find(tenant);
  const Tenant* viewer = state_.tenants.find(viewer_.tenant);
  return one != nullptr && viewer != nullptr && state_.tenants.is_below(one->id, viewer->id);
}

// As PublishedRegions::find_for(). A tenant without a session may be one that the ledger does not know yet.
std::vector<Audience> RegionListing::audiences(TenantId owner) const {
  if (viewer_.everything) return {{Sharing::kPrivate, owner}};
  if (viewer_.tenant.empty()) return {};
  std::vector<Audience> audiences{{Sharing::kPublic, owner}, {Sharing::kNamed, owner, viewer_.tenant}};
  const auto is_meant = [&](TenantId tenant) { return !owner || tenant == owner; };
  const Tenant* viewer = state_.tenants.find(viewer_.tenant);
  const Tenant* group = state_.tenants.find(state_.policy.others_parent);
  if (viewer != nullptr) {
    for (const TenantId own : state_.tenants.with_members(viewer->id))
      if (is_meant(own)) audiences.push_back({Sharing::kPrivate, own});
  }
  TenantId above = viewer != nullptr  ? state_.ledger.parent(viewer->id)
                   : group != nullptr ? group->id
                                      : TenantId{};
  for (; above; above = state_.ledger.parent(above)) {
    audiences.push_back({Sharing::kNamed, owner, state_.tenants.name(above)});
    for (const auto& [member, tenant] : state_.tenants.all())
      if (is_meant(member) && state_.ledger.parent(member) == above)
        audiences.push_back({Sharing::kGroup, member});
  }
  return audiences;
}

RegionView RegionListing::view_of(const Region& region) const {
  RegionView view{region, state_.tenants.name(region.owner), {}, {}};
  const bool owners_side = follows(view.owner);
  if (!owners_side) view.region.readers.clear();
  for (const auto& [id, bytes] : regions_.holders_of(region)) {
    const Session& session = state_.session(id);
    view.charged.push_back({id, session.peer.pid, session.peer.command, bytes});
  }
  view.mappings = mappings_of(region, owners_side);
  return view;
}

std::vector<RegionView::Mapping> RegionListing::mappings_of(const Region& region, bool all) const {
  std::vector<RegionView::Mapping> mappings;
  for (const auto& [id, count] : users_of_all(state_.imports, region.leases)) {
    const Session* session = state_.find(id);
    if (session != nullptr && (all || follows(session->tenant_name)))
      mappings.push_back({id, session->peer.pid, session->tenant_name, session->peer.command, count});
  }
  return mappings;
}

}  // namespace gpumem::core
