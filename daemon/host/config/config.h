#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/words/policy.h"
#include "gpumem/bytes.h"

namespace gpumem::host {

/// A quota as written; percent is of the device's pool. What is missing comes from the next wider quota.
struct QuotaConfig {
  std::optional<Amount> guarantee;        ///< else 0
  std::optional<Amount> limit;            ///< else the whole pool
  std::optional<std::uint32_t> weight;    ///< else core::kDefaultWeight
  std::optional<std::uint32_t> priority;  ///< else core::kDefaultPriority
  std::optional<Amount> reserve{};        ///< for jobs; else what the limit allows
  bool operator==(const QuotaConfig&) const = default;
  bool says_nothing() const { return *this == QuotaConfig{}; }
};

/// Quotas on every GPU, and other ones on some. The host store has only its own.
struct QuotasConfig {
  QuotaConfig everywhere;
  std::map<std::string, QuotaConfig> by_device;  ///< UUID, or kHostStore
  bool operator==(const QuotasConfig&) const = default;
};

/// How a device is lent.
struct DeviceConfig {
  Amount reserve = Amount::percent(9'000);
  core::ReclaimPolicy reclaim{};
  Bytes context_overhead{};        ///< zero with `contexts_in_limit`: the usual size
  bool contexts_in_limit = false;  ///< within limits of jobs, too
  core::PoolMode pool = core::PoolMode::kByDisplay;
};

/// The host store.
struct HostConfig {
  Amount size = Amount::percent(2'500);  ///< of the machine's memory
  bool is_of_driver = false;             ///< the driver allocates and pins the memory; else it is files
};

/// A user, a group, a namespace of Kubernetes, or the parent of other tenants.
struct TenantConfig {
  std::string name;
  std::string parent;                         ///< another tenant's name; empty: none
  std::string user;                           ///< name or number; empty: none
  std::string group;                          ///< name or number; empty: none
  std::optional<std::uint32_t> uid{}, gid{};  ///< by look_up(); none: there is no such account
  QuotasConfig quotas;
  bool fabric_handles = false;  ///< may give memory out by them
};

/// What holds for users without a tenant.
struct OthersConfig {
  std::string parent;  ///< a tenant's name; empty: none
  QuotasConfig quotas;
};

/// How pods of Kubernetes are lent to.
struct KubernetesConfig {
  bool expected = false;      ///< the file has the section, and pods are looked for
  bool look_for_pods = true;  ///< false: a process in a pod is a Unix user, as any other
  /// A pod that nothing was prepared for is lent to as users without a tenant are; else it is refused.
  bool lend_unprepared = false;
  std::string cgroup_root = "/";  ///< the kubelet's --cgroup-root
  std::string parent;             ///< a tenant's name, of pods whose namespace is none; empty: none
};

/// Where metrics are served, and to whom.
struct MetricsConfig {
  std::string listen;                  ///< an address with a port; empty: none
  std::string group;                   ///< that may connect to the Unix socket; empty: the administrators
  std::optional<std::uint32_t> gid{};  ///< by look_up()
};

/// The user who may read the accounts of all tenants and follow all events, besides the administrators.
struct AccountsConfig {
  std::string reader = "gpumem-history";  ///< name or number; empty: none
  std::optional<std::uint32_t> uid{};     ///< by look_up(); none: there is no such user
};

/// The content of the configuration file: plain data. look_up() adds the numbers of users and groups.
struct Config {
  std::filesystem::path runtime_folder = "/run/gpumemd";
  std::filesystem::path state_folder;        ///< empty: not said
  std::string socket_group;                  ///< empty: the daemon's own
  std::string admin_group;                   ///< empty: none but root
  std::optional<std::uint32_t> admin_gid{};  ///< by look_up()
  std::size_t max_sessions = 4096;
  std::size_t max_sessions_per_tenant = 2048;
  std::int64_t max_wait_seconds = 3600;
  core::Duration aging = core::Policy{}.aging;
  core::Duration reserve_idle = core::Policy{}.reserve_idle;
  std::chrono::seconds reconcile{5};  ///< between two looks at the driver's figures; 0: only when asked
  core::PastBrokerPolicy past_broker;
  bool fabric_handles = false;  ///< extents have them, where the device offers them

  /// Names of programs that the drop-in driver leaves to the real one in system mode.
  std::vector<std::string> system_except;
  MetricsConfig metrics;
  AccountsConfig accounts;
  KubernetesConfig kubernetes;

  DeviceConfig any_device;                      ///< what holds where nothing else is said
  std::map<std::string, DeviceConfig> devices;  ///< by UUID: only these are lent; empty: all
  std::optional<HostConfig> host;               ///< none: there is no host store

  std::vector<TenantConfig> tenants;
  std::optional<OthersConfig> others = OthersConfig{};  ///< none: users without a tenant are refused
};

/// Names of tenants that begin so are of namespaces of Kubernetes.
inline constexpr std::string_view kNamespacePrefix = "namespace ";

/// Reads TOML. `source` names it in messages.
/// Errors  kInvalidArgument: `source:line:column: what is wrong and what is allowed`; unknown keys too.
Result<Config> parse_config(std::string_view text, const std::string& source);

/// Reads the file. Errors  as parse_config; kNotFound, kPermissionDenied.
Result<Config> load_config(const std::filesystem::path& file);

}  // namespace gpumem::host
