#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/views/host_memory.h"
#include "client/cli/views/names.h"
#include "client/cli/views/table.h"
#include "client/cli/views/text.h"
#include "gpumem/v1/broker.pb.h"

// The broker's answers as text for people and as JSON for programs. JSON's keys are stable: they are added
// to, never renamed; sizes are bytes, instants RFC 3339.

namespace gpumem::v1 {
class ListClaimsResponse;
}

namespace gpumem::cli {

using Json = nlohmann::ordered_json;

/// The UUIDs of the devices, by their places.
std::vector<std::string> uuids_of(const v1::GetStatusResponse& status);
/// Says that programs had no memory for their contexts lately; empty: they had.
std::string contexts_refused_text(const v1::DeviceStatus& device, WallTime now, const Layout& layout);
std::string status_text(const v1::GetStatusResponse& status, WallTime now, const Layout& layout = {});
Json status_json(const v1::GetStatusResponse& status, WallTime now);

/// Which sessions, in which order.
struct SessionsChoice {
  std::optional<std::uint32_t> user{};
  std::string sort{};  ///< one of kSessionKeys; empty: in the order they came
  bool total = false;  ///< with sums for each device
};
inline constexpr std::array<const char*, 5> kSessionKeys{"age", "charged", "in-use", "user", "waiting"};
/// Leaves out the sessions that are not chosen, and sorts the others: amounts and ages from the largest.
void choose(v1::ListSessionsResponse& sessions, const SessionsChoice& choice);

/// The memory of sessions' processes on the host, by session.
using HostMemories = std::map<std::uint64_t, HostMemory>;

/// `regions`  those that the caller may see; how many of them each session has, and has mapped, is shown.
std::string sessions_text(const v1::ListSessionsResponse& sessions, WallTime now,
                          const v1::ListRegionsResponse& regions = {}, const Layout& layout = {},
                          bool total = false, const HostMemories& host = {});
Json sessions_json(const v1::ListSessionsResponse& sessions, const v1::ListRegionsResponse& regions = {},
                   bool total = false, const HostMemories& host = {});

/// By owner and name.
std::string regions_text(const v1::ListRegionsResponse& regions, WallTime now, const Layout& layout = {});
Json regions_json(const v1::ListRegionsResponse& regions);
/// A line, or nothing if there are none. Memory that several have in common counts in each.
std::string regions_summary(const v1::ListRegionsResponse& regions);
Json regions_summary_json(const v1::ListRegionsResponse& regions);

/// The lines of tenants, each below its parent's with its depth; a tenant's lines together; else in their
/// order. A parent that is not listed counts as none. Each tenant comes once: an answer with a cycle, or with
/// a tenant without a name, ends.
template <class Line>
std::vector<std::pair<const Line*, std::size_t>> tenant_tree(
    const google::protobuf::RepeatedPtrField<Line>& lines) {
  std::set<std::string> names;
  std::multimap<std::string, const Line*> children;
  for (const Line& line : lines) names.insert(line.tenant());
  for (const Line& line : lines) children.emplace(names.contains(line.parent()) ? line.parent() : "", &line);
  std::vector<std::pair<const Line*, std::size_t>> tree;
  std::set<std::string> shown;
  const auto add = [&](const auto& self, const std::string& parent, std::size_t depth) -> void {
    const auto [first, last] = children.equal_range(parent);
    for (auto child = first; child != last; ++child) {
      const std::string& name = child->second->tenant();
      if (!shown.insert(name).second) continue;
      for (auto same = child; same != last; ++same) {
        if (same->second->tenant() == name) tree.emplace_back(same->second, depth);
      }
      self(self, name, depth + 1);
    }
  };
  add(add, "", 0);
  return tree;
}

/// The limits that hold for tenants: on each device the smallest of their own and those of tenants above
/// them.
class TenantLimits {
 public:
  explicit TenantLimits(const v1::ListTenantsResponse& tenants);
  /// kNoJobLimit: the tenant is not listed on the device.
  std::uint64_t of(const std::string& tenant, const std::string& device) const;

 private:
  std::map<std::pair<std::string, std::string>, std::uint64_t> known_;
};

/// The tenants of each device as a tree. What they have beyond promises or limits shows if any has.
/// On a terminal with a bar of each tenant's use of its limit. `jobs`  stand below their tenants.
std::string tenants_text(v1::ListTenantsResponse tenants, const Layout& layout = {},
                         const v1::ListJobsResponse& jobs = {});
Json tenants_json(const v1::ListTenantsResponse& tenants, const v1::ListJobsResponse& jobs = {});

/// JobUsage::limit of a job that only the limit of its tenant bounds.
inline constexpr std::uint64_t kNoJobLimit = ~std::uint64_t{0};
/// Bounds the limits of jobs by those of their tenants: programs see the smaller one.
void bound_limits(v1::ListJobsResponse& jobs, const v1::ListTenantsResponse& tenants);
std::string jobs_text(const v1::ListJobsResponse& jobs, const Layout& layout = {});
Json jobs_json(const v1::ListJobsResponse& jobs);

/// A line for each tenant and device, amounts in GiB times hours.
std::string accounts_text(const v1::ListAccountsResponse& accounts, WallTime now, const Layout& layout = {});
/// Amounts are bytes times seconds, as in accounts_csv().
Json accounts_json(const v1::ListAccountsResponse& accounts);
/// Comma-separated values of RFC 4180 but for its line breaks, with a line of names.
std::string accounts_csv(const v1::ListAccountsResponse& accounts);
/// An answer of gpumem-history, or one of its rows, has this under a name. Zero or empty: nothing of that
/// kind.
double number_in(const nlohmann::json& row, const std::string& name);
std::uint64_t whole_in(const nlohmann::json& row, const std::string& name);
std::string text_in(const nlohmann::json& row, const std::string& name);
/// What the account, or a row of an answer of gpumem-history, was charged: bytes times seconds, of all kinds.
double account_charge(const v1::Account& account);
double account_charge(const nlohmann::json& row);
/// Sorts the rows of an answer of gpumem-history by the columns that it was asked for, devices by their
/// places in `layout`. `by`  empty: tenant and device.
void sort_by_place(nlohmann::json& answer, std::vector<std::string> by, const Layout& layout);
/// The rows that gpumem-history has answered with; amounts of the first are GiB times hours.
std::string history_text(const nlohmann::json& answer, const Layout& layout = {});
std::string history_csv(const nlohmann::json& answer);

std::string reconcile_text(const v1::ReconcileResponse& response, WallTime now, const Layout& layout = {});
Json reconcile_json(const v1::ReconcileResponse& response);

/// How a tenant stands on each device, and for each request that waits what it waits for, in words and
/// figures. `troubles`  the tenant's latest denials and signals, the latest first, as of `now`: told where
/// nothing waits.
std::string why_text(const v1::ExplainResponse& explained, const std::vector<v1::Event>& troubles = {},
                     WallTime now = {}, const Layout& layout = {});
Json why_json(const v1::ExplainResponse& explained, const std::vector<v1::Event>& troubles = {});

/// The obstacle of a request, in words that are complete without the figures.
std::string obstacle_words(const v1::Denial& denial);

/// Tenants under their parents.
std::string quotas_text(const v1::ListQuotasResponse& quotas, const Layout& layout = {});
Json quotas_json(const v1::ListQuotasResponse& quotas);

/// The quota before and after the change.
std::string quota_change_text(const v1::SetQuotaResponse& change, const Layout& layout = {});
Json quota_change_json(const v1::SetQuotaResponse& change);

/// A line for each amount.
std::string claims_text(const v1::ListClaimsResponse& claims, const Layout& layout = {});
Json claims_json(const v1::ListClaimsResponse& claims);

/// An event in one line of words: time, subject, effect.
std::string event_line(const v1::Event& event, const Layout& layout = {});
/// The effect alone. `devices`  UUIDs, by their places.
std::string event_words(const v1::Event& event, const std::vector<std::string>& devices);

/// An event in one line of JSON, for programs. A field that the event does not have is null.
std::string event_json_line(const v1::Event& event);

/// `[####|...]`: `charged` of `limit`, with a mark where `guarantee` ends.
std::string usage_bar(std::uint64_t charged, std::uint64_t guarantee, std::uint64_t limit);

/// JSON as it is printed; text that is no UTF-8 is mended.
std::string json_text(const Json& json);

}  // namespace gpumem::cli
