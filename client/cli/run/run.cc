#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "base/text/device_name.h"
#include "base/text/printable.h"
#include "base/text/time_format.h"
#include "client/cli/commands/usage.h"
#include "client/cli/run/line/place.h"
#include "client/cli/run/line/terminations.h"
#include "client/cli/run/program/command_line.h"
#include "client/cli/run/program/run_environment.h"
#include "client/cli/run/program/signals.h"
#include "client/process/environment.h"
#include "client/process/runtime_folder.h"
#include "gpumem/session.h"

namespace gpumem::cli {
namespace {

constexpr const char* kWho = "gpumem run";

struct RunOptions {
  std::vector<std::string> words;  ///< the command; none: the user's shell
  PlaceOptions place;
  ShimSettings settings{};  ///< as far as the command line says it
};

// The broker, and the state of the machine that a program with the drop-in driver needs, before it starts.
struct Setup {
  Place place;
  std::filesystem::path driver_folder;
  std::filesystem::path shim_folder;
};

Result<Setup> find_setup(const RunOptions& options) {
  auto shim = shim_folder();
  if (!shim) return shim.error();
  if (auto loadable = check_loadable(*shim, options.settings.preload); !loadable) return loadable.error();
  if (auto loads_it = check_c_library(options.words.front()); !loads_it) return loads_it.error();
  // By the lane, as the drop-in driver itself: gRPC takes longer to start than many a command.
  auto session = Session::connect({options.settings.runtime_folder.string(), kWho, Place::kPatience});
  if (!session) return session.error();
  std::filesystem::path driver = client::driver_folder(session->driver_folder());
  auto place = Place::find(std::move(*session), options.place, options.settings.runtime_folder);
  if (!place) return place.error();
  return Setup{std::move(*place), std::move(driver), *shim};
}

// The value of GPUMEM_LIMIT, if it is set. Refuses one with which each process of the command would fail at
// its first call.
Result<std::optional<Bytes>> outer_limit(const RunOptions& options) {
  const char* text = std::getenv("GPUMEM_LIMIT");
  if (text == nullptr || *text == '\0') return std::optional<Bytes>();
  const auto limit = parse_bytes(text);
  if (options.place.limit) return limit ? std::optional(*limit) : std::nullopt;
  if (!limit) return limit.error().in("GPUMEM_LIMIT");
  if (auto enough = check_least_limit(*limit, "GPUMEM_LIMIT"); !enough) return enough.error();
  return std::optional(*limit);
}

// Refuses a GPUMEM_WAIT with which each process of the command would fail at its first call.
Result<void> check_wait(const ShimSettings& settings) {
  const char* text = std::getenv("GPUMEM_WAIT");
  if (settings.wait || text == nullptr || *text == '\0') return {};
  const auto wait = parse_duration(text);
  return wait ? Result<void>() : wait.error().in("GPUMEM_WAIT");
}

// Refuses a GPUMEM_NAME likewise.
Result<void> check_name(const ShimSettings& settings) {
  if (!settings.name.empty()) return {};
  const auto label = client::label_of_environment();
  return label ? Result<void>() : label.error();
}

std::string label_of(const RunOptions& options) {
  if (!options.settings.name.empty()) return options.settings.name;
  const std::string name = std::filesystem::path(options.words.front()).filename().string();
  return to_printable(name.substr(0, kLabelBytes));
}

int refuse(Progress& progress, const Error& error) {
  progress.clear();
  std::cerr << kWho << ": " << error.message << "\n";
  return kOwnFailure;
}

/// As waitpid() tells.
struct Ended {
  pid_t pid;
  int status;
};

Result<Ended, CommandError> run_to_its_end(const CommandOptions& command, const Signals& signals) {
  auto started = Command::start(command, signals);
  if (!started) return started.error();
  const int status = started->wait(signals);
  return Ended{started->pid(), status};
}

int finish(const Result<Ended, CommandError>& ended, Progress& progress) {
  if (ended) return end_as(ended->status);
  refuse(progress, ended.error());
  return ended.error().status;
}

// CUDA knows UUIDs and ordinals.
std::string drivers_name(const std::string& device) {
  const auto place = device_place(device);
  return place ? std::to_string(*place) : device;
}

int run_plain(const RunOptions& options, const Error& why, const Signals& signals, Progress& progress) {
  progress.say(why.message);
  progress.say("the command runs without gpumem, as --optional allows");
  Environment environment = own_environment();
  const std::string& device = options.place.device;
  if (!device.empty() && device != kAnyDevice && device != kAllDevices)
    environment["CUDA_VISIBLE_DEVICES"] = drivers_name(device);
  return finish(run_to_its_end({options.words, std::move(environment)}, signals), progress);
}

std::string account_text(const JobAccount& account) {
  if (account.peak.is_zero() && account.denied == 0) return "no process of the command has borrowed memory";
  std::string text = "peak " + to_string(account.peak) + ", its requests waited " + span_text(account.waited);
  if (account.denied == 0) return text + ", nothing denied by the broker";
  return text + ", " + std::to_string(account.denied) +
         (account.denied == 1 ? " request denied" : " requests denied");
}

void tell_account(Session& session, Progress& progress) {
  const auto account = session.job_account();
  if (!account)
    return progress.say("there is no account of what the command has used: " + account.error().message);
  progress.say(account_text(*account));
  if (Command::leaves_others())
    progress.say("processes that the command has started go on: what they use from now on is not in it");
}

Result<Ended, CommandError> run_brokered(const RunOptions& options, Setup& setup, const Signals& signals,
                                         Progress& progress) {
  const WallTime began = std::chrono::system_clock::now();
  Place& place = setup.place;
  ShimSettings settings = options.settings;
  settings.driver_folder = setup.driver_folder;
  settings.shim_folder = setup.shim_folder;
  settings.device = place.device();
  settings.limit = place.limit();
  settings.job = place.job();
  auto ended = run_to_its_end({options.words, with_shim(own_environment(), settings)}, signals);
  if (!ended || place.is_nested()) return ended;
  tell_account(place.session(), progress);
  tell_terminations({.runtime_folder = settings.runtime_folder,
                     .tenant = place.session().tenant(),
                     .job = place.job(),
                     .pid = ended->pid,
                     .began = began,
                     .status = ended->status},
                    signals, progress);
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
  if (auto possible = check_place(options.place); !possible) return refuse(progress, possible.error());
  const auto outer = outer_limit(options);
  if (!outer) return refuse(progress, outer.error());
  if (auto possible = check_wait(options.settings); !possible) return refuse(progress, possible.error());
  if (auto possible = check_name(options.settings); !possible) return refuse(progress, possible.error());
  AnswerInTime<Setup> asked([options] { return find_setup(options); }, signals);
  Result<Setup>& setup = asked.answer();
  if (!setup) {
    const int status = run_without(options, setup.error(), signals, progress);
    if (asked.is_stuck()) std::_Exit(status);
    return status;
  }
  Place& place = setup->place;
  if (auto chosen = place.choose(*outer, progress); !chosen) return refuse(progress, chosen.error());
  if (!place.is_nested()) {
    if (auto begun = place.begin(label_of(options)); !begun) {
      const Error& why = begun.error();
      return why.code == Code::kUnavailable ? run_without(options, why, signals, progress)
                                            : refuse(progress, why);
    }
  }
  const auto ended_by = place.take(signals, progress);
  if (!ended_by) return refuse(progress, ended_by.error());
  if (*ended_by) die_by(**ended_by);
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
  add_place(*run, arguments->options.place);
  add_time(
      *run, "--wait",
      [options = &arguments->options](std::chrono::milliseconds wait) {
        options->settings.wait = wait;
        options->place.wait = wait;
      },
      "Wait so long for memory, 500ms, 90s, 10m (a number is seconds); with --limit, reserve it first");
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
    options.settings.runtime_folder = client::runtime_folder(named);
    options.settings.framework_settings = !arguments->plain_frameworks;
    status = run_program(options);
  });
}

}  // namespace gpumem::cli
