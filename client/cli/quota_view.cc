#include <algorithm>
#include <set>
#include <string>

#include "client/cli/quota.h"
#include "client/cli/table.h"
#include "gpumem/bytes.h"

namespace gpumem::cli {
namespace {

using Lines = google::protobuf::RepeatedPtrField<v1::QuotaInfo>;

constexpr auto kRight = Table::Align::kRight;

Json to_json(const Lines& lines) {
  Json list = Json::array();
  for (const v1::QuotaInfo& line : lines) {
    list.push_back({{"tenant", line.tenant()},
                    {"parent", line.parent()},
                    {"device", line.device()},
                    {"guarantee", line.guarantee()},
                    {"limit", line.limit()},
                    {"weight", line.weight()},
                    {"priority", line.priority()},
                    {"set", line.set_at_run_time()}});
  }
  return list;
}

// Under whom a line is shown: at the top, if the parent is not in the list.
const std::string& shown_below(const v1::QuotaInfo& line, const Lines& lines) {
  static const std::string kTop;
  const bool listed = std::ranges::count(lines, line.parent(), &v1::QuotaInfo::tenant) != 0;
  return listed ? line.parent() : kTop;
}

// Adds the tenants below `parent`, each followed by those below it. Each is `added` once, so that no answer,
// such as one with a tenant without a name, goes on for ever.
void add_below(const std::string& parent, std::size_t depth, const Lines& lines, std::set<std::string>& added,
               Table& table) {
  for (const v1::QuotaInfo& first : lines) {
    if (shown_below(first, lines) != parent || !added.insert(first.tenant()).second) continue;
    for (const v1::QuotaInfo& line : lines) {
      if (line.tenant() != first.tenant()) continue;
      table.add({std::string(2 * depth, ' ') + line.tenant(), line.device(), size_text(line.guarantee()),
                 size_text(line.limit()), std::to_string(line.weight()), std::to_string(line.priority()),
                 line.set_at_run_time() ? "yes" : ""});
    }
    add_below(first.tenant(), depth + 1, lines, added, table);
  }
}

std::string arrow(const std::string& before, const std::string& after) {
  return before == after ? after : before + " -> " + after;
}

// What was the same tenant's quota on the same device.
v1::QuotaInfo before_of(const v1::QuotaInfo& after, const Lines& lines) {
  const auto found = std::ranges::find(lines, after.device(), &v1::QuotaInfo::device);
  return found == lines.end() ? after : *found;
}

}  // namespace

std::string quotas_text(const v1::ListQuotasResponse& quotas) {
  Table table({{"TENANT"},
               {"DEVICE"},
               {"GUARANTEE", kRight},
               {"LIMIT", kRight},
               {"WEIGHT", kRight},
               {"PRIORITY", kRight},
               {"SET"}});
  std::set<std::string> added;
  add_below("", 0, quotas.quotas(), added, table);
  const std::string revision = "revision " + std::to_string(quotas.revision()) + "\n";
  return quotas.quotas().empty() ? "no tenants\n" + revision : table.text() + revision;
}

Json quotas_json(const v1::ListQuotasResponse& quotas) {
  return {{"revision", quotas.revision()}, {"quotas", to_json(quotas.quotas())}};
}

std::string quota_change_text(const v1::SetQuotaResponse& change) {
  Table table({{"TENANT"}, {"DEVICE"}, {"GUARANTEE"}, {"LIMIT"}, {"WEIGHT"}, {"PRIORITY"}, {"SET"}});
  for (const v1::QuotaInfo& after : change.after()) {
    const v1::QuotaInfo before = before_of(after, change.before());
    const auto set = [](const v1::QuotaInfo& line) { return line.set_at_run_time() ? "yes" : "no"; };
    table.add({after.tenant(), after.device(),
               arrow(size_text(before.guarantee()), size_text(after.guarantee())),
               arrow(size_text(before.limit()), size_text(after.limit())),
               arrow(std::to_string(before.weight()), std::to_string(after.weight())),
               arrow(std::to_string(before.priority()), std::to_string(after.priority())),
               arrow(set(before), set(after))});
  }
  const std::string revision = "revision " + std::to_string(change.revision()) + "\n";
  return change.after().empty() ? "taken back; the tenant is not configured any more\n" + revision
                                : table.text() + revision;
}

Json quota_change_json(const v1::SetQuotaResponse& change) {
  return {{"revision", change.revision()},
          {"before", to_json(change.before())},
          {"after", to_json(change.after())}};
}

}  // namespace gpumem::cli
