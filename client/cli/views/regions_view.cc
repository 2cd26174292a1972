#include <algorithm>
#include <tuple>
#include <vector>

#include "base/text/printable.h"
#include "base/text/time_format.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"
#include "gpumem/bytes.h"

namespace gpumem::cli {
namespace {

// SHARING_GROUP as `group`.
std::string sharing_name(v1::Sharing sharing) {
  std::string name = v1::Sharing_Name(sharing);
  if (name.empty()) return "unknown";  // of a newer broker
  name.erase(0, std::string("SHARING_").size());
  for (char& letter : name) letter = static_cast<char>(std::tolower(letter));
  return name;
}

// Named tenants by name, where the broker tells them.
std::string sharing_text(const v1::RegionInfo& region) {
  std::string names;
  for (const std::string& reader : region.readers())
    names += (names.empty() ? "" : ",") + tenant_text(reader);
  return names.empty() ? sharing_name(region.sharing()) : names;
}

std::string remaining_text(const std::string& expires, WallTime now) {
  const auto end = parse_rfc3339(expires);
  if (!end) return "";
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*end - now);
  return "in " + span_text(std::max(left, std::chrono::milliseconds(0)));
}

std::uint64_t mapped_of(const v1::RegionInfo& region) {
  std::uint64_t mapped = 0;
  for (const v1::RegionMapping& one : region.mappings()) mapped += one.count();
  return mapped;
}

std::string hex(const std::string& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

// Of no digest, which is as good as all zeros, too.
Json digest_json(const std::string& digest) {
  const bool is_given = std::ranges::any_of(digest, [](char byte) { return byte != 0; });
  return is_given ? Json(hex(digest)) : Json();
}

Json pid_json(std::int64_t pid) { return pid == 0 ? Json() : Json(pid); }

Json region_json(const v1::RegionInfo& region) {
  Json charged = Json::array();
  for (const v1::RegionCharge& one : region.charged()) {
    charged.push_back({{"session", one.session()},
                       {"pid", pid_json(one.pid())},
                       {"command", one.command()},
                       {"bytes", one.bytes()}});
  }
  Json mappings = Json::array();
  for (const v1::RegionMapping& one : region.mappings()) {
    mappings.push_back({{"session", one.session()},
                        {"pid", pid_json(one.pid())},
                        {"tenant", one.tenant()},
                        {"command", one.command()},
                        {"count", one.count()}});
  }
  return {{"owner", region.owner()},
          {"name", region.name()},
          {"version", region.version()},
          {"sealed", region.sealed()},
          {"device", region.device()},
          {"bytes", region.bytes()},
          {"layout", region.layout()},
          {"digest", digest_json(region.digest())},
          {"memory", region.memory()},
          {"offset", region.offset()},
          {"sharing", sharing_name(region.sharing())},
          {"readers", std::vector<std::string>(region.readers().begin(), region.readers().end())},
          {"charged", std::move(charged)},
          {"mapped", mapped_of(region)},
          {"mappings", std::move(mappings)},
          {"since", region.since()},
          {"expires", region.expires().empty() ? Json() : Json(region.expires())},
          {"kept", region.kept()},
          {"linger_ms", region.linger_ms() == 0 ? Json() : Json(region.linger_ms())},
          {"left", region.left().empty() ? Json() : Json(region.left())}};
}

// The same for regions of the same memory. A broker that does not say has 0.
std::string memory_text(const v1::RegionInfo& region) {
  if (region.memory() == 0) return "";
  return std::to_string(region.memory()) + (region.offset() == 0 ? "" : "+" + size_text(region.offset()));
}

struct RegionSum {
  explicit RegionSum(const v1::ListRegionsResponse& regions) : count(regions.regions_size()) {
    for (const v1::RegionInfo& region : regions.regions()) {
      bytes += region.bytes();
      kept += region.kept() ? 1 : 0;
    }
  }
  int count;
  std::uint64_t bytes = 0;
  int kept = 0;
};

std::vector<std::string> region_cells(const v1::RegionInfo& region, WallTime now, const Layout& layout) {
  const bool is_known = !region.charged().empty();
  const std::int64_t pid = is_known ? region.charged(0).pid() : 0;
  std::string session = is_known ? std::to_string(region.charged(0).session()) : "";
  const bool is_left = is_known && region.kept() && pid == 0;
  if (region.charged_size() > 1) session += "+" + std::to_string(region.charged_size() - 1);
  return {tenant_text(region.owner()),
          escape_non_ascii(region.name()),
          std::to_string(region.version()),
          region.sealed() ? "yes" : "",
          layout.device(region.device()),
          size_text(region.bytes()),
          memory_text(region),
          sharing_text(region),
          session,
          pid != 0  ? std::to_string(pid)
          : is_left ? "kept"
                    : "?",
          std::to_string(mapped_of(region)),
          age_text(region.since(), now),
          remaining_text(region.expires(), now)};
}

}  // namespace

std::string regions_text(const v1::ListRegionsResponse& regions, WallTime now, const Layout& layout) {
  if (regions.regions().empty()) return "no regions\n";
  std::vector<const v1::RegionInfo*> sorted;
  for (const v1::RegionInfo& region : regions.regions()) sorted.push_back(&region);
  std::ranges::sort(sorted, {}, [](const v1::RegionInfo* region) {
    return std::tuple(std::string_view(region->owner()), std::string_view(region->name()), region->version());
  });
  constexpr auto kRight = Table::Align::kRight;
  Table table({{.title = "OWNER", .least = 8},
               {.title = "NAME", .least = 8},
               {.title = "VERSION", .align = kRight},
               {.title = "SEALED", .usual = "-", .rank = 2},
               {.title = "DEVICE"},
               {.title = "SIZE", .align = kRight},
               {.title = "MEMORY", .align = kRight, .rank = 4},
               {.title = "SHARING", .rank = 3, .least = 8},
               {.title = "SESSION", .align = kRight, .rank = 6},
               {.title = "PID", .align = kRight, .rank = 5},
               {.title = "MAPPED", .align = kRight},
               {.title = "AGE", .align = kRight, .rank = 7},
               {.title = "EXPIRES", .usual = "-", .rank = 1}});
  for (const v1::RegionInfo* region : sorted) table.add(region_cells(*region, now, layout));
  return table.text(layout);
}

std::string regions_summary(const v1::ListRegionsResponse& regions) {
  if (regions.regions().empty()) return "";
  const RegionSum sum(regions);
  return "\n" + std::to_string(sum.count) + (sum.count == 1 ? " region of " : " regions of ") +
         size_text(sum.bytes) + (sum.kept == 0 ? "" : ", " + std::to_string(sum.kept) + " kept") +
         ": `gpumem regions` lists them\n";
}

Json regions_summary_json(const v1::ListRegionsResponse& regions) {
  const RegionSum sum(regions);
  return {{"count", sum.count}, {"bytes", sum.bytes}, {"kept", sum.kept}};
}

Json regions_json(const v1::ListRegionsResponse& regions) {
  Json list = Json::array();
  for (const v1::RegionInfo& region : regions.regions()) list.push_back(region_json(region));
  return {{"regions", std::move(list)}};
}

}  // namespace gpumem::cli
