#include "daemon/daemon.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>

#include "base/crash_point.h"
#include "base/log.h"
#include "base/rfc3339.h"
#include "daemon/monitoring.h"
#include "daemon/status_line.h"
#include "daemon/upgrade.h"
#include "sim/machine/machine.h"

namespace gpumem {
namespace {

constexpr const char* kDefaultConfig = "/etc/gpumemd/gpumemd.toml";
constexpr const char* kDefaultState = "/var/lib/gpumemd";
constexpr auto kCallPatience = std::chrono::seconds(2);

// What is said on the command line, else in the file, else by the service manager. A broker that is given a
// runtime folder of its own is not the machine's, and has nothing to do with its state.
std::filesystem::path state_folder(const Options& options, const host::Config& config) {
  if (!options.state_folder.empty()) return options.state_folder;
  if (!config.state_folder.empty()) return config.state_folder;
  if (const char* told = std::getenv("STATE_DIRECTORY"); told != nullptr && *told != '\0') {
    const std::string folders = told;  // several, with colons between them, if there are more
    return folders.substr(0, folders.find(':'));
  }
  return options.runtime_folder.empty() ? std::filesystem::path(kDefaultState)
                                        : config.runtime_folder / "state";
}

// The configuration with what the command line and the surroundings say in place of it.
Result<host::Config> read_config(const Options& options) {
  std::error_code unknown;  // whether it is there: then reading it says why
  const bool named = !options.config.empty();
  const bool none = !named && !std::filesystem::exists(kDefaultConfig, unknown) && !unknown;
  auto config = none ? host::Config{} : host::load_config(named ? options.config : kDefaultConfig);
  if (!config) return config.error();
  if (!options.runtime_folder.empty()) config->runtime_folder = options.runtime_folder;
  config->state_folder = state_folder(options, *config);
  return config;
}

Result<std::optional<std::uint32_t>> admin_gid(const host::Config& config) {
  if (config.admin_group.empty()) return std::optional<std::uint32_t>();
  auto gid = host::resolve_group(config.admin_group, "admin_group");
  if (!gid) return gid.error();
  return std::optional<std::uint32_t>(*gid);
}

std::vector<core::TenantView> tenants_of(core::Executor& executor) {
  std::promise<std::vector<core::TenantView>> tenants;
  executor.post([&](core::Broker& broker, core::TimePoint) { tenants.set_value(broker.tenants()); });
  return tenants.get_future().get();
}

// What stays as it was when the broker started.
void warn_of_restart(const host::Config& in_force, const host::Config& read) {
  const auto warn = [](const char* key, const std::string& old, const std::string& wanted) {
    if (old == wanted) return;
    spdlog::warn("{} stays '{}': '{}' needs a restart of the broker", key, old, wanted);
  };
  warn("runtime_dir", in_force.runtime_folder, read.runtime_folder);
  warn("state_dir", in_force.state_folder, read.state_folder);
  warn("socket_group", in_force.socket_group, read.socket_group);
  const auto word = [](bool truth) { return std::string(truth ? "true" : "false"); };
  warn("[kubernetes] cgroup_root", in_force.kubernetes.cgroup_root, read.kubernetes.cgroup_root);
  warn("[metrics] listen", in_force.metrics.listen, read.metrics.listen);
  warn("the group of metrics.sock", metrics_group(in_force), metrics_group(read));
  warn("fabric_handles", word(in_force.fabric_handles), word(read.fabric_handles));
}

// Every extent is a descriptor, and so is every session.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  constexpr rlim_t kWanted = 1'048'576;
  if (const rlimit wanted{kWanted, kWanted}; ::setrlimit(RLIMIT_NOFILE, &wanted) == 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<std::filesystem::path> make_simulated_machine(const std::filesystem::path& folder,
                                                     const std::string& spec) {
  auto libraries = sim::find_libraries();
  if (!libraries) return libraries.error();
  if (auto made = sim::create_machine(folder, spec, *libraries); !made) return made.error().in("--simulate");
  return folder;
}

// What the broker before has left. What cannot be read is kept for people, and the clients of it are
// strangers.
std::optional<host::Journal::Content> read_journal(const std::filesystem::path& folder) {
  auto content = host::Journal::read(folder);
  if (content) {
    if (*content && !(*content)->damage.empty())
      spdlog::warn("the journal is damaged: {}", (*content)->damage);
    return std::move(*content);
  }
  spdlog::error("what the broker before has lent is not known: {}", content.error().message);
  std::error_code ignored;
  std::filesystem::rename(folder / "journal", folder / "journal.unreadable", ignored);
  return std::nullopt;
}

// What its clients have, their contexts too, is no reason for a smaller pool: what is missing of it comes
// back when they let go.
void note_lent(Machine& machine, const host::Journal::Content& before) {
  for (host::DeviceFacts& facts : machine.devices) {
    const auto place =
        std::ranges::find(before.devices, to_string(facts.device.uuid), &host::Journal::Device::uuid);
    if (place == before.devices.end()) continue;
    facts.lent = before.checkpoint.lent(static_cast<core::DeviceIndex>(place - before.devices.begin()));
    facts.obtainable =
        std::min(facts.device.total, std::max(facts.obtainable + facts.lent, place->obtainable));
  }
}

std::vector<host::Journal::Device> in_journal(const Machine& machine, const core::Policy& policy) {
  std::vector<host::Journal::Device> devices;
  for (const core::DevicePolicy& device : policy.devices) {
    for (const host::DeviceFacts& facts : machine.devices)
      if (to_string(facts.device.uuid) == device.uuid) devices.push_back({device.uuid, facts.obtainable});
  }
  return devices;
}

void report(const core::Policy& policy) {
  for (const core::DevicePolicy& device : policy.devices) {
    spdlog::info("lending {} of {} on {} ({}){}", to_string(device.pool), to_string(device.total),
                 device.uuid, device.name, device.no_fabric.empty() ? ", with fabric handles" : "");
  }
}

void print(const core::Policy& policy) {
  const auto print_quotas = [&](const std::string& who, const std::vector<core::Quota>& quotas) {
    for (std::size_t i = 0; i < quotas.size(); ++i) {
      std::printf("  %s on %s: guarantee %s, limit %s, weight %u, priority %u\n", who.c_str(),
                  policy.devices[i].uuid.c_str(), to_string(quotas[i].guarantee).c_str(),
                  to_string(quotas[i].limit).c_str(), quotas[i].weight, quotas[i].priority);
    }
  };
  for (const core::DevicePolicy& device : policy.devices) {
    std::printf("device %s (%s): pool %s of %s\n", device.uuid.c_str(), device.name.c_str(),
                to_string(device.pool).c_str(), to_string(device.total).c_str());
  }
  for (const core::TenantRule& tenant : policy.tenants) {
    print_quotas(
        "tenant '" + tenant.name + "'" + (tenant.parent.empty() ? "" : " of '" + tenant.parent + "'"),
        tenant.quotas);
  }
  if (policy.others)
    print_quotas("every other user", *policy.others);
  else
    std::printf("  other users are refused\n");
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::start(const Options& options, const host::ServiceManager& manager,
                                              host::PassedDescriptors passed) {
  auto config = read_config(options);
  if (!config) return config.error();
  raise_file_limit();
  auto folder = host::RuntimeFolder::claim(config->runtime_folder, config->socket_group,
                                           host::PassedSockets::of(passed));
  if (!folder) return folder.error();
  std::unique_ptr<Daemon> daemon(new Daemon(options, std::move(*folder)));
  if (auto served = daemon->serve(*config, manager, std::move(passed)); !served) {
    host::Journal::take_attempt_back(config->runtime_folder);
    return served.error();
  }
  daemon->start_watchdog(manager);
  return daemon;
}

std::filesystem::path Daemon::simulated_machine() const { return folder_.path() / "driver"; }

Result<std::filesystem::path> Daemon::driver_folder() const {
  if (options_.simulate.empty()) return options_.driver_folder;
  return make_simulated_machine(simulated_machine(), options_.simulate);
}

Result<void> Daemon::serve(const host::Config& config, const host::ServiceManager& manager,
                           host::PassedDescriptors passed) {
  auto store = host::QuotaStore::open(config.state_folder,
                                      to_rfc3339(std::chrono::system_clock::now(), Precision::kSeconds));
  if (!store) return store.error();
  auto claims = host::ClaimStore::open(config.state_folder);
  if (!claims) return claims.error();
  options_.kernel.pods.cgroup_root = config.kubernetes.cgroup_root;
  auto driver = driver_folder();
  if (!driver) return driver.error();
  auto machine = find_machine(*driver);
  if (!machine) return machine.error();
  machine_ = std::move(*machine);
  try_fabric(machine_, config);
  Inheritance before{read_journal(folder_.path()), passed.take_leases()};
  crash_at(CrashPoint::kRestartRead);
  if (before.journal) note_lent(machine_, *before.journal);
  auto policy = host::compile_in_force(config, machine_.devices, store->current(), claims->current());
  if (!policy) return policy.error();
  report(*policy);
  if (auto started = start_loop(config, *driver, std::move(*policy), std::move(before), manager.store());
      !started)
    return started.error();
  config_ = config;
  quotas_ = std::make_unique<host::LiveQuotas>(host::LiveQuotas::Options{
      .config = config,
      .devices = machine_.devices,
      .store = std::move(*store),
      .core = {.apply = [this](core::Policy next,
                               std::string cause) { return loop_->apply(std::move(next), std::move(cause)); },
               .tenants = [this] { return tenants_of(*loop_); }},
      .claims = std::move(*claims)});
  if (auto served = serve_calls(); !served) return served.error();
  auto metrics =
      start_metrics(*loop_, folder_, config, {.version = GPUMEM_VERSION, .driver = machine_.driver_version},
                    options_.kernel);
  if (!metrics) return metrics.error();
  metrics_ = std::move(*metrics);
  loop_->listen(*lane_calls_);
  folder_.tell(kServing + std::string(GPUMEM_VERSION));
  spdlog::info("serving on {} with {}", folder_.path().string(), machine_.driver_version);
  return {};
}

Result<void> Daemon::serve_calls() {
  auto socket = folder_.listen_on_api(options_.kernel);
  if (!socket) return socket.error();
  api_ = std::make_unique<host::ApiListener>(
      host::ApiListener::Options{.socket = std::move(*socket),
                                 .kernel = options_.kernel,
                                 .administrators = &administrators_,
                                 .connections = &connections_,
                                 .serve = [this](UniqueFd one) { server_->serve(std::move(one)); }});
  rpc::Server::Options options{
      .info = {.version = GPUMEM_VERSION, .driver = machine_.driver_version, .observer = reconciler_.get()}};
  if (options_.api_idle.count() != 0) options.idle_connections = options_.api_idle;
  auto server = rpc::Server::start(*loop_, *quotas_, *quotas_, std::move(options));
  if (!server) return server.error();
  server_ = std::move(*server);
  api_->start();
  return {};
}

Result<void> Daemon::start_loop(const host::Config& config, const std::filesystem::path& driver,
                                core::Policy policy, Inheritance before, const host::DescriptorStore* store) {
  const auto admins = admin_gid(config);
  if (!admins) return admins.error();
  administrators_.set_group(*admins);
  auto lane = folder_.listen_on_lane(options_.kernel);
  if (!lane) return lane.error();
  const std::string told = driver.empty() ? "" : std::filesystem::absolute(driver).string();
  host::Reconciler::Options reconciling{
      .driver_folder = driver, .devices = {}, .period = config.reconcile, .pods = options_.kernel.pods};
  for (const core::DevicePolicy& device : policy.devices) {
    auto uuid = cuda::parse_device_uuid(device.uuid);
    if (!uuid) return uuid.error();
    reconciling.devices.push_back(*uuid);
  }
  auto in_order = in_journal(machine_, policy);
  auto loop = host::Loop::create({.policy = std::move(policy),
                                  .driver = machine_.driver,
                                  .driver_folder = told,
                                  .lane_socket = std::move(*lane),
                                  .administrators = &administrators_,
                                  .connections = &connections_,
                                  .kernel = options_.kernel,
                                  .journal_folder = folder_.path(),
                                  .devices = std::move(in_order),
                                  .before = std::move(before.journal),
                                  .kept = std::move(before.kept),
                                  .store = store});
  if (!loop) return loop.error();
  loop_ = std::move(*loop);
  loop_->start();
  lane_calls_ = std::make_unique<lane::SessionCalls>(*loop_, *loop_);
  reconciler_ = std::make_unique<host::Reconciler>(*loop_, std::move(reconciling));
  return {};
}

void Daemon::start_watchdog(const host::ServiceManager& manager) {
  const auto timeout = manager.watchdog_timeout();
  if (timeout.count() == 0) return;
  watchdog_ = std::make_unique<host::Watchdog>(
      timeout / 2,
      [this](auto answer) {
        loop_->post([answer = std::move(answer)](core::Broker& broker, core::TimePoint) {
          answer(status_line(broker.devices()));
        });
      },
      [&manager](const std::string& status) { manager.alive(status); });
}

Result<void> Daemon::reload() {
  auto config = read_config(options_);
  if (!config) return config.error();
  const auto admins = admin_gid(*config);
  if (!admins) return admins.error();
  // The pools are what they are: shares are taken of what could be had when the broker started.
  if (auto reloaded = quotas_->reload_now(*config); !reloaded) return reloaded.error();
  administrators_.set_group(*admins);
  reconciler_->set_period(config->reconcile);
  warn_of_restart(config_, *config);
  return {};
}

host::NamedDescriptors Daemon::end_service() {
  watchdog_.reset();
  host::NamedDescriptors lent = loop_->drain();
  crash_at(CrashPoint::kShutdownDrained);
  api_->stop();
  server_->stop(kCallPatience);
  metrics_->stop();
  return lent;
}

host::NamedDescriptors Daemon::hand_over() {
  host::NamedDescriptors all = folder_.pass_on();
  std::ranges::move(end_service(), std::back_inserter(all));
  return all;
}

void Daemon::stop() {
  static_cast<void>(end_service());
  if (options_.simulate.empty() || loop_->session_count() != 0) return;
  // Nobody uses the simulated machine any more; a client that did would keep it for the next broker.
  if (auto removed = sim::remove_machine(simulated_machine()); !removed)
    spdlog::warn("{}", removed.error().message);
}

Daemon::~Daemon() {
  watchdog_.reset();
  if (api_) api_->stop();
  metrics_.reset();
  api_.reset();  // it hands connections to the server
  server_.reset();
  quotas_.reset();
  reconciler_.reset();
  loop_.reset();
}

Result<std::filesystem::path> runtime_folder_of(const Options& options) {
  auto config = read_config(options);
  if (!config) return config.error();
  return config->runtime_folder;
}

Result<void> check_config(const Options& options) {
  auto config = read_config(options);
  if (!config) return config.error();
  if (auto group = host::resolve_group(config->socket_group, "socket_group"); !group) return group.error();
  if (auto admins = admin_gid(*config); !admins) return admins.error();
  if (auto readers = host::resolve_group(config->metrics.group, "[metrics] group"); !readers)
    return readers.error();
  auto overlay = host::read_quotas(config->state_folder);
  if (!overlay && overlay.error().code != Code::kPermissionDenied) return overlay.error();
  if (!overlay)
    std::printf("Quotas that were set at run time are left out: %s\n", overlay.error().message.c_str());
  auto claims = host::read_claims(config->state_folder);
  if (!claims && claims.error().code != Code::kPermissionDenied) return claims.error();
  if (!claims) std::printf("What is prepared for pods is left out: %s\n", claims.error().message.c_str());
  std::filesystem::path driver = options.driver_folder;
  std::string scratch = (std::filesystem::temp_directory_path() / "gpumemd-check-XXXXXX").string();
  if (!options.simulate.empty()) {
    if (::mkdtemp(scratch.data()) == nullptr) return errno_error(errno, "cannot make " + scratch);
    auto made = make_simulated_machine(scratch, options.simulate);
    if (!made) {
      std::filesystem::remove_all(scratch);
      return made.error();
    }
    driver = scratch;
  }
  auto machine = find_machine(driver);
  Result<void> answer;
  if (!machine) {
    std::printf("The file is well-formed. It could not be held against the GPUs: %s\n",
                machine.error().message.c_str());
  } else if (auto policy =
                 host::compile_in_force(*config, machine->devices, overlay ? *overlay : host::QuotaOverlay{},
                                        claims ? *claims : pods::PreparedClaims{});
             policy) {
    print(*policy);
  } else {
    answer = policy.error();
  }
  if (!options.simulate.empty()) static_cast<void>(sim::remove_machine(scratch));
  return answer;
}

}  // namespace gpumem
