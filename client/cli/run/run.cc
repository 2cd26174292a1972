#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>

#include "base/time_format.h"
#include "client/cli/commands/usage.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/run/line/waiting.h"
#include "client/cli/run/program/account.h"
#include "client/cli/run/program/command_line.h"
#include "client/cli/run/program/run_environment.h"
#include "client/cli/run/program/signals.h"
#include "client/process/runtime_folder.h"
#include "gpumem/session.h"

namespace gpumem::cli {
namespace {

constexpr const char* kWho = "gpumem run";

struct RunOptions {
  std::vector<std::string> words;  ///< the command; none: the user's shell
  std::string device;              ///< UUID, the beginning of one, or a place in `gpumem status`; empty: any
  ShimSettings settings{};         ///< as far as the command line says it
};

// The state of the machine that a program with the drop-in driver needs, read before it starts.
struct Setup {
  v1::GetStatusResponse lent;  // UUIDs alone
  std::vector<DeviceUsage> usage;
  std::filesystem::path driver_folder;
  std::filesystem::path shim_folder;
};

Result<Setup> find_setup(const RunOptions& options) {
  auto shim = shim_folder();
  if (!shim) return shim.error();
  if (auto loadable = check_loadable(*shim, options.settings.preload); !loadable) return loadable.error();
  // By the lane, as the drop-in driver itself: gRPC takes longer to start than many a command.
  auto session = Session::connect({options.settings.runtime_folder.string(), kWho});
  if (!session) return session.error();
  const auto usage = session->usage();
  if (!usage) return usage.error();
  v1::GetStatusResponse lent;
  for (const DeviceUsage& device : *usage) lent.add_devices()->set_uuid(device.device);
  return Setup{lent, *usage, client::driver_folder(session->driver_folder()), *shim};
}

Result<void> choose_device(const Setup& setup, RunOptions& options) {
  if (options.device.empty()) return {};
  auto uuid = find_device(setup.lent, options.device);
  if (!uuid) return uuid.error().in("--device");
  options.settings.device = *uuid;
  return {};
}

Result<Waited> wait_for_limit(const Setup& setup, const RunOptions& options, const Signals& signals,
                              Progress& progress) {
  const ShimSettings& settings = options.settings;
  if (!settings.limit || !settings.wait) return Waited{};
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  auto device = settings.device.empty() ? first_visible(setup.lent, visible == nullptr ? "" : visible)
                                        : Result<std::string>(settings.device);
  if (!device) return device.error();
  const std::string label = settings.name.empty() ? std::string(kWho) : settings.name;
  Bytes bytes = *settings.limit;
  for (const DeviceUsage& one : setup.usage) {
    if (one.device == *device && !one.limit.is_zero()) bytes = std::min(bytes, one.limit);
  }
  return wait_for_memory({settings.runtime_folder, *device, bytes, *settings.wait, label}, signals, progress);
}

// The value of GPUMEM_LIMIT, if it is set.
Result<std::optional<Bytes>> outer_limit() {
  const char* text = std::getenv("GPUMEM_LIMIT");
  if (text == nullptr || *text == '\0') return std::optional<Bytes>();
  const auto limit = parse_bytes(text);
  if (!limit) return limit.error().in("GPUMEM_LIMIT");
  return std::optional(*limit);
}

// Refuses a limit with which each process of the command would fail at its first call.
Result<void> check_limit(const ShimSettings& settings, const Result<std::optional<Bytes>>& outer) {
  constexpr Bytes kLeast = mebibytes(2);  // as devices allocate
  if (!settings.limit && !outer) return outer.error();
  const char* const whose = settings.limit ? "--limit" : "GPUMEM_LIMIT";
  const std::optional<Bytes> limit = settings.limit ? settings.limit : *outer;
  if (!limit || *limit >= kLeast) return {};
  return Error{Code::kInvalidArgument, std::string(whose) + ": " + to_string(*limit) + " is less than " +
                                           to_string(kLeast) + ", the least that can be borrowed"};
}

// Refuses a GPUMEM_WAIT with which each process of the command would fail at its first call.
Result<void> check_wait(const ShimSettings& settings) {
  const char* text = std::getenv("GPUMEM_WAIT");
  if (settings.wait || text == nullptr || *text == '\0') return {};
  const auto wait = parse_duration(text);
  return wait ? Result<void>() : wait.error().in("GPUMEM_WAIT");
}

// Of the device that is chosen, else of the one that has the most.
void tell_of_tenants_limit(const Setup& setup, const ShimSettings& settings, Progress& progress) {
  Bytes most;
  for (const DeviceUsage& one : setup.usage) {
    if (settings.device.empty() || settings.device == one.device) most = std::max(most, one.limit);
  }
  if (!settings.limit || *settings.limit <= most) return;
  progress.say("--limit " + to_string(*settings.limit) + ": the limit is " + to_string(most) +
               ", which is all that the tenant may have");
}

// Of `gpumem run` inside another one, or of a limit that the environment sets: the smaller one holds.
void heed_outer_limit(const std::optional<Bytes>& outer, ShimSettings& settings, Progress& progress) {
  if (!settings.limit || !outer || outer->is_zero() || *outer >= *settings.limit) return;
  progress.say("--limit " + to_string(*settings.limit) +
               " is more than GPUMEM_LIMIT allows: " + to_string(*outer) + " hold");
  settings.limit = *outer;
}

int refuse(Progress& progress, const Error& error) {
  progress.clear();
  std::cerr << kWho << ": " << error.message << "\n";
  return kOwnFailure;
}

// Answers what waitpid() tells of the command.
Result<int, CommandError> run_to_its_end(const CommandOptions& command, const Signals& signals) {
  auto started = Command::start(command, signals);
  if (!started) return started.error();
  return started->wait(signals);
}

int finish(const Result<int, CommandError>& ended, Progress& progress) {
  if (ended) return end_as(*ended);
  refuse(progress, ended.error());
  return ended.error().status;
}

int run_plain(const RunOptions& options, const Error& why, const Signals& signals, Progress& progress) {
  progress.say(why.message);
  progress.say("the command runs without gpumem, as --optional allows");
  Environment environment = own_environment();
  if (!options.device.empty()) environment["CUDA_VISIBLE_DEVICES"] = options.device;
  return finish(run_to_its_end({options.words, std::move(environment)}, signals), progress);
}

Result<int, CommandError> run_brokered(RunOptions& options, const Setup& setup, const Signals& signals,
                                       Progress& progress) {
  const auto accounts = AccountFolder::make();
  if (accounts)
    options.settings.account_folder = accounts->path();
  else
    progress.say("there will be no account of what the command has used: " + accounts.error().message);
  options.settings.driver_folder = setup.driver_folder;
  options.settings.shim_folder = setup.shim_folder;
  auto ended = run_to_its_end({options.words, with_shim(own_environment(), options.settings)}, signals);
  if (!ended) return ended;
  if (!accounts) return ended;
  progress.say(account_text(accounts->read()));
  if (Command::leaves_others())
    progress.say("processes that the command has started go on, and are not in it");
  return ended;
}

int run_without(const RunOptions& options, const Error& why, const Signals& signals, Progress& progress) {
  if (options.settings.optional) return run_plain(options, why, signals, progress);
  refuse(progress, why);
  progress.say("with --optional, the command runs without gpumem");
  return kOwnFailure;
}

// Runs a command with the drop-in driver and tells what it has used. Returns the exit status; ends this
// process by a signal if the command has ended so.
int run_program(RunOptions options) {
  const Signals signals;
  Progress progress(kWho);
  if (options.words.empty()) {
    const char* shell = std::getenv("SHELL");
    options.words = {shell != nullptr && *shell != '\0' ? shell : "/bin/sh"};
  }
  const auto outer = outer_limit();
  if (auto possible = check_limit(options.settings, outer); !possible)
    return refuse(progress, possible.error());
  if (auto possible = check_wait(options.settings); !possible) return refuse(progress, possible.error());
  heed_outer_limit(outer ? *outer : std::nullopt, options.settings, progress);
  AnswerInTime<Setup> asked([options] { return find_setup(options); }, signals);
  const Result<Setup>& setup = asked.answer();
  if (!setup) {
    const int status = run_without(options, setup.error(), signals, progress);
    if (asked.is_stuck()) std::_Exit(status);
    return status;
  }
  if (auto chosen = choose_device(*setup, options); !chosen) return refuse(progress, chosen.error());
  tell_of_tenants_limit(*setup, options.settings, progress);
  const auto waited = wait_for_limit(*setup, options, signals, progress);
  if (!waited) return refuse(progress, waited.error());
  if (waited->signal) die_by(*waited->signal);
  return finish(run_brokered(options, *setup, signals, progress), progress);
}

constexpr const char* kFooter =
    "Exit status: that of the command; 125 gpumem itself has failed; 126 the command cannot be executed;\n"
    "127 there is no such command. A command that a signal has ended ends this program likewise.";

struct RunArguments {
  RunOptions options;
  std::string runtime_dir;
  bool plain_frameworks = false;
};

}  // namespace

void add_run_command(CLI::App& app, const std::string& runtime_dir, const SplitLine& line, int& status) {
  const auto arguments = std::make_shared<RunArguments>();  // lives as long as the callback
  ShimSettings& settings = arguments->options.settings;
  CLI::App* run = app.add_subcommand(
      "run", "Run an unmodified program with borrowed memory (without a command: the shell)");
  take_command(*run, arguments->runtime_dir);
  run->footer(kFooter);
  add_bytes(*run, "--limit", settings.limit,
            "The most that each of its processes can hold: 8GiB [the tenant's]");
  run->add_option("--device", arguments->options.device,
                  "Only this device: UUID, or its place in `gpumem status`")
      ->type_name("DEVICE");
  add_time(
      *run, "--wait", [&settings](std::chrono::milliseconds wait) { settings.wait = wait; },
      "Wait so long for memory, 500ms, 90s, 10m (a number is seconds): with --limit before it starts, too");
  add_name(*run, settings.name);
  run->add_flag("--optional", settings.optional, "Without a broker, run the command as it is");
  run->add_flag("--show-device", settings.show_device, "NVML shows it the device, not the limit");
  run->add_flag("--no-framework-settings", arguments->plain_frameworks,
                "Leave the variables of TensorFlow, JAX and CUDA alone");
  run->add_flag("--preload", settings.preload, "Load the drop-in driver by LD_PRELOAD, not LD_LIBRARY_PATH");
  run->callback([=, &runtime_dir, &line, &status] {
    RunOptions& options = arguments->options;
    const std::string& named = arguments->runtime_dir.empty() ? runtime_dir : arguments->runtime_dir;
    options.words = command_words(*run, line);
    options.settings.runtime_folder = std::filesystem::absolute(client::runtime_folder(named));
    options.settings.framework_settings = !arguments->plain_frameworks;
    status = run_program(options);
  });
}

}  // namespace gpumem::cli
