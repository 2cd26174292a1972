#include "tests/support/broker_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <sstream>

#include "sim/machine/machine.h"
#include "tests/support/eventually.h"

namespace gpumem::test {
namespace {

std::size_t count(const std::string& text, const std::string& words) {
  std::size_t found = 0;
  for (auto at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++found;
  return found;
}

}  // namespace

std::filesystem::path gpumemd_program() { return GPUMEM_TEST_GPUMEMD; }
std::filesystem::path cli_program() { return GPUMEM_TEST_CLI; }
std::filesystem::path test_client_program() { return GPUMEM_TEST_CLIENT; }
std::filesystem::path sim_libraries() { return GPUMEM_TEST_SIM; }

ChildOptions BrokerProcess::command(std::vector<std::string> words, std::optional<User> user) const {
  return {.program = cli_program(),
          .arguments = std::move(words),
          .environment = {{"GPUMEM_RUNTIME_DIR", folder()}},
          .user = user};
}

BrokerProcess::BrokerProcess(BrokerOptions options) : options_(std::move(options)) {
  if (options_.user) {
    std::filesystem::create_directory(folder());
    EXPECT_EQ(::chown(folder().c_str(), options_.user->uid, options_.user->gid), 0);
  }
  start();
}

void BrokerProcess::start() {
  write_file(config_file(), options_.config);
  ChildOptions child{.program = options_.program.empty() ? gpumemd_program() : options_.program,
                     .arguments = {"--simulate", options_.simulate, "--runtime-dir", folder(), "--config",
                                   config_file().string()},
                     .environment = options_.environment,
                     .user = options_.user,
                     .open_files = options_.open_files};
  child.arguments.insert(child.arguments.end(), options_.arguments.begin(), options_.arguments.end());
  const UniqueFd log(::open((folder_ / "log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  child.output = log.get();
  child_ = std::make_unique<Child>(child);
  monitor_.reset();
  const bool ready = eventually([this] {
    if (!running()) return true;
    auto monitor = cli::Monitor::connect(folder());
    return monitor && monitor->status();
  });
  if (!ready || (!options_.may_end && !running()))
    ADD_FAILURE() << "gpumemd does not serve:\n" << this->log();
}

Outcome BrokerProcess::upgrade() {
  monitor_.reset();
  return run({.program = gpumemd_program(), .arguments = {"--upgrade", "--runtime-dir", folder()}});
}

void BrokerProcess::start_again() {
  ASSERT_FALSE(running());
  start();
}

BrokerProcess::~BrokerProcess() {
  if (child_) child_->kill();
  static_cast<void>(sim::remove_machine(driver_folder()));
  if (testing::Test::HasFailure()) std::cerr << "--- gpumemd said:\n" << log() << "---\n";
}

int BrokerProcess::stop() {
  begin_to_stop();
  return wait();
}

void BrokerProcess::reload(const std::string& config) {
  const auto reloads = [this] {
    return count(log(), "configuration reloaded") + count(log(), "configuration not reloaded");
  };
  const std::size_t before = reloads();
  options_.config = config;
  write_file(config_file(), config);
  child_->signal(SIGHUP);
  EXPECT_TRUE(eventually([&] { return reloads() > before; }));
}

v1::GetStatusResponse BrokerProcess::status() const {
  if (!monitor_) {
    auto monitor = cli::Monitor::connect(folder());
    if (!monitor) {
      ADD_FAILURE() << monitor.error().message;
      return {};
    }
    monitor_ = std::make_unique<cli::Monitor>(std::move(*monitor));
  }
  auto status = monitor_->status();
  if (status) return *status;
  ADD_FAILURE() << status.error().message;
  v1::GetStatusResponse nothing;
  nothing.add_devices();
  return nothing;
}

std::vector<v1::SessionInfo> BrokerProcess::sessions() const {
  static_cast<void>(status());  // connects
  auto sessions = monitor_ ? monitor_->sessions() : Error{};
  if (!sessions) {
    ADD_FAILURE() << sessions.error().message;
    return {};
  }
  return {sessions->sessions().begin(), sessions->sessions().end()};
}

v1::TenantUsage BrokerProcess::tenant(const std::string& name) const {
  static_cast<void>(status());
  auto tenants = monitor_ ? monitor_->tenants() : Error{};
  if (!tenants) {
    ADD_FAILURE() << tenants.error().message;
    return {};
  }
  for (const v1::TenantUsage& usage : tenants->tenants()) {
    if (usage.tenant() == name) return usage;
  }
  return {};
}

// In a process of its own: a process can be on one simulated machine only, and a test may make several.
BrokerProcess::DriverView BrokerProcess::driver_view() const {
  const Outcome outcome = run({.program = test_client_program(),
                               .arguments = {"used", driver_folder(), device().uuid()},
                               .environment = {},
                               .user = {}});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  DriverView view;
  std::istringstream output(outcome.output);
  output >> view.used;
  for (pid_t pid = 0; output >> pid;) output >> view.processes[pid];
  return view;
}

std::string BrokerProcess::unrest() const {
  std::string words;
  const v1::GetStatusResponse status = this->status();
  if (status.sessions() != 0) words += std::to_string(status.sessions()) + " sessions; ";
  for (const v1::DeviceStatus& device : status.devices()) {
    if (device.free() != device.pool())
      words += to_string(Bytes{device.pool() - device.free()}) + " not free; ";
    if (device.warm() != device.pool()) words += to_string(Bytes{device.warm()}) + " warm; ";
    if (device.waiting() != 0) words += std::to_string(device.waiting()) + " waiting; ";
  }
  return words;
}

bool BrokerProcess::at_rest() const { return unrest().empty(); }

}  // namespace gpumem::test
