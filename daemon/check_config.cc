#include "daemon/configuration.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/log.h"
#include "daemon/devices.h"
#include "daemon/host/config/accounts.h"
#include "daemon/host/config/live_quotas.h"
#include "daemon/host/state/folder_lock.h"
#include "daemon/host/state/runtime_folder.h"
#include "daemon/host/system/process.h"

namespace gpumem {
namespace {

void print(const core::Policy& policy) {
  const auto print_quotas = [&](const std::string& who, const std::vector<core::Quota>& quotas) {
    for (std::size_t i = 0; i < quotas.size(); ++i) {
      std::printf("  %s on %s: guarantee %s, limit %s, weight %u, priority %u\n", who.c_str(),
                  policy.devices[i].uuid.c_str(), to_string(quotas[i].guarantee).c_str(),
                  to_string(quotas[i].limit).c_str(), quotas[i].weight, quotas[i].priority);
    }
  };
  for (const core::DevicePolicy& device : policy.devices) {
    std::printf("device %s (%s): pool %s of %s%s\n", device.uuid.c_str(), device.name.c_str(),
                to_string(device.pool).c_str(), to_string(device.total).c_str(),
                device.is_elastic() ? ", elastic" : "");
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

// A simulated machine that is made for the check alone.
struct ScratchMachine {
  std::filesystem::path folder;  ///< empty: there is none
  ScratchMachine() = default;
  ScratchMachine(const ScratchMachine&) = delete;
  ScratchMachine& operator=(const ScratchMachine&) = delete;
  ~ScratchMachine() {
    if (folder.empty()) return;
    static_cast<void>(remove_simulated_machine(folder));
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
};

// The driver that a broker with these options opens. A simulated machine that is there already goes on to be
// lent; in its place another is made, and the runtime folder left alone.
Result<std::filesystem::path> driver_for(const Options& options, const std::filesystem::path& runtime_folder,
                                         ScratchMachine& scratch) {
  if (options.simulate.empty()) return options.driver_folder;
  const std::filesystem::path kept = runtime_folder / "driver";
  if (is_simulated_machine(kept, options.simulate)) return kept;
  std::string name = (std::filesystem::temp_directory_path() / "gpumemd-check-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) return errno_error(errno, "cannot make " + name);
  scratch.folder = name;
  return make_simulated_machine(scratch.folder, options.simulate);
}

// The broker that serves the folder. Some file systems let the kernel name another holder than the lock's.
std::optional<long> running_broker(const std::filesystem::path& runtime_folder) {
  const auto pid = host::holder_of_lock(runtime_folder);
  return pid && host::command_of(*pid) == "gpumemd" ? pid : std::nullopt;
}

// Says which broker the checked one would follow, and counts what that has lent. True: it runs, and the next
// one will find its memory free.
bool count_predecessor(Machine& machine, const std::filesystem::path& runtime_folder) {
  const auto pid = running_broker(runtime_folder);
  const auto journal = host::Journal::look(host::private_folder_of(runtime_folder));
  const bool known = journal && *journal;
  if (known) count_broker_before(machine, **journal);
  const std::string who =
      pid ? "The broker of " + runtime_folder.string() + " runs as pid " + std::to_string(*pid) + "."
          : "No broker serves " + runtime_folder.string() + ".";
  std::string lent;
  if (known) lent = " What it has lent stays part of the pool.";
  if (known && !pid) lent = " What the one before has lent stays part of the pool.";
  if (!known && pid)
    lent = " It has no journal. What it has lent is not known, and counts as used by others.";
  if (!journal) lent = " What is lent is not known, and counts as used by others: " + journal.error().message;
  std::printf("%s%s\n", who.c_str(), lent.c_str());
  return pid.has_value();
}

// Says what of the pools others use at present, as far as the driver tells.
void print_missing(const Machine& machine, const core::Policy& policy) {
  for (const core::DevicePolicy& device : policy.devices) {
    if (!machine.nvml || device.is_host()) return;
    const auto facts = std::ranges::find(machine.devices, device.uuid, &host::DeviceFacts::uuid);
    const auto memory = machine.nvml->memory(facts->device.uuid);
    if (!memory) continue;
    const Bytes there =
        memory->free.minus(core::kept_for_contexts(device, {}) + core::kept_for_others(device)) + facts->lent;
    const Bytes missing = device.pool.minus(there);
    if (missing.is_zero()) continue;
    std::printf(
        "device %s: %s of the pool are missing at present, because others use the device; the pool "
        "grows when they free memory. Until then guarantees of more than %s in all are not covered\n",
        device.uuid.c_str(), to_string(missing).c_str(), to_string(device.pool - missing).c_str());
  }
}

// What is kept in the state folder. Only the broker's user may read it.
template <class Kept>
Result<Kept> if_permitted(Result<Kept> kept, const char* what) {
  if (kept || kept.error().code != Code::kPermissionDenied) return kept;
  std::printf("%s left out: %s\n", what, kept.error().message.c_str());
  return Kept{};
}

// Accounts that are missing now are accepted if a broker has found them before.
Result<void> check_accounts(host::Config& config) {
  if (auto group = host::resolve_socket_group(config.socket_group); !group) return group.error();
  const auto known =
      if_permitted(host::KnownAccounts::open(config.state_folder), "Accounts that were found before are");
  if (!known) return known.error();
  const host::Accounts accounts = host::look_up(config);
  if (auto right = known->check(accounts); !right) return right;
  for (const host::Account& account : accounts.missing)
    std::printf("%s\n", host::in_words_missing(account).c_str());
  return {};
}

}  // namespace

Result<void> check_config(const Options& options) {
  auto config = read_config(options);
  if (!config) return config.error();
  if (auto accounts = check_accounts(*config); !accounts) return accounts.error();
  const auto overlay =
      if_permitted(host::read_quotas(config->state_folder), "Quotas that were set at run time are");
  if (!overlay) return overlay.error();
  const auto claims = if_permitted(host::read_claims(config->state_folder), "What is prepared for pods is");
  if (!claims) return claims.error();
  ScratchMachine scratch;
  const auto driver = driver_for(options, config->runtime_folder, scratch);
  if (!driver) return driver.error();
  auto machine = find_machine(*driver, options.display_folder);
  if (!machine) {
    std::printf("The file is well-formed. It could not be held against the GPUs: %s\n",
                machine.error().message.c_str());
    return {};
  }
  const bool has_predecessor = count_predecessor(*machine, config->runtime_folder);
  const auto policy = host::compile_in_force(*config, machine->devices, *overlay, *claims);
  if (!policy) return policy.error();
  print(*policy);
  if (!has_predecessor) print_missing(*machine, *policy);
  return {};
}

}  // namespace gpumem
