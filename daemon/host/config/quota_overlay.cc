#include "daemon/host/config/quota_overlay.h"

#include <algorithm>
#include <limits>
#include <sstream>

#include "daemon/host/config/toml_reader.h"

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

Error invalid(std::string words) { return {Code::kInvalidArgument, std::move(words)}; }

Result<std::optional<std::uint32_t>> in_range(const char* what, std::optional<std::uint32_t> value,
                                              std::uint32_t least, std::uint32_t most) {
  if (!value || (*value >= least && *value <= most)) return value;
  return invalid(std::string(what) + " " + std::to_string(*value) + " is not from " + std::to_string(least) +
                 " to " + std::to_string(most));
}

Result<std::optional<Amount>> amount_of(const char* what, const std::optional<std::string>& text) {
  if (!text) return std::optional<Amount>();
  auto amount = parse_amount(*text);
  if (!amount) return amount.error().in(what);
  return std::optional(*amount);
}

Result<QuotaConfig> wish_of(const core::QuotaChange& change) {
  const auto guarantee = amount_of("guarantee", change.guarantee);
  if (!guarantee) return guarantee.error();
  const auto limit = amount_of("limit", change.limit);
  if (!limit) return limit.error();
  const auto weight = in_range("weight", change.weight, 1, core::kMaxWeight);
  if (!weight) return weight.error();
  const auto priority = in_range("priority", change.priority, 0, core::kMaxPriority);
  if (!priority) return priority.error();
  const QuotaConfig wish{*guarantee, *limit, *weight, *priority};
  if (change.tenant.empty()) return invalid("no tenant is named");
  if (change.reset && !wish.says_nothing())
    return invalid("a quota is either set or reset: nothing else can be given with a reset");
  if (!change.reset && wish.says_nothing())
    return invalid("nothing is to be changed: give a guarantee, a limit, a weight or a priority");
  return wish;
}

template <class Act>
void for_each_member(const Act& act) {
  act(&QuotaConfig::guarantee);
  act(&QuotaConfig::limit);
  act(&QuotaConfig::weight);
  act(&QuotaConfig::priority);
}

// What `wish` says goes into `quota`.
void put_over(QuotaConfig& quota, const QuotaConfig& wish) {
  for_each_member([&](auto member) {
    if (wish.*member) quota.*member = wish.*member;
  });
}

void set_everywhere(QuotasConfig& quotas, const QuotaConfig& wish) {
  put_over(quotas.everywhere, wish);
  for (auto& [uuid, quota] : quotas.by_device) {
    for_each_member([&, &own = quota](auto member) {
      if (wish.*member) (own.*member).reset();
    });
  }
}

// Quotas that were set for all devices stay in force on the others.
void reset_one(QuotasConfig& quotas, const std::string& device, const std::vector<std::string>& devices) {
  for (const std::string& uuid : devices) {
    if (uuid == kHostStore) continue;
    QuotaConfig own = quotas.everywhere;
    put_over(own, quotas.by_device[uuid]);
    quotas.by_device[uuid] = own;
  }
  quotas.everywhere = {};
  quotas.by_device.erase(device);
}

Error unknown_device(const std::string& device, const std::vector<std::string>& devices) {
  std::string known;
  for (const std::string& uuid : devices) known += (known.empty() ? "" : ", ") + uuid;
  return {Code::kNotFound, "device '" + device + "' is not lent; lent are: " + known};
}

std::string arrow(const char* what, const std::string& before, const std::string& after) {
  return before == after ? "" : std::string(what) + " " + before + " -> " + after + ", ";
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

Result<QuotaOverlay> with_change(const QuotaOverlay& overlay, const core::QuotaChange& change,
                                 const std::vector<std::string>& devices) {
  const auto wish = wish_of(change);
  if (!wish) return wish.error();
  QuotaOverlay next = overlay;
  QuotasConfig& quotas = next.tenants[change.tenant];
  const bool lent = std::ranges::count(devices, change.device) != 0;
  // The quota of a device that is gone can still be reset.
  if (!change.device.empty() && !lent && !(change.reset && quotas.by_device.contains(change.device)))
    return unknown_device(change.device, devices);
  if (change.reset && change.device.empty())
    quotas = {};
  else if (change.reset && lent)
    reset_one(quotas, change.device, devices);
  else if (change.reset)
    quotas.by_device.erase(change.device);
  else if (change.device.empty())
    set_everywhere(quotas, *wish);
  else
    put_over(quotas.by_device[change.device], *wish);
  std::erase_if(quotas.by_device, [](const auto& entry) { return entry.second.says_nothing(); });
  if (quotas == QuotasConfig{}) next.tenants.erase(change.tenant);
  return next;
}

Result<void> check_limit(const core::QuotaChange& change, const core::Policy& policy) {
  const auto limit = amount_of("limit", change.limit);
  if (!limit || !*limit) return {};
  for (const core::DevicePolicy& device : policy.devices) {
    if (change.device.empty() ? device.is_host() : change.device != device.uuid) continue;
    if ((*limit)->of(device.pool) <= device.pool) continue;
    const std::string pool = to_string(device.pool);
    return invalid("a limit of " + *change.limit + " is more than the pool of " + pool + " on " +
                   device.uuid + ": give at most that (or 100%)" +
                   (change.device.empty() && policy.devices.size() > 1
                        ? ", or set the limit of each device by itself (--device)"
                        : ""));
  }
  return {};
}

bool says_something(const QuotaOverlay& overlay, const std::string& tenant, const std::string& device) {
  const auto quotas = overlay.tenants.find(tenant);
  if (quotas == overlay.tenants.end()) return false;
  const bool is_meant = device != kHostStore && !quotas->second.everywhere.says_nothing();
  return is_meant || quotas->second.by_device.contains(device);
}

std::string difference(const core::QuotaOutcome& outcome) {
  std::string words;
  for (std::size_t i = 0; i < outcome.before.size() && i < outcome.after.size(); ++i) {
    const core::Quota& before = outcome.before[i].quota;
    const core::Quota& after = outcome.after[i].quota;
    std::string one = arrow("guarantee", to_string(before.guarantee), to_string(after.guarantee)) +
                      arrow("limit", to_string(before.limit), to_string(after.limit)) +
                      arrow("weight", std::to_string(before.weight), std::to_string(after.weight)) +
                      arrow("priority", std::to_string(before.priority), std::to_string(after.priority));
    if (one.empty()) continue;
    one.resize(one.size() - 2);
    words += (words.empty() ? "" : "; ") + one + " on " + outcome.after[i].device;
  }
  return words.empty() ? "nothing that counts now" : words;
}

}  // namespace gpumem::host
