#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "base/text/device_name.h"
#include "base/text/printable.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"
#include "gpumem/bytes.h"

namespace gpumem::cli {
namespace {

constexpr std::size_t kBarCells = 20;

std::size_t cells_of(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return 0;
  const double share = static_cast<double>(std::min(part, whole)) / static_cast<double>(whole);
  return static_cast<std::size_t>(std::lround(share * static_cast<double>(kBarCells)));
}

std::string job_name(const v1::JobInfo& job) {
  return "job " + std::to_string(job.id()) +
         (job.label().empty() ? "" : " (" + escape_non_ascii(job.label()) + ")");
}

// As tenants below their own, on each device that they have something of.
void add_jobs(v1::ListTenantsResponse& tenants, const v1::ListJobsResponse& jobs) {
  for (const v1::JobInfo& job : jobs.jobs()) {
    for (const v1::JobUsage& usage : job.devices()) {
      if (usage.charged() == 0 && usage.waiting() == 0 && job.devices_size() > 1) continue;
      v1::TenantUsage& one = *tenants.add_tenants();
      one.set_tenant(job_name(job));
      one.set_parent(job.tenant());
      one.set_device(usage.device());
      one.set_limit(usage.limit());
      one.set_charged(usage.charged());
      one.set_quarantined(usage.quarantined());
      one.set_outside(usage.outside());
      one.set_sessions(job.sessions());
      one.set_waiting(usage.waiting());
    }
  }
}

}  // namespace

// In a tree, a parent stands before those below it.
TenantLimits::TenantLimits(const v1::ListTenantsResponse& tenants) {
  for (const auto& [tenant, depth] : tenant_tree(tenants.tenants()))
    known_[{tenant->tenant(), tenant->device()}] =
        tenant->limit() == kNoJobLimit ? kNoJobLimit
                                       : std::min(tenant->limit(), of(tenant->parent(), tenant->device()));
}

std::uint64_t TenantLimits::of(const std::string& tenant, const std::string& device) const {
  const auto known = known_.find({tenant, device});
  return known == known_.end() ? kNoJobLimit : known->second;
}

std::string usage_bar(std::uint64_t charged, std::uint64_t guarantee, std::uint64_t limit) {
  std::string bar(cells_of(charged, limit), '#');
  bar.resize(kBarCells, '.');
  if (guarantee > 0 && guarantee < limit) bar.insert(cells_of(guarantee, limit), 1, '|');
  return "[" + bar + "]";
}

std::string tenants_text(v1::ListTenantsResponse tenants, const Layout& layout,
                         const v1::ListJobsResponse& jobs) {
  add_jobs(tenants, jobs);
  if (tenants.tenants().empty()) return "no tenants\n";
  constexpr auto kRight = Table::Align::kRight;
  std::vector<Table::Column> columns{
      {.title = "TENANT", .least = 20},
      {.title = "DEVICE"},
      {.title = "GUARANTEE", .align = kRight},
      {.title = "LIMIT", .align = kRight},
      {.title = "CHARGED", .align = kRight},
      {.title = "PINNED", .align = kRight, .usual = "0B", .rank = 5},
      {.title = "DEBT", .align = kRight, .usual = "0B", .alerts = true},
      {.title = "BURST", .align = kRight, .usual = "0B", .rank = 3},
      {.title = "QUARANTINED", .align = kRight, .usual = "0B", .rank = 1, .alerts = true},
      {.title = "SESSIONS", .align = kRight, .rank = 2},
      {.title = "WAITING", .align = kRight, .usual = "0", .alerts = true}};
  if (layout.is_terminal) columns.push_back({.title = "OF ITS LIMIT", .rank = 4});
  Table table(std::move(columns));
  const TenantLimits limits(tenants);
  for (const auto& [tenant, depth] : tenant_tree(tenants.tenants())) {
    const std::uint64_t limit = limits.of(tenant->tenant(), tenant->device());
    table.add({std::string(2 * depth, ' ') + tenant_text(tenant->tenant()), layout.device(tenant->device()),
               size_text(tenant->guarantee()), limit == kNoJobLimit ? "-" : size_text(limit),
               size_text(tenant->charged()),
               tenant->device() == kHostStore ? size_text(tenant->outside()) : "", size_text(tenant->debt()),
               size_text(tenant->burst()), size_text(tenant->quarantined()),
               std::to_string(tenant->sessions()), std::to_string(tenant->waiting()),
               usage_bar(tenant->charged(), tenant->guarantee(), limit)});
  }
  return table.text(layout);
}

Json tenants_json(const v1::ListTenantsResponse& tenants, const v1::ListJobsResponse& jobs) {
  Json list = Json::array();
  for (const v1::TenantUsage& tenant : tenants.tenants()) {
    list.push_back({{"tenant", tenant.tenant()},
                    {"device", tenant.device()},
                    {"guarantee", tenant.guarantee()},
                    {"limit", tenant.limit()},
                    {"charged", tenant.charged()},
                    {"quarantined", tenant.quarantined()},
                    {"reserved", tenant.reserved()},
                    {"parent", tenant.parent().empty() ? Json() : Json(tenant.parent())},
                    {"weight", tenant.weight()},
                    {"priority", tenant.priority()},
                    {"burst", tenant.burst()},
                    {"debt", tenant.debt()},
                    {"outside", tenant.outside()},
                    {"sessions", tenant.sessions()},
                    {"waiting", tenant.waiting()}});
  }
  return {{"tenants", std::move(list)}, {"jobs", jobs_json(jobs)}};
}

}  // namespace gpumem::cli
