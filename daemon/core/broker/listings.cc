#include "daemon/core/broker/listings.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "daemon/core/broker/broker.h"

// What can be seen of the broker. Reads only.

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

Error no_such_session() { return {Code::kNotFound, "the session has ended"}; }

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

bool Broker::knows(SessionId session) const {
  const Session* found = state_.find(session);
  return found != nullptr && !found->ended;
}

const std::string& Broker::tenant_name(SessionId session) const {
  return state_.session(session).tenant_name;
}

std::optional<std::string> Broker::tenant_of(SessionId session) const {
  const Session* found = state_.find(session);
  return found == nullptr ? std::nullopt : std::optional(found->tenant_name);
}

std::optional<LeaseStanding> Broker::standing_of(LeaseId lease) const {
  const Lease* found = leases_.find(lease);
  const Session* session = found == nullptr ? nullptr : state_.find(found->session);
  if (session == nullptr) return std::nullopt;
  return LeaseStanding{found->extent.id, found->device, session->tenant_name, leases_.keeps(*found)};
}

Result<SessionView> Broker::describe(SessionId session) const {
  if (!knows(session)) return no_such_session();
  return sessions(SessionId{session.value - 1}, 0).front();
}

bool Broker::belongs(const std::string& tenant, const std::string& of) const {
  const Tenant* found = state_.tenants.find(tenant);
  const Tenant* group = state_.tenants.find(of);
  return found != nullptr && group != nullptr && state_.tenants.is_below(found->id, group->id);
}

Result<Explanation> Broker::explain_session(SessionId session, bool everything, TimePoint now) const {
  return with_regions(explainer_.explain_session(session, everything, now));
}

Result<Explanation> Broker::explain_tenant(const std::string& tenant, bool everything, TimePoint now) const {
  return with_regions(explainer_.explain_tenant(tenant, everything, now));
}

Result<Explanation> Broker::explain(SessionId session, TimePoint now) {
  const Session* const known = state_.find(session);
  if (known == nullptr) return no_such_session();
  if (auto within = count_explanation(known->peer.account(), now); !within) return within.error();
  auto explanation = explain_session(session, false, now);
  if (!explanation) return explanation;
  // The state of a common parent includes requests of other tenants, which this session may not see.
  std::erase_if(explanation->waiting, [&](const Denial& one) {
    return one.tenant != known->tenant_name && !belongs(one.tenant, known->tenant_name);
  });
  return explanation;
}

Result<Explanation> Broker::with_regions(Result<Explanation> explanation) const {
  if (!explanation) return explanation;
  const Tenant* tenant = state_.tenants.find(explanation->tenant);
  if (tenant == nullptr) return explanation;
  for (Standing& standing : explanation->devices)
    standing.regions = regions_.total(tenant->id, standing.device);
  return explanation;
}

BrokerFigures Broker::figures(SessionId id) const {
  const Session& session = state_.session(id);
  const TenantId tenant = session.job ? session.leaf : session.tenant;
  const Ledger& ledger = state_.ledger;
  BrokerFigures figures{};
  figures.session = id.value;
  figures.generation = generation_;
  figures.device_count = state_.policy.devices.size();
  for (DeviceIndex i = 0; i < state_.policy.devices.size(); ++i) {
    const Quota& quota = ledger.quota(tenant, i);
    const Bytes tenant_limit = ledger.quota(session.tenant, i).limit;
    const Bytes available = ledger.available_on_demand(tenant, i, {state_.arbiter.spoken_for({}, i)});
    const Bytes reserved = session.job ? ledger.reserved(tenant, i) : Bytes{};
    figures.devices[i] = {.pool = ledger.pool(i).count,
                          .free = ledger.free_or_creatable(i).count,
                          .guarantee = quota.guarantee.count,
                          .limit = std::min(quota.limit, tenant_limit).count,
                          .charged = (ledger.used(tenant, i) - reserved).count,
                          .available = (available + reserved).count,
                          .pressure = 0,
                          .pressure_deadline = 0,
                          .held = session.holding(i).charges.total().count,
                          .tenant_limit = tenant_limit.count,
                          .tenant_charged = (ledger.used(session.tenant, i) - reserved).count};
    const auto asked = session.asked.find(i);
    if (asked == session.asked.end() || asked->second.total().is_zero()) continue;
    figures.devices[i].pressure = asked->second.total().count;
    figures.devices[i].pressure_deadline =
        static_cast<std::uint64_t>(asked->second.due().time_since_epoch() / std::chrono::nanoseconds(1));
  }
  return figures;
}

void Broker::list(DeviceIndex device, DeviceListing& listing) const {
  const Ledger& ledger = state_.ledger;
  const Charges& charges = ledger.charges(device);
  const Bytes lent = charges.total() - charges[Charge::kReserved];
  listing.idle = ledger.pool(device).minus(ledger.missing(device)).minus(lent).count;
  std::map<std::int64_t, Bytes> used;
  for (const auto& [id, session] : state_.sessions) {
    if (session->peer.pid <= 0 || session->exited || session->detached) continue;
    const auto outside = session->outside.find(device);
    const Bytes bytes = session->holding(device).charges.total() +
                        (outside == session->outside.end() ? Bytes{} : outside->second.total());
    if (!bytes.is_zero()) used[session->peer.pid] += bytes;
  }
  std::vector<std::pair<std::int64_t, Bytes>> most(used.begin(), used.end());
  if (most.size() > kMaxListedProcesses) {
    std::ranges::nth_element(most, most.begin() + kMaxListedProcesses, std::greater{},
                             &std::pair<std::int64_t, Bytes>::second);
    most.resize(kMaxListedProcesses);
  }
  listing.process_count = most.size();
  std::ranges::transform(most, listing.processes.begin(), [](const auto& one) {
    return ListedProcess{static_cast<std::uint64_t>(one.first), one.second.count};
  });
}

std::vector<DeviceView> Broker::devices() const {
  const Ledger& ledger = state_.ledger;
  std::vector<DeviceView> views;
  for (DeviceIndex i = 0; i < state_.policy.devices.size(); ++i) {
    const Store& store = leases_.store(i);
    views.push_back({state_.policy.devices[i], ledger.free_or_creatable(i), ledger.charges(i), store.warm(),
                     state_.missing(i), ledger.promised(i), state_.arbiter.waiting(i),
                     reclaimer_.asked_back(i), ledger.outside(i), unmanaged_.view(i).unexplained,
                     std::nullopt});
    if (const auto& claims = state_.arbiter.claims(i); !claims.empty())
      views.back().claim_asked = state_.arbiter.find(claims.begin()->first)->asked;
    views.back().created = ledger.pool(i).minus(ledger.missing(i));
    views.back().contexts = state_.pool_of_contexts(i);
    views.back().contexts_refused = contexts_.refusals(i).count;
    if (views.back().contexts_refused != 0) views.back().context_refused_at = contexts_.refusals(i).last;
  }
  return views;
}

std::vector<TenantView> Broker::tenants(const std::string& after, std::size_t most_tenants) const {
  const Ledger& ledger = state_.ledger;
  const auto& by_name = state_.tenants.by_name();
  std::vector<TenantView> views;
  for (auto it = by_name.upper_bound(after); it != by_name.end() && most_tenants-- != 0; ++it) {
    const auto& [name, id] = *it;
    const TenantId parent = ledger.parent(id);
    for (DeviceIndex i = 0; i < state_.policy.devices.size(); ++i) {
      views.push_back({.name = name,
                       .parent = parent ? state_.tenants.name(parent) : "",
                       .device = i,
                       .quota = ledger.quota(id, i),
                       .charges = ledger.charges(id, i),
                       .outside = ledger.outside(id, i),
                       .burst = ledger.burst(id, i),
                       .debt = ledger.debt(id, i),
                       .sessions = state_.tenants.at(id).sessions_below,
                       .waiting = state_.arbiter.waiting_below(i, id),
                       .regions = regions_.total(id, i)});
    }
  }
  return views;
}

std::vector<JobView> Broker::jobs(CommandJobId after, std::size_t most) const {
  const Ledger& ledger = state_.ledger;
  std::vector<JobView> views;
  for (auto it = state_.jobs.upper_bound(after); it != state_.jobs.end() && views.size() < most; ++it) {
    const CommandJob& job = it->second;
    const Tenant& leaf = state_.tenants.at(job.leaf);
    JobView& view = views.emplace_back(JobView{.id = job.id,
                                               .tenant = state_.tenants.name(leaf.owner),
                                               .label = job.label,
                                               .owner = job.owner,
                                               .since = job.since,
                                               .sessions = leaf.sessions.size(),
                                               .waited = job.waited,
                                               .waiting_since = jobs_.waiting_since(job),
                                               .denied = job.denied,
                                               .devices = {}});
    for (DeviceIndex i = 0; i < job.devices.size(); ++i) {
      view.devices.push_back(
          {ledger.quota(job.leaf, i).limit, ledger.used(job.leaf, i), ledger.reserved(job.leaf, i),
           job.devices[i].peak, state_.arbiter.waiting(i, job.leaf),
           ledger.charges(job.leaf, i)[Charge::kQuarantined], ledger.outside(job.leaf, i)});
    }
  }
  return views;
}

std::vector<SessionView> Broker::sessions(SessionId after, std::size_t most_slices) const {
  std::vector<SessionView> views;
  std::size_t slices = 0;
  for (auto it = state_.session_order.upper_bound(after); it != state_.session_order.end(); ++it) {
    const Session& session = state_.session(*it);
    SessionView& view = views.emplace_back(SessionView{session.id,
                                                       session.tenant_name,
                                                       session.job,
                                                       session.peer,
                                                       session.label,
                                                       session.since,
                                                       session.ended,
                                                       session.detached,
                                                       {},
                                                       {},
                                                       {},
                                                       state_.imports.of(session.id).size(),
                                                       sharer_.waits_of(session.id)});
    view.slices.reserve(session.slices.size());
    for (const auto& [id, slice] : session.slices) {
      view.slices.push_back({id, slice.device, slice.label, slice.limit, slice.charged,
                             slice.charged - slice.held, state_.arbiter.waiting_bytes(id)});
    }
    for (const auto& [device, asked] : session.asked) {
      const Bytes bytes = asked.total() + asked.denied();
      if (!bytes.is_zero()) view.asked.push_back({device, bytes, asked.due()});
    }
    for (DeviceIndex i = 0; i < state_.policy.devices.size(); ++i) {
      SharedView shared{i, session.holding(i).charges.total(), state_.imports.kept(session.id, i).used,
                        session.holding(i).fabric.total(), session.declared(i)};
      for (const auto& [id, slice] : session.slices)
        if (slice.device == i) shared.charged = shared.charged.minus(slice.charged);
      if (!(shared.charged + shared.imported + shared.fabric + shared.declared).is_zero())
        view.shared.push_back(shared);
      const Holding& holding = session.holding(i);
      const bool has_slice =
          std::ranges::any_of(view.slices, [i](const SliceView& one) { return one.device == i; });
      if (!has_slice && holding.charges.total().is_zero()) continue;
      MemoryView& memory = view.memory.emplace_back(MemoryView{i, holding.charges, {}});
      for (const auto& [power, count] : holding.extents)
        memory.extents.emplace_back(Bytes{std::uint64_t{1} << power}, count);
    }
    slices += 1 + session.slices.size();
    if (slices > most_slices) break;
  }
  return views;
}

RegionPage Broker::regions(const RegionViewer& viewer, const std::string& owner, TimePoint now,
                           RegionId after, std::size_t most) const {
  return RegionListing(state_, published_, viewer, now).page(owner, after, most);
}

}  // namespace gpumem::core
