#include "daemon/daemon.h"

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "sim/machine/machine.h"

namespace gpumem {
namespace {

constexpr const char* kDefaultConfig = "/etc/gpumemd/gpumemd.toml";
constexpr auto kCallPatience = std::chrono::seconds(2);

Result<host::Config> read_config(const Options& options) {
  std::error_code unknown;  // whether it is there: then reading it says why
  const bool named = !options.config.empty();
  if (!named && !std::filesystem::exists(kDefaultConfig, unknown) && !unknown) {
    host::Config config;
    if (!options.runtime_folder.empty()) config.runtime_folder = options.runtime_folder;
    return config;
  }
  auto config = host::load_config(named ? options.config : kDefaultConfig);
  if (config && !options.runtime_folder.empty()) config->runtime_folder = options.runtime_folder;
  return config;
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

void report(const core::Policy& policy) {
  for (const core::DevicePolicy& device : policy.devices) {
    spdlog::info("lending {} of {} on {} ({})", to_string(device.pool), to_string(device.total), device.uuid,
                 device.name);
  }
}

void print(const core::Policy& policy) {
  const auto print_quotas = [&](const std::string& who, const std::vector<core::Quota>& quotas) {
    for (std::size_t i = 0; i < quotas.size(); ++i) {
      std::printf("  %s on %s: guarantee %s, limit %s\n", who.c_str(), policy.devices[i].uuid.c_str(),
                  to_string(quotas[i].guarantee).c_str(), to_string(quotas[i].limit).c_str());
    }
  };
  for (const core::DevicePolicy& device : policy.devices) {
    std::printf("device %s (%s): pool %s of %s\n", device.uuid.c_str(), device.name.c_str(),
                to_string(device.pool).c_str(), to_string(device.total).c_str());
  }
  for (const core::TenantRule& tenant : policy.tenants)
    print_quotas("tenant '" + tenant.name + "'", tenant.quotas);
  if (policy.others)
    print_quotas("every other user", *policy.others);
  else
    std::printf("  other users are refused\n");
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::start(const Options& options) {
  auto config = read_config(options);
  if (!config) return config.error();
  raise_file_limit();
  auto folder = host::RuntimeFolder::claim(config->runtime_folder, config->socket_group);
  if (!folder) return folder.error();
  std::unique_ptr<Daemon> daemon(new Daemon(options, std::move(*folder)));
  if (auto served = daemon->serve(*config); !served) return served.error();
  return daemon;
}

std::filesystem::path Daemon::simulated_machine() const { return folder_.path() / "driver"; }

Result<std::filesystem::path> Daemon::driver_folder() const {
  if (options_.simulate.empty()) return options_.driver_folder;
  return make_simulated_machine(simulated_machine(), options_.simulate);
}

Result<void> Daemon::serve(const host::Config& config) {
  auto driver = driver_folder();
  if (!driver) return driver.error();
  auto machine = find_machine(*driver);
  if (!machine) return machine.error();
  machine_ = std::move(*machine);
  auto policy = host::compile_policy(config, machine_.devices);
  if (!policy) return policy.error();
  report(*policy);
  auto lane = folder_.listen_on_lane();
  if (!lane) return lane.error();
  auto loop =
      host::Loop::create({.policy = std::move(*policy),
                          .driver = machine_.driver,
                          .driver_folder = driver->empty() ? "" : std::filesystem::absolute(*driver).string(),
                          .lane_socket = std::move(*lane)});
  if (!loop) return loop.error();
  loop_ = std::move(*loop);
  loop_->start();
  auto server = rpc::Server::start(*loop_, folder_.api_socket(),
                                   {.version = GPUMEM_VERSION, .driver = machine_.driver_version});
  if (!server) return server.error();
  server_ = std::move(*server);
  if (auto opened = folder_.open_to_group(folder_.api_socket()); !opened) return opened.error();
  loop_->listen();
  spdlog::info("serving on {} with {}", folder_.path().string(), machine_.driver_version);
  return {};
}

Result<void> Daemon::reload() {
  auto config = read_config(options_);
  if (!config) return config.error();
  // The pools are what they are: shares are taken of what could be had when the broker started.
  auto policy = host::compile_policy(*config, machine_.devices);
  if (!policy) return policy.error();
  return loop_->apply(std::move(*policy));
}

void Daemon::stop() {
  loop_->drain();
  server_->stop(kCallPatience);
  if (options_.simulate.empty() || loop_->session_count() != 0) return;
  // Nobody uses the simulated machine any more; a client that did would keep it for the next broker.
  if (auto removed = sim::remove_machine(simulated_machine()); !removed)
    spdlog::warn("{}", removed.error().message);
}

Daemon::~Daemon() {
  server_.reset();
  loop_.reset();
}

Result<void> check_config(const Options& options) {
  auto config = read_config(options);
  if (!config) return config.error();
  if (auto group = host::resolve_group(config->socket_group); !group) return group.error();
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
  } else if (auto policy = host::compile_policy(*config, machine->devices); policy) {
    print(*policy);
  } else {
    answer = policy.error();
  }
  if (!options.simulate.empty()) static_cast<void>(sim::remove_machine(scratch));
  return answer;
}

}  // namespace gpumem
