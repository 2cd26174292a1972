#include <algorithm>
#include <string>
#include <vector>

#include "base/text/device_name.h"
#include "base/text/printable.h"
#include "base/text/time_format.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"

namespace gpumem::cli {
namespace {

Json job_json(const v1::JobInfo& job) {
  Json devices = Json::array();
  for (const v1::JobUsage& usage : job.devices()) {
    devices.push_back({{"device", usage.device()},
                       {"limit", usage.limit() == kNoJobLimit ? Json() : Json(usage.limit())},
                       {"charged", usage.charged()},
                       {"reserved", usage.reserved()},
                       {"peak", usage.peak()},
                       {"waiting", usage.waiting()},
                       {"quarantined", usage.quarantined()},
                       {"outside", usage.outside()}});
  }
  return {{"id", job.id()},
          {"tenant", job.tenant()},
          {"label", job.label()},
          {"owner", job.owner() == 0 ? Json() : Json(job.owner())},
          {"since", job.since()},
          {"sessions", job.sessions()},
          {"waited_ms", job.waited_ms()},
          {"denied", job.denied()},
          {"devices", std::move(devices)}};
}

}  // namespace

void bound_limits(v1::ListJobsResponse& jobs, const v1::ListTenantsResponse& tenants) {
  const TenantLimits limits(tenants);
  for (v1::JobInfo& job : *jobs.mutable_jobs())
    for (v1::JobUsage& usage : *job.mutable_devices())
      if (usage.limit() != kNoJobLimit)
        usage.set_limit(std::min(usage.limit(), limits.of(job.tenant(), usage.device())));
}

// A line for each device that the job has something of, or for the first.
std::string jobs_text(const v1::ListJobsResponse& jobs, const Layout& layout) {
  if (jobs.jobs().empty()) return "no jobs\n";
  constexpr auto kRight = Table::Align::kRight;
  Table table({{.title = "JOB", .align = kRight},
               {.title = "TENANT", .rank = 1, .least = 8},
               {.title = "LABEL", .usual = "-", .least = 8},
               {.title = "STATE"},
               {.title = "SESSIONS", .align = kRight, .rank = 5},
               {.title = "WAITED", .align = kRight, .usual = "0ms", .rank = 4},
               {.title = "DENIED", .align = kRight, .usual = "0", .rank = 3, .alerts = true},
               {.title = "DEVICE"},
               {.title = "LIMIT", .align = kRight, .usual = "-"},
               {.title = "HELD", .align = kRight},
               {.title = "RESERVED", .align = kRight, .usual = "0B", .rank = 2},
               {.title = "PEAK", .align = kRight, .rank = 6}});
  for (const v1::JobInfo& job : jobs.jobs()) {
    const auto is_used = [](const v1::JobUsage& usage) {
      return usage.charged() != 0 || usage.peak() != 0 || usage.waiting() != 0;
    };
    const bool uses_none = std::ranges::none_of(job.devices(), is_used);
    for (const v1::JobUsage& usage : job.devices()) {
      const bool is_first = &usage == &*job.devices().begin();
      const bool has_host_limit = usage.device() == kHostStore && usage.limit() != kNoJobLimit;
      if (!is_used(usage) && !has_host_limit && !(uses_none && is_first)) continue;
      table.add({std::to_string(job.id()), tenant_text(job.tenant()), escape_non_ascii(job.label()),
                 usage.waiting() != 0 ? "waits"
                 : job.owner() == 0   ? "ends"
                                      : "runs",
                 std::to_string(job.sessions()), span_text(std::chrono::milliseconds(job.waited_ms())),
                 std::to_string(job.denied()), layout.device(usage.device()),
                 usage.limit() == kNoJobLimit ? "-" : size_text(usage.limit()),
                 size_text(usage.charged() - usage.reserved()), size_text(usage.reserved()),
                 size_text(usage.peak())});
    }
  }
  return table.text(layout);
}

Json jobs_json(const v1::ListJobsResponse& jobs) {
  Json list = Json::array();
  for (const v1::JobInfo& job : jobs.jobs()) list.push_back(job_json(job));
  return list;
}

}  // namespace gpumem::cli
