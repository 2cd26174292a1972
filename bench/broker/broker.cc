#include "bench/broker/broker.h"

#include <grpcpp/create_channel.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "bench/beside.h"
#include "bench/must.h"
#include "proto/lane.h"
#include "sim/control/costs.h"
#include "sim/machine/machine.h"

namespace gpumem::bench {
namespace {

constexpr auto kStartPatience = std::chrono::seconds(30);
constexpr auto kPatience = std::chrono::seconds(60);
constexpr std::chrono::microseconds kPause{300};

template <class Condition>
void await(const char* what, std::chrono::microseconds pause, Condition&& holds) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!holds()) {
    require(std::chrono::steady_clock::now() < deadline, what, "does not come about");
    if (pause.count() != 0) std::this_thread::sleep_for(pause);
  }
}

/// On the driver that $GPUMEM_DRIVER_DIR names (empty: the system's), lending $GPUMEM_BENCH_POOL bytes of it;
/// a simulated GPU without.
std::vector<std::string> daemon_command(const std::filesystem::path& folder, const BrokerOptions& options) {
  const std::string daemon = find_beside({"gpumemd", "../daemon/gpumemd", "../../daemon/gpumemd"});
  std::vector<std::string> command{daemon, "--runtime-dir", folder, "--log-level", "warning"};
  const char* const driver = std::getenv("GPUMEM_DRIVER_DIR");
  const char* const pool = driver == nullptr ? nullptr : std::getenv("GPUMEM_BENCH_POOL");
  const std::string settings = driver == nullptr ? options.settings
                               : pool != nullptr ? "reserve = \"" + std::string(pool) + "\""
                                                 : "";
  if (driver == nullptr)
    command.insert(command.end(), {"--simulate", options.device});
  else if (*driver != '\0')
    command.insert(command.end(), {"--driver-dir", driver});
  if (settings.empty()) return command;
  const auto config = folder / "bench.toml";
  std::ofstream(config) << "[broker]\n" << settings << "\n";
  command.insert(command.end(), {"--config", config});
  return command;
}

/// The times of profile $GPUMEM_BENCH_COSTS for the simulated driver's calls. None if it is not set, or
/// empty.
std::optional<sim::CostProfile> costs_asked_for() {
  const char* const profile = std::getenv("GPUMEM_BENCH_COSTS");
  if (profile == nullptr || *profile == '\0') return std::nullopt;
  return must(sim::load_costs(profile), "GPUMEM_BENCH_COSTS is h200, a100 or a file");
}

}  // namespace

void Broker::End::operator()(Process* process) const {
  process->signal(SIGTERM);
  delete process;
}

Broker::Broker(const BrokerOptions& options) {
  const auto costs = costs_asked_for();
  using std::filesystem::perms;  // other users of the group come in, as they do where a service's folder is
  std::filesystem::permissions(folder_.path(), perms::owner_all | perms::group_read | perms::group_exec);
  process_.reset(new Process(Process::start(daemon_command(folder_.path(), options))));
  await("the broker's socket", kPause, [&] { return std::filesystem::exists(api_socket()); });
  auto channel = grpc::CreateChannel("unix:" + api_socket().string(), grpc::InsecureChannelCredentials());
  require(channel->WaitForConnected(std::chrono::system_clock::now() + kStartPatience),
          "cannot reach the broker");
  if (costs)
    must(sim::set_costs(must(sim::load_machine(folder_.path() / "driver"), "simulated machine"), *costs),
         "costs");
  monitor_ = v1::Monitor::NewStub(channel);
}

Broker::~Broker() {
  monitor_.reset();
  process_.reset();
  // The broker takes its simulated machine away itself unless it was killed or still had sessions.
  static_cast<void>(sim::remove_machine(folder_.path() / "driver"));
}

std::filesystem::path Broker::api_socket() const { return folder_.path() / kApiSocketName; }

Session Broker::connect() const { return connect_to(folder()); }

v1::GetStatusResponse Broker::status() const {
  grpc::ClientContext context;
  v1::GetStatusResponse response;
  const grpc::Status status = monitor_->GetStatus(&context, {}, &response);
  require(status.ok() && response.devices_size() == 1, "no status of the broker", status.error_message());
  return response;
}

v1::DeviceStatus Broker::device() const { return status().devices(0); }
std::size_t Broker::sessions() const { return status().sessions(); }

// Without a pause: what is measured next would else begin with a processor that has gone to sleep, while the
// empty call's loop, which it is held against, has not.
void Broker::await_stock() const {
  await("an empty way back", {}, [&] {
    const v1::DeviceStatus now = device();
    return now.returning() == 0 && now.quarantined() == 0;
  });
}

void Broker::await_all_free() const {
  await("all memory free", kPause, [&] {
    const v1::DeviceStatus now = device();
    return now.offered() + now.active() + now.returning() + now.quarantined() == 0;
  });
}

void Broker::await_sessions(std::size_t count) const {
  await("the number of sessions", kPause, [&] { return sessions() == count; });
}

Session connect_to(const std::string& folder) {
  return must(Session::connect({.runtime_folder = folder}), "connect");
}

}  // namespace gpumem::bench
