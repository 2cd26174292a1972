#pragma once
#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/monitor/monitor.h"
#include "tests/support/child.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::test {

struct BrokerOptions {
  std::string simulate = "1x256MiB";
  std::string config;  ///< TOML; see BrokerProcess::kShared for a socket that every test user may use
  std::vector<std::string> arguments{};
  std::optional<User> user{};            ///< to run as
  std::optional<unsigned> open_files{};  ///< limit on descriptors; root would raise it again
  std::filesystem::path program{};       ///< empty: gpumemd_program()
  std::vector<std::pair<std::string, std::string>> environment{};
  bool may_end = false;  ///< a broker that ends before it serves is no failure of the test
};

/// gpumemd, serving, over a simulated machine of its own. Nothing of it is left when its owner goes.
class BrokerProcess {
 public:
  /// The group that test_user()'s processes run with.
  static constexpr gid_t kGroup = 10'000;

  explicit BrokerProcess(BrokerOptions options = {});
  ~BrokerProcess();

  /// Folder of the sockets, and the one of the driver.
  std::string folder() const { return (folder_ / "run").string(); }
  std::string driver_folder() const { return (folder_ / "run" / "driver").string(); }
  std::filesystem::path config_file() const { return folder_ / "gpumemd.toml"; }

  pid_t pid() const { return child_->pid(); }
  bool running() const { return child_->running(); }
  /// SIGTERM; the exit status.
  int stop();
  void begin_to_stop() { child_->signal(SIGTERM); }
  int wait() { return child_->wait(); }
  void kill() { child_->kill(); }
  /// `gpumemd --upgrade` of this folder: the broker that serves is another, and the same process.
  Outcome upgrade();
  /// Starts another broker in the same folder, after the first has ended.
  void start_again();
  /// As start_again(), with another configuration.
  void start_again(const std::string& config) {
    options_.config = config;
    start_again();
  }
  /// As start_again(), in another environment.
  void start_again_in(std::vector<std::pair<std::string, std::string>> environment) {
    options_.environment = std::move(environment);
    start_again();
  }
  /// Writes the configuration, sends SIGHUP, and waits until the broker has said what came of it.
  void reload(const std::string& config);

  /// `gpumem`, for this broker.
  ChildOptions command(std::vector<std::string> words, std::optional<User> user = {}) const;

  /// Everything it has said so far.
  std::string log() const { return read_file(folder_ / "log"); }

  v1::GetStatusResponse status() const;
  v1::DeviceStatus device(int index = 0) const { return status().devices(index); }
  std::vector<v1::SessionInfo> sessions() const;
  /// The usage of `tenant` on the first device; all zero if the tenant is unknown.
  v1::TenantUsage tenant(const std::string& name) const;
  /// The first device as NVML tells of it: bytes in use, by anyone and by process.
  struct DriverView {
    std::uint64_t used = 0;
    std::map<pid_t, std::uint64_t> processes;
  };
  DriverView driver_view() const;
  std::uint64_t used_of_driver() const { return driver_view().used; }
  std::vector<std::string> open_descriptors() const { return test::open_descriptors(pid()); }
  std::size_t threads() const { return test::threads(pid()); }

  /// Nobody is connected, nothing is charged, nothing is under way, and the pool is whole.
  bool at_rest() const;
  /// Why it is not, for messages.
  std::string unrest() const;

 private:
  void start();

  TemporaryFolder folder_;
  BrokerOptions options_;
  std::unique_ptr<Child> child_;
  mutable std::unique_ptr<cli::Monitor> monitor_;
};

/// A user of kGroup: `uid` 10000 and upwards.
inline User test_user(uid_t uid) { return {uid, BrokerProcess::kGroup}; }

std::filesystem::path gpumemd_program();
std::filesystem::path cli_program();
std::filesystem::path test_client_program();
std::filesystem::path sim_libraries();

}  // namespace gpumem::test
