#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

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

bool any(const v1::ListTenantsResponse& tenants, std::uint64_t (v1::TenantUsage::*figure)() const) {
  return std::any_of(tenants.tenants().begin(), tenants.tenants().end(),
                     [&](const v1::TenantUsage& tenant) { return (tenant.*figure)() != 0; });
}

std::string job_name(const v1::JobInfo& job) {
  return "job " + std::to_string(job.id()) + (job.label().empty() ? "" : " (" + job.label() + ")");
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
      one.set_sessions(job.sessions());
      one.set_waiting(usage.waiting());
    }
  }
}

}  // namespace

std::string usage_bar(std::uint64_t charged, std::uint64_t guarantee, std::uint64_t limit) {
  std::string bar(cells_of(charged, limit), '#');
  bar.resize(kBarCells, '.');
  if (guarantee > 0 && guarantee < limit) bar.insert(cells_of(guarantee, limit), 1, '|');
  return "[" + bar + "]";
}

std::string tenants_text(v1::ListTenantsResponse tenants, bool bars, const v1::ListJobsResponse& jobs) {
  add_jobs(tenants, jobs);
  if (tenants.tenants().empty()) return "no tenants\n";
  const bool burst = any(tenants, &v1::TenantUsage::burst);
  const bool debt = any(tenants, &v1::TenantUsage::debt);
  constexpr auto kRight = Table::Align::kRight;
  std::vector<Table::Column> columns{{"TENANT"},           {"DEVICE"},          {"GUARANTEE", kRight},
                                     {"LIMIT", kRight},    {"CHARGED", kRight}, {"QUARANTINED", kRight},
                                     {"SESSIONS", kRight}, {"WAITING", kRight}};
  if (burst) columns.insert(columns.begin() + 5, {"BURST", kRight});
  if (debt) columns.insert(columns.begin() + 5, {"DEBT", kRight});
  if (bars) columns.push_back({"OF ITS LIMIT"});
  Table table(std::move(columns));
  for (const auto& [tenant, depth] : tenant_tree(tenants.tenants())) {
    std::vector<std::string> cells{
        std::string(2 * depth, ' ') + tenant->tenant(), tenant->device(), size_text(tenant->guarantee()),
        tenant->limit() == kNoJobLimit ? "-" : size_text(tenant->limit()), size_text(tenant->charged())};
    if (debt) cells.push_back(size_text(tenant->debt()));
    if (burst) cells.push_back(size_text(tenant->burst()));
    cells.push_back(size_text(tenant->quarantined()));
    cells.push_back(std::to_string(tenant->sessions()));
    cells.push_back(std::to_string(tenant->waiting()));
    if (bars) cells.push_back(usage_bar(tenant->charged(), tenant->guarantee(), tenant->limit()));
    table.add(std::move(cells));
  }
  return table.text();
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
