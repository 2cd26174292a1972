#include "daemon/host/quota_overlay.h"

#include <limits>
#include <sstream>

#include "daemon/host/quota_fields.h"

namespace gpumem::host {
namespace {

// Each later change has room for its number, in TOML too.
constexpr std::int64_t kMostRevision = std::numeric_limits<std::int64_t>::max() / 2;

constexpr std::string_view kHeading =
    "# Quotas set with `gpumem quota`, which go before those of gpumemd.toml. gpumemd writes this file; edit "
    "it\n"
    "# only while no broker runs.\n";

toml::table quota_table(const QuotaConfig& quota) {
  toml::table table;
  if (quota.guarantee) table.insert("guarantee", exact_text(*quota.guarantee));
  if (quota.limit) table.insert("limit", exact_text(*quota.limit));
  if (quota.weight) table.insert("weight", std::int64_t{*quota.weight});
  if (quota.priority) table.insert("priority", std::int64_t{*quota.priority});
  return table;
}

toml::table tenant_table(const std::string& name, const QuotasConfig& quotas) {
  toml::table table = quota_table(quotas.everywhere);
  table.insert("name", name);
  toml::array devices;
  for (const auto& [uuid, quota] : quotas.by_device) {
    toml::table device = quota_table(quota);
    device.insert("uuid", uuid);
    devices.push_back(std::move(device));
  }
  if (!devices.empty()) table.insert("device", std::move(devices));
  return table;
}

void read_tenant(TomlReader& reader, const toml::table& table, QuotaOverlay& overlay) {
  std::string name;
  QuotasConfig quotas;
  auto fields = quotas_fields(reader, quotas);
  fields.emplace_back("name", reader.text(name));
  reader.read(table, "[[tenant]]", fields);
  if (name.empty()) reader.fail(table.source(), "a tenant needs a 'name'");
  if (!overlay.tenants.emplace(name, quotas).second)
    reader.fail(table.source(), "tenant '" + name + "' is given twice");
}

}  // namespace

std::string exact_text(const Amount& amount) {
  std::string text = amount.text();
  if (const auto again = parse_amount(text); again && *again == amount)
    return text;  // not rounded for people
  constexpr Bytes kMost{std::numeric_limits<std::uint64_t>::max()};
  if (amount.kind() == Amount::Kind::kAllBut)
    return "all-but " + std::to_string(kMost.minus(amount.of(kMost)).count);
  return std::to_string(amount.of({}).count);
}

Result<QuotaOverlay> parse_overlay(std::string_view text, const std::string& source) {
  auto document = parse_toml(text, source);
  if (!document) return document.error();
  QuotaOverlay overlay;
  TomlReader reader(source);
  reader.read(
      *document, "the file",
      {{"revision", reader.number(overlay.revision, 0, kMostRevision)},
       {"changed", reader.text(overlay.changed)},
       {"changed_by", reader.text(overlay.changed_by)},
       {"tenant", reader.tables([&](const toml::table& table) { read_tenant(reader, table, overlay); })}});
  // A file that was cut off, even to nothing, is no file without quotas.
  if (!document->contains("revision")) reader.fail(document->source(), "there is no 'revision'");
  if (reader.error()) return *reader.error();
  return overlay;
}

std::string overlay_text(const QuotaOverlay& overlay) {
  toml::table document{{"revision", static_cast<std::int64_t>(overlay.revision)},
                       {"changed", overlay.changed},
                       {"changed_by", overlay.changed_by}};
  toml::array tenants;
  for (const auto& [name, quotas] : overlay.tenants) tenants.push_back(tenant_table(name, quotas));
  if (!tenants.empty()) document.insert("tenant", std::move(tenants));
  std::ostringstream text;
  text << kHeading << '\n' << document << '\n';
  return text.str();
}

}  // namespace gpumem::host
