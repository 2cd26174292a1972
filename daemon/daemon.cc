#include "daemon/daemon.h"

#include <sys/resource.h>

#include <algorithm>

#include "base/crash_point.h"
#include "base/http/tcp_port.h"
#include "base/log.h"
#include "base/text/time_format.h"
#include "daemon/configuration.h"
#include "daemon/devices.h"
#include "daemon/host/limits/connection_limits.h"
#include "daemon/host/state/folder_lock.h"
#include "daemon/host_memory.h"
#include "daemon/upgrade.h"

namespace gpumem {
namespace {

constexpr auto kCallPatience = std::chrono::seconds(2);

std::vector<core::TenantView> tenants_of(core::Executor& executor) {
  std::vector<core::TenantView> tenants;
  executor.post_and_wait([&](core::Broker& broker, core::TimePoint) { tenants = broker.tenants(); });
  return tenants;
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

// The state that the previous broker left. An unreadable journal is kept for inspection, and its clients are
// treated as unknown.
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

// Null: events end with this broker.
std::unique_ptr<host::EventHistory> open_history(const std::filesystem::path& folder,
                                                 const core::Policy& policy) {
  auto history = host::EventHistory::open(folder, core::uuids_of(policy));
  if (history) return std::move(*history);
  spdlog::warn("events are not kept for the next broker: {}", history.error().message);
  return nullptr;
}

void report(const core::Policy& policy) {
  for (const core::DevicePolicy& device : policy.devices) {
    spdlog::info("lending {} of {} on {} ({}){}{}", to_string(device.pool), to_string(device.total),
                 device.uuid, device.name, device.no_fabric.empty() ? ", with fabric handles" : "",
                 device.is_elastic() ? ", created on demand" : "");
  }
}

// How the broker's devices stand, all together, on one line: for `systemctl status`.
std::string status_line(const std::vector<core::DeviceView>& devices) {
  Bytes pool, missing, charged;
  std::size_t waiting = 0;
  std::size_t gpus = 0;
  for (const core::DeviceView& device : devices) {
    waiting += device.waiting;
    if (device.policy.is_host()) continue;
    ++gpus;
    pool += device.policy.pool;
    missing += device.missing;
    charged += device.charges.total();
  }
  return "lends " + to_string(pool) + " of " + std::to_string(gpus) + (gpus == 1 ? " GPU; " : " GPUs; ") +
         (missing.is_zero() ? "" : to_string(missing) + " are missing, ") + to_string(charged) +
         " charged, " + std::to_string(waiting) + (waiting == 1 ? " request waits" : " requests wait");
}

void add_port(const std::string& listen, std::vector<UniqueFd>& sockets) {
  if (listen.empty()) return;
  auto port = http::listen_on_tcp(listen);
  if (!port) return spdlog::error("metrics are not served on {}: {}", listen, port.error().message);
  spdlog::info("metrics on http://{}/metrics, for whoever reaches it", port->where);
  sockets.push_back(std::move(port->fd));
}

// Counts what happens from now on, and serves it in the runtime folder and where the configuration says. A
// port that cannot be had is logged: memory is lent without it.
std::unique_ptr<metrics::Metrics> start_metrics(core::Executor& executor, host::RuntimeFolder& folder,
                                                const host::Config& config, metrics::BrokerInfo info,
                                                const host::KernelFeatures& kernel) {
  std::vector<UniqueFd> sockets;
  if (auto socket = folder.listen_on_metrics(metrics_gid(config), kernel))
    sockets.push_back(std::move(socket->fd));
  else
    spdlog::error("metrics are not served: {}", socket.error().message);
  add_port(config.metrics.listen, sockets);
  const auto is_reserved = [budget = host::DescriptorBudget::of_process()](int fd) {
    return budget.is_reserved(fd, true);
  };
  const auto is_of_pod = [kernel](int connection) { return host::may_be_of_pod(connection, kernel); };
  return std::make_unique<metrics::Metrics>(executor, metrics::Metrics::Options{.info = std::move(info),
                                                                                .sockets = std::move(sockets),
                                                                                .is_reserved = is_reserved,
                                                                                .is_of_pod = is_of_pod});
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
  const std::string traces = driver_traces(options.driver_folder);
  if (auto served = daemon->serve(*config, manager, std::move(passed)); !served) {
    host::Journal::take_attempt_back(host::private_folder_of(config->runtime_folder));
    if (!daemon->lacks_driver_ || !manager.is_there()) return served.error();
    const auto stopped = daemon->await_driver(served.error(), traces, manager);
    return stopped ? Result<std::unique_ptr<Daemon>>(nullptr) : stopped.error();
  }
  daemon->start_watchdog(manager);
  return daemon;
}

std::filesystem::path Daemon::simulated_machine() const { return folder_.path() / "driver"; }

Result<std::filesystem::path> Daemon::driver_folder() const {
  if (options_.simulate.empty()) return options_.driver_folder;
  return make_simulated_machine(simulated_machine(), options_.simulate);
}

Result<void> Daemon::serve(host::Config config, const host::ServiceManager& manager,
                           host::PassedDescriptors passed) {
  auto store = host::QuotaStore::open(config.state_folder,
                                      to_rfc3339(std::chrono::system_clock::now(), Precision::kSeconds));
  if (!store) return store.error();
  auto claims = host::ClaimStore::open(config.state_folder);
  if (!claims) return claims.error();
  auto known = host::KnownAccounts::open(config.state_folder);
  if (!known) return known.error();
  known_accounts_ = std::move(*known);
  host::Accounts accounts = host::look_up(config);
  options_.kernel.pods.cgroup_root = config.kubernetes.cgroup_root;
  options_.kernel.pods.looks = config.kubernetes.look_for_pods;
  subordinates_.read();
  options_.kernel.subordinates = &subordinates_;
  auto driver = driver_folder();
  if (!driver) return driver.error();
  auto machine = find_machine(*driver, options_.display_folder);
  lacks_driver_ = !machine && options_.simulate.empty();
  if (!machine) return machine.error();
  machine_ = std::move(*machine);
  try_fabric(machine_, config);
  Inheritance before{read_journal(host::private_folder_of(folder_.path())), passed.take_leases()};
  crash_at(CrashPoint::kRestartRead);
  if (before.journal) count_broker_before(machine_, *before.journal);
  choose_host_memory(machine_, config, *driver, before.journal ? &*before.journal : nullptr, before.kept);
  auto policy = host::compile_in_force(config, machine_.devices, store->current(), claims->current());
  if (!policy) return policy.error();
  report(*policy);
  const std::vector<std::string> uuids = core::uuids_of(*policy);
  if (auto started = start_loop(config, *driver, std::move(*policy), std::move(before), manager.store());
      !started)
    return started.error();
  config_ = config;
  follow_accounts(config, std::move(accounts));
  quotas_ = std::make_unique<host::LiveQuotas>(host::LiveQuotas::Options{
      .config = config,
      .devices = machine_.devices,
      .store = std::move(*store),
      .core = {.apply = [this](core::Policy next,
                               std::string cause) { return loop_->apply(std::move(next), std::move(cause)); },
               .tenants = [this] { return tenants_of(*loop_); }},
      .claims = std::move(*claims)});
  folder_.publish_except(config.system_except);
  if (auto served = serve_calls(); !served) return served.error();
  auto pages = host::DevicePages::create(folder_.path(), uuids);
  if (pages)
    loop_->show(std::move(*pages));
  else
    spdlog::warn("monitors show the driver's figures alone until the broker is restarted: {}",
                 pages.error().message);
  metrics_ = start_metrics(*loop_, folder_, config,
                           {.version = GPUMEM_VERSION, .driver = machine_.driver_version}, options_.kernel);
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
  rpc::Server::Options options{.info = {.version = GPUMEM_VERSION,
                                        .driver = machine_.driver_version,
                                        .observer = reconciler_.get(),
                                        .loads = [this] { return loads_->read(); }},
                               .reload = [this](auto answer) { ask_for_reload(std::move(answer)); },
                               .account_of = [this](int connection) -> std::optional<std::uint64_t> {
                                 const auto caller = connections_.find(connection);
                                 return caller ? std::optional(caller->peer.account()) : std::nullopt;
                               }};
  if (options_.api_idle.count() != 0) options.idle_connections = options_.api_idle;
  auto server = rpc::Server::start(*loop_, *quotas_, *quotas_, std::move(options));
  if (!server) return server.error();
  server_ = std::move(*server);
  api_->start();
  return {};
}

Result<void> Daemon::start_loop(const host::Config& config, const std::filesystem::path& driver,
                                core::Policy policy, Inheritance before, const host::DescriptorStore* store) {
  administrators_.set_group(config.admin_gid);
  administrators_.set_reader(config.accounts.uid);
  auto lane = folder_.listen_on_lane(options_.kernel);
  if (!lane) return lane.error();
  const std::string told = driver.empty() ? "" : std::filesystem::absolute(driver).string();
  host::Reconciler::Options reconciling{.driver_folder = driver,
                                        .devices = {},
                                        .period = config.reconcile,
                                        .pods = options_.kernel.pods,
                                        .subordinates = &subordinates_,
                                        .runtime_folder = folder_.path(),
                                        .display_folder = options_.display_folder};
  for (const core::DevicePolicy& device : policy.devices) {
    if (device.is_host()) continue;  // no driver tells of it; it is the last
    auto uuid = cuda::parse_device_uuid(device.uuid);
    if (!uuid) return uuid.error();
    reconciling.devices.push_back(*uuid);
    const auto facts = std::ranges::find(machine_.devices, *uuid,
                                         [](const host::DeviceFacts& one) { return one.device.uuid; });
    reconciling.pci_addresses.push_back(facts == machine_.devices.end() ? "" : facts->device.pci_address);
  }
  std::vector<std::string> uuids = core::uuids_of(policy);
  auto history = open_history(config.state_folder, policy);
  auto loop = host::Loop::create({.policy = std::move(policy),
                                  .driver = machine_.driver,
                                  .nvml = machine_.nvml.get(),
                                  .driver_folder = told,
                                  .lane_socket = std::move(*lane),
                                  .administrators = &administrators_,
                                  .connections = &connections_,
                                  .host_nodes = machine_.host_nodes,
                                  .kernel = options_.kernel,
                                  .journal_folder = host::private_folder_of(folder_.path()),
                                  .devices = std::move(uuids),
                                  .before = std::move(before.journal),
                                  .kept = std::move(before.kept),
                                  .store = store,
                                  .history = std::move(history)});
  if (!loop) return loop.error();
  loop_ = std::move(*loop);
  loop_->start();
  lane_calls_ = std::make_unique<lane::SessionCalls>(*loop_, *loop_);
  loads_ = std::make_unique<host::DeviceLoads>(machine_.nvml.get(), reconciling.devices);
  reconciler_ = std::make_unique<host::Reconciler>(*loop_, std::move(reconciling));
  loop_->set_observer(reconciler_.get());
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

host::NamedDescriptors Daemon::end_service() {
  watchdog_.reset();
  host::NamedDescriptors lent = loop_->drain();
  crash_at(CrashPoint::kShutdownDrained);
  api_->stop();
  refuse_reloads();
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
  if (auto removed = remove_simulated_machine(simulated_machine()); !removed)
    spdlog::warn("{}", removed.error().message);
}

Daemon::~Daemon() {
  watchdog_.reset();
  if (api_) api_->stop();
  metrics_.reset();
  api_.reset();  // before server_: the listener hands connections to it
  server_.reset();
  quotas_.reset();
  if (loop_) loop_->set_observer(nullptr);
  reconciler_.reset();
  loop_.reset();
}

}  // namespace gpumem
