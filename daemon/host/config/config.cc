#include "daemon/host/config/config.h"

#include <algorithm>
#include <utility>

#include "base/http/tcp_port.h"
#include "base/system/files.h"
#include "base/text/printable.h"
#include "daemon/core/words/policy.h"
#include "daemon/host/config/toml_reader.h"
#include "daemon/pods/prepared_claims.h"

namespace gpumem::host {
namespace {

constexpr std::int64_t kDaySeconds = std::int64_t{24} * 3600;
constexpr std::size_t kNameBytes = 128;

std::vector<TomlReader::Field> device_fields(TomlReader& reader, DeviceConfig& device) {
  using core::Escalation;
  using std::chrono::milliseconds, std::chrono::seconds;
  core::ReclaimPolicy& reclaim = device.reclaim;
  return {
      {"reserve", reader.amount(device.reserve)},
      {"lend_guarantees", reader.boolean(reclaim.lend_guarantees)},
      {"reclaim_deadline_ms", reader.duration<milliseconds>(reclaim.deadline, 1, 1000 * kDaySeconds)},
      {"escalation",
       reader.choice<Escalation>(reclaim.escalation, {{"wait", Escalation::kWait},
                                                      {"deny", Escalation::kDeny},
                                                      {"end-session", Escalation::kEndSession}})},
      {"grace_seconds", reader.duration<seconds>(reclaim.grace, 0, kDaySeconds)},
      {"pool", reader.choice<core::PoolMode>(
                   device.pool, {{"all", core::PoolMode::kAll}, {"elastic", core::PoolMode::kElastic}})},
      {"context_overhead", reader.bytes(device.context_overhead)},
      {"context", reader.choice<bool>(device.contexts_in_limit, {{"beside", false}, {"in-limit", true}})}};
}

void read_broker(TomlReader& reader, const toml::table& table, Config& config) {
  std::string runtime = config.runtime_folder;
  std::string state = config.state_folder;
  auto fields = device_fields(reader, config.any_device);
  const std::vector<TomlReader::Field> own{
      {"runtime_dir", reader.text(runtime)},
      {"state_dir", reader.text(state)},
      {"socket_group", reader.name(config.socket_group)},
      {"admin_group", reader.name(config.admin_group)},
      {"max_sessions", reader.number(config.max_sessions, 1, 100'000)},
      {"max_sessions_per_tenant", reader.number(config.max_sessions_per_tenant, 1, 100'000)},
      {"max_wait_seconds", reader.number(config.max_wait_seconds, 0, 7 * kDaySeconds)},
      {"reserve_idle_seconds",
       reader.duration<std::chrono::seconds>(config.reserve_idle, 0, 7 * kDaySeconds)},
      {"aging_seconds", reader.duration<std::chrono::seconds>(config.aging, 0, 7 * kDaySeconds)},
      {"reconcile_seconds", reader.duration<std::chrono::seconds>(config.reconcile, 0, kDaySeconds)},
      {"past_broker", reader.choice<bool>(config.past_broker.end, {{"report", false}, {"end", true}})},
      {"fabric_handles", reader.boolean(config.fabric_handles)},
      {"past_broker_allowance", reader.bytes(config.past_broker.allowance)},
      {"past_broker_confirm_seconds",
       reader.duration<std::chrono::seconds>(config.past_broker.confirm, 0, kDaySeconds)}};
  fields.insert(fields.begin(), own.begin(), own.end());
  reader.read(table, "[broker]", fields);
  if (config.past_broker.end && config.reconcile == std::chrono::seconds::zero()) {
    reader.fail(table.source(),
                "past_broker = \"end\" needs reconcile_seconds above 0: nobody is ended for what only "
                "looks on demand have seen");
  }
  config.runtime_folder = runtime;
  config.state_folder = state;
}

void read_metrics(TomlReader& reader, const toml::table& table, Config& config) {
  MetricsConfig& metrics = config.metrics;
  bool is_public = false;
  reader.read(table, "[metrics]",
              {{"listen", reader.text(metrics.listen)},
               {"public", reader.boolean(is_public)},
               {"group", reader.name(metrics.group)}});
  if (reader.error() || metrics.listen.empty()) return;
  const auto& at = table.get("listen")->source();
  const auto address = http::parse_tcp_address(metrics.listen);
  if (!address) return reader.fail(at, "listen: " + address.error().message);
  if (!address->is_loopback && !is_public)
    reader.fail(at, "listen: '" + metrics.listen +
                        "' is reached from other machines, and whoever reads there sees the names of all "
                        "tenants: add public = true if that is meant, or give an address of loopback such as "
                        "\"127.0.0.1:9400\"");
}

void read_accounts(TomlReader& reader, const toml::table& table, Config& config) {
  reader.read(table, "[accounts]", {{"reader", reader.name(config.accounts.reader)}});
}

void read_system(TomlReader& reader, const toml::table& table, Config& config) {
  reader.read(table, "[system]", {{"except", reader.texts(config.system_except)}});
  const auto is_wrong = [](const std::string& name) {
    return name.empty() || name.find('/') != name.npos || !is_printable(name);
  };
  if (!reader.error() && std::ranges::any_of(config.system_except, is_wrong)) {
    reader.fail(table.get("except")->source(),
                "except: expected names of programs without a folder, as `ps -o comm` shows them");
  }
}

void read_host(TomlReader& reader, const toml::table& table, Config& config) {
  config.host.emplace();
  reader.read(
      table, "[host]",
      {{"size", reader.amount(config.host->size)},
       {"kind", reader.choice<bool>(config.host->is_of_driver, {{"memfd", false}, {"driver", true}})}});
}

void read_device(TomlReader& reader, const toml::table& table, Config& config) {
  std::string uuid;
  DeviceConfig device = config.any_device;
  auto fields = device_fields(reader, device);
  fields.insert(fields.begin(), {"uuid", reader.text(uuid)});
  reader.read(table, "[[device]]", fields);
  if (uuid.empty()) reader.fail(table.source(), "a device needs its 'uuid' (nvidia-smi -L)");
  if (!config.devices.emplace(uuid, device).second)
    reader.fail(table.source(), "device '" + uuid + "' is given twice");
}

void check_name(TomlReader& reader, const toml::table& table, const std::string& name) {
  if (name.empty()) return reader.fail(table.source(), "a tenant needs a 'name'");
  if (name.size() > kNameBytes || !is_printable(name))
    return reader.fail(table.source(), "a tenant's name is at most " + std::to_string(kNameBytes) +
                                           " bytes of printable characters");
  if (name == "(all)")
    reader.fail(table.source(), "'(all)': lists name all tenants together so; choose another name");
  if (name.starts_with(core::kUserTenantPrefix)) {
    reader.fail(table.source(), "'" + name + "': names that begin with '" +
                                    std::string(core::kUserTenantPrefix) +
                                    "' are of users without a tenant; choose another");
  }
  if (pods::is_pods_name(name) || name.starts_with(kNamespacePrefix)) {
    reader.fail(table.source(), "'" + name +
                                    "': names that begin with 'pod ', 'claim ' or 'namespace ' are "
                                    "of Kubernetes; choose another");
  }
}

void read_tenant(TomlReader& reader, const toml::table& table, Config& config) {
  TenantConfig tenant;
  auto fields = quotas_fields(reader, tenant.quotas);
  fields.emplace_back("name", reader.text(tenant.name));
  fields.emplace_back("parent", reader.text(tenant.parent));
  fields.emplace_back("user", reader.name(tenant.user));
  fields.emplace_back("group", reader.name(tenant.group));
  fields.emplace_back("fabric_handles", reader.boolean(tenant.fabric_handles));
  reader.read(table, "[[tenant]]", fields);
  check_name(reader, table, tenant.name);
  if (!tenant.user.empty() && !tenant.group.empty()) {
    reader.fail(table.source(), "tenant '" + tenant.name + "' is either a 'user' or a 'group', not both");
  }
  if (tenant.fabric_handles && !config.fabric_handles) {
    reader.fail(table.source(), "tenant '" + tenant.name +
                                    "' has fabric_handles, which needs fabric_handles in [broker], too");
  }
  if (tenant.fabric_handles && tenant.user.empty() && tenant.group.empty()) {
    reader.fail(table.source(), "tenant '" + tenant.name +
                                    "' has fabric_handles, which is for a 'user' or a 'group': the parent of "
                                    "others has no memory of its own");
  }
  if (std::ranges::count(config.tenants, tenant.name, &TenantConfig::name) != 0) {
    reader.fail(table.source(), "tenant '" + tenant.name + "' is given twice");
  }
  config.tenants.push_back(std::move(tenant));
}

void read_default(TomlReader& reader, const toml::table& table, Config& config) {
  OthersConfig others;
  bool refuse = false;
  auto fields = quotas_fields(reader, others.quotas);
  fields.emplace_back("parent", reader.text(others.parent));
  fields.emplace_back("refuse", reader.boolean(refuse));
  reader.read(table, "[default]", fields);
  config.others = refuse ? std::nullopt : std::optional(others);
}

// A namespace is a tenant that its pods belong to.
void read_namespace(TomlReader& reader, const toml::table& table, Config& config) {
  TenantConfig tenant;
  std::string name;
  auto fields = quotas_fields(reader, tenant.quotas);
  fields.emplace_back("name", reader.text(name));
  fields.emplace_back("parent", reader.text(tenant.parent));
  reader.read(table, "[[kubernetes.namespace]]", fields);
  if (!pods::is_namespace(name))
    return reader.fail(table.source(), "a namespace needs its 'name', as Kubernetes has it");
  tenant.name = std::string(kNamespacePrefix) + name;
  if (std::ranges::count(config.tenants, tenant.name, &TenantConfig::name) != 0)
    reader.fail(table.source(), "namespace '" + name + "' is given twice");
  config.tenants.push_back(std::move(tenant));
}

void read_kubernetes(TomlReader& reader, const toml::table& table, Config& config) {
  KubernetesConfig& kubernetes = config.kubernetes;
  reader.read(
      table, "[kubernetes]",
      {{"unprepared",
        reader.choice<bool>(kubernetes.lend_unprepared, {{"refuse", false}, {"default", true}})},
       {"look_for_pods", reader.boolean(kubernetes.look_for_pods)},
       {"cgroup_root", reader.text(kubernetes.cgroup_root)},
       {"parent", reader.text(kubernetes.parent)},
       {"namespace", reader.tables([&](const toml::table& one) { read_namespace(reader, one, config); })}});
  kubernetes.expected = kubernetes.look_for_pods;
  for (TenantConfig& tenant : config.tenants) {
    if (tenant.name.starts_with(kNamespacePrefix) && tenant.parent.empty()) tenant.parent = kubernetes.parent;
  }
  if (!kubernetes.cgroup_root.starts_with('/'))
    reader.fail(table.source(), "cgroup_root is a path from the root of cgroups, such as \"/\"");
}

// What the section and the rest of the file say only together.
void check_kubernetes(TomlReader& reader, const toml::table& document, const Config& config) {
  const auto* table = document["kubernetes"].as_table();
  if (table == nullptr) return;
  const KubernetesConfig& kubernetes = config.kubernetes;
  if (!kubernetes.look_for_pods &&
      (kubernetes.lend_unprepared || !kubernetes.parent.empty() || table->contains("namespace"))) {
    reader.fail(table->source(),
                "with look_for_pods = false there are no pods: 'unprepared', 'parent' and namespaces have no "
                "effect, and are to be removed");
  }
  if (kubernetes.lend_unprepared && !config.others) {
    reader.fail(table->source(),
                "unprepared = \"default\" needs a [default] that does not refuse: it says what such pods may "
                "have");
  }
  if (!kubernetes.parent.empty() &&
      std::ranges::count(config.tenants, kubernetes.parent, &TenantConfig::name) == 0) {
    reader.fail(table->source(),
                "the parent '" + kubernetes.parent + "' is no tenant: add it, or correct the name");
  }
}

// A tenant that is nobody is one that others belong to: only the whole file tells.
void check_members(TomlReader& reader, const toml::table& document, const Config& config) {
  const auto is_parent = [&](const std::string& name) {
    return std::ranges::count(config.tenants, name, &TenantConfig::parent) != 0 ||
           (config.others && config.others->parent == name) || config.kubernetes.parent == name ||
           name.starts_with(kNamespacePrefix);
  };
  // Tenants of the file come first, in its order: namespaces are read after them.
  for (std::size_t i = 0; i < config.tenants.size(); ++i) {
    const TenantConfig& tenant = config.tenants[i];
    if (!tenant.user.empty() || !tenant.group.empty() || is_parent(tenant.name)) continue;
    reader.fail(document["tenant"][i].node()->source(),
                "tenant '" + tenant.name +
                    "' needs either a 'user' or a 'group', or tenants that name it as their 'parent'");
  }
}

// The tables that each key belongs to: every reader runs on an empty table, which tells its keys. Keys of a
// device belong to [broker], too.
std::map<std::string, std::string> places_of_keys() {
  std::map<std::string, std::string> places;
  for (const auto read : {read_tenant, read_default, read_broker, read_host, read_metrics, read_accounts,
                          read_system, read_kubernetes}) {
    TomlReader reader("");
    Config ignored;
    read(reader, toml::table(), ignored);
    for (const auto& [key, where] : reader.keys()) {
      const auto [place, is_new] = places.emplace(key, where);
      if (!is_new) place->second += " or " + where;
    }
  }
  return places;
}

}  // namespace

Result<Config> parse_config(std::string_view text, const std::string& source) {
  auto document = parse_toml(text, source);
  if (!document) return document.error();
  Config config;
  TomlReader reader(source);
  reader.set_places(places_of_keys());
  // [broker] first: it is what devices fall back on, wherever it stands in the file.
  if (const auto* broker = (*document)["broker"].as_table()) read_broker(reader, *broker, config);
  reader.read(
      *document, "the file",
      {{"broker", reader.table([](const toml::table&) {})},
       {"device", reader.tables([&](const toml::table& table) { read_device(reader, table, config); })},
       {"tenant", reader.tables([&](const toml::table& table) { read_tenant(reader, table, config); })},
       {"host", reader.table([&](const toml::table& table) { read_host(reader, table, config); })},
       {"default", reader.table([&](const toml::table& table) { read_default(reader, table, config); })},
       {"kubernetes", reader.table([](const toml::table&) {})},
       {"system", reader.table([&](const toml::table& table) { read_system(reader, table, config); })},
       {"accounts", reader.table([&](const toml::table& table) { read_accounts(reader, table, config); })},
       {"metrics", reader.table([&](const toml::table& table) { read_metrics(reader, table, config); })}});
  // Last: its namespaces come after the tenants.
  if (const auto* kubernetes = (*document)["kubernetes"].as_table())
    read_kubernetes(reader, *kubernetes, config);
  if (!reader.error()) check_members(reader, *document, config);
  if (!reader.error()) check_kubernetes(reader, *document, config);
  if (reader.error()) return *reader.error();
  return config;
}

Result<Config> load_config(const std::filesystem::path& file) {
  auto text = read_text(file);
  if (!text) return text.error();
  return parse_config(*text, file.string());
}

}  // namespace gpumem::host
