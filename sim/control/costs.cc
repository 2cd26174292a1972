#include "sim/control/costs.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>

#include "sim/control/control_file.h"
#include "sim/control/faults.h"

namespace gpumem::sim {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSuffix = ".costs";

/// Reads one line; a cost without a call if it says nothing.
Result<Cost> parse_line(std::string_view line) {
  std::istringstream words(std::string(line.substr(0, line.find('#'))));
  std::string base, per_mib = "0s", surplus;
  Cost cost;
  if (!(words >> cost.call)) return cost;
  words >> base >> per_mib;
  if (words >> surplus) return Error{Code::kInvalidArgument, "'" + surplus + "' is too much"};
  const auto stem = std::string_view(cost.call).substr(0, cost.call.size() - cost.call.ends_with('*'));
  const bool is_call = cost.call.starts_with("cu") || cost.call.starts_with("nvml");
  if (!is_call || cost.call.size() >= layout::kCallLength || stem.find('*') != std::string_view::npos)
    return Error{Code::kInvalidArgument, "'" + cost.call + "' is no driver call"};
  const auto base_time = parse_time(base);
  if (!base_time) return base_time.error();
  const auto mib_time = parse_time(per_mib);
  if (!mib_time) return mib_time.error();
  cost.base = *base_time;
  cost.per_mib = *mib_time;
  return cost;
}

/// `: there are a100, h200` for the profiles in `folder`.
std::string known_profiles(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == kSuffix) names.insert(entry->path().stem());
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? ": there are " : ", ") + name;
  return text;
}

Result<void> put_costs(const Machine& machine, const std::vector<layout::Cost>& costs) {
  auto file = ControlFile::open(machine);
  if (!file) return file.error();
  return (*file)->edit([&](ControlContents& contents) -> Result<void> {
    contents.costs = costs;
    return {};
  });
}

}  // namespace

Result<CostProfile> parse_costs(std::string_view text) {
  CostProfile profile;
  std::set<std::string> seen;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string where = "line " + std::to_string(number);
    auto cost = parse_line(line);
    if (!cost) {
      return Error{cost.error().code, where + ": " + cost.error().message +
                                          "; wanted is CALL BASE [PER_MIB], such as cuMemCreate 193us 10us"};
    }
    if (cost->call.empty()) continue;
    if (!seen.insert(cost->call).second)
      return Error{Code::kInvalidArgument, where + ": " + cost->call + " is there twice"};
    profile.push_back(std::move(*cost));
  }
  return profile;
}

Result<CostProfile> load_costs(const std::string& name) {
  fs::path path = name;
  std::string known;
  if (name.find('/') == std::string::npos) {
    const auto libraries = find_libraries();
    if (!libraries) return libraries.error();
    path = *libraries / "costs" / (name + kSuffix);
    known = known_profiles(path.parent_path());
  }
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return Error{Code::kNotFound,
                 "no cost profile '" + name + "'" + known + "; a path has a slash: ./" + name};
  }
  auto profile = parse_costs(text.str());
  return profile ? profile : Result<CostProfile>(profile.error().in(path.string()));
}

Result<void> set_costs(const Machine& machine, const CostProfile& profile) {
  std::vector<layout::Cost> costs;
  for (const Cost& cost : profile) {
    layout::Cost& entry = costs.emplace_back();
    cost.call.copy(entry.call, sizeof entry.call - 1);
    entry.base_ps = static_cast<std::uint64_t>(cost.base.count());
    entry.per_mib_ps = static_cast<std::uint64_t>(cost.per_mib.count());
  }
  return put_costs(machine, costs);
}

Result<void> clear_costs(const Machine& machine) { return put_costs(machine, {}); }

Result<CostProfile> costs(const Machine& machine) {
  auto file = ControlFile::open(machine);
  if (!file) return file.error();
  CostProfile profile;
  for (const layout::Cost& cost : (*file)->read().costs) {
    profile.push_back({cost.call, Picoseconds(cost.base_ps), Picoseconds(cost.per_mib_ps)});
  }
  return profile;
}

const layout::Cost* find_cost(std::span<const layout::Cost> costs, std::string_view name) {
  const layout::Cost* best = nullptr;
  std::size_t best_length = 0;
  for (const layout::Cost& cost : costs) {
    const std::string_view pattern = cost.call;
    if (!call_matches(pattern, name)) continue;
    const bool is_prefix = pattern.ends_with('*');
    const std::size_t length = is_prefix ? pattern.size() : layout::kCallLength + pattern.size();
    if (best == nullptr || length > best_length) {
      best = &cost;
      best_length = length;
    }
  }
  return best;
}

}  // namespace gpumem::sim
