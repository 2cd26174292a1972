#include <algorithm>
#include <cmath>

#include "client/cli/table.h"
#include "client/cli/views.h"
#include "gpumem/bytes.h"

namespace gpumem::cli {
namespace {

constexpr std::size_t kBarCells = 20;

std::size_t cells_of(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return 0;
  const double share = static_cast<double>(std::min(part, whole)) / static_cast<double>(whole);
  return static_cast<std::size_t>(std::lround(share * static_cast<double>(kBarCells)));
}

}  // namespace

std::string usage_bar(std::uint64_t charged, std::uint64_t guarantee, std::uint64_t limit) {
  std::string bar(cells_of(charged, limit), '#');
  bar.resize(kBarCells, '.');
  if (guarantee > 0 && guarantee < limit) bar.insert(cells_of(guarantee, limit), 1, '|');
  return "[" + bar + "]";
}

std::string tenants_text(const v1::ListTenantsResponse& tenants, bool bars) {
  if (tenants.tenants().empty()) return "no tenants\n";
  constexpr auto kRight = Table::Align::kRight;
  std::vector<Table::Column> columns{{"TENANT"},           {"DEVICE"},          {"GUARANTEE", kRight},
                                     {"LIMIT", kRight},    {"CHARGED", kRight}, {"QUARANTINED", kRight},
                                     {"SESSIONS", kRight}, {"WAITING", kRight}};
  if (bars) columns.push_back({"OF ITS LIMIT"});
  Table table(std::move(columns));
  for (const v1::TenantUsage& tenant : tenants.tenants()) {
    table.add({tenant.tenant(), tenant.device(), to_string(Bytes{tenant.guarantee()}),
               to_string(Bytes{tenant.limit()}), to_string(Bytes{tenant.charged()}),
               to_string(Bytes{tenant.quarantined()}), std::to_string(tenant.sessions()),
               std::to_string(tenant.waiting()),
               bars ? usage_bar(tenant.charged(), tenant.guarantee(), tenant.limit()) : ""});
  }
  return table.text();
}

Json tenants_json(const v1::ListTenantsResponse& tenants) {
  Json list = Json::array();
  for (const v1::TenantUsage& tenant : tenants.tenants()) {
    list.push_back({{"tenant", tenant.tenant()},
                    {"device", tenant.device()},
                    {"guarantee", tenant.guarantee()},
                    {"limit", tenant.limit()},
                    {"charged", tenant.charged()},
                    {"quarantined", tenant.quarantined()},
                    {"sessions", tenant.sessions()},
                    {"waiting", tenant.waiting()}});
  }
  return {{"tenants", std::move(list)}};
}

}  // namespace gpumem::cli
