#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "base/time_format.h"
#include "client/cli/commands/usage.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/run/line/job_reservation.h"
#include "client/cli/run/program/command_line.h"
#include "client/cli/run/program/run_environment.h"
#include "client/cli/run/program/signals.h"
#include "client/process/runtime_folder.h"
#include "gpumem/session.h"

namespace gpumem::cli {
namespace {

constexpr const char* kWho = "gpumem run";

bool is_percentage(const Amount& limit) { return limit.kind() == Amount::Kind::kPercent; }

struct RunOptions {
  std::vector<std::string> words;  ///< the command; none: the user's shell
  std::string device;              ///< UUID, the beginning of one, or a place in `gpumem status`; empty: any
  std::optional<Amount> limit;     ///< bytes, or a percentage of what the tenant can have
  ShimSettings settings{};         ///< as far as the command line says it
};

// The broker, and the state of the machine that a program with the drop-in driver needs, before it starts.
struct Setup {
  Session session;             // owns the command's job
  v1::GetStatusResponse lent;  // UUIDs alone
  std::vector<DeviceUsage> usage;
  std::filesystem::path driver_folder;
  std::filesystem::path shim_folder;
  bool is_nested() const { return session.job() != 0; }
};

Result<Setup> find_setup(const RunOptions& options) {
  auto shim = shim_folder();
  if (!shim) return shim.error();
  if (auto loadable = check_loadable(*shim, options.settings.preload); !loadable) return loadable.error();
  // By the lane, as the drop-in driver itself: gRPC takes longer to start than many a command.
  auto session = Session::connect({options.settings.runtime_folder.string(), kWho});
  if (!session) return session.error();
  auto usage = session->usage();
  if (!usage) return usage.error();
  v1::GetStatusResponse lent;
  for (const DeviceUsage& device : *usage) lent.add_devices()->set_uuid(device.device);
  std::filesystem::path driver = client::driver_folder(session->driver_folder());
  return Setup{std::move(*session), lent, std::move(*usage), std::move(driver), *shim};
}

Result<void> choose_device(const Setup& setup, RunOptions& options) {
  if (options.device.empty()) return {};
  auto uuid = find_device(setup.lent, options.device);
  if (!uuid) return uuid.error().in("--device");
  options.settings.device = *uuid;
  return {};
}

Bytes most_of(const DeviceUsage& device) { return std::min(device.limit, device.pool); }

// Of the device that is chosen, else of the one that has the most. In a job, the job's.
Bytes most_of(const Setup& setup, const ShimSettings& settings) {
  Bytes most;
  for (const DeviceUsage& one : setup.usage) {
    if (settings.device.empty() || settings.device == one.device) most = std::max(most, most_of(one));
  }
  return most;
}

// The value of GPUMEM_LIMIT, if it is set.
Result<std::optional<Bytes>> outer_limit() {
  const char* text = std::getenv("GPUMEM_LIMIT");
  if (text == nullptr || *text == '\0') return std::optional<Bytes>();
  const auto limit = parse_bytes(text);
  if (!limit) return limit.error().in("GPUMEM_LIMIT");
  return std::optional(*limit);
}

constexpr Bytes kLeastLimit = mebibytes(2);  // as devices allocate

// Refuses a limit with which each process of the command would fail at its first call.
Result<void> check_limit(const RunOptions& options, const Result<std::optional<Bytes>>& outer) {
  if (!options.limit && !outer) return outer.error();
  const char* const whose = options.limit ? "--limit" : "GPUMEM_LIMIT";
  const std::optional<Bytes> limit = options.limit ? options.limit->of(kLeastLimit) : *outer;
  if (!limit || *limit >= kLeastLimit || (options.limit && is_percentage(*options.limit))) return {};
  return Error{Code::kInvalidArgument, std::string(whose) + ": " + to_string(*limit) + " is less than " +
                                           to_string(kLeastLimit) + ", the least that can be borrowed"};
}

// Refuses a GPUMEM_WAIT with which each process of the command would fail at its first call.
Result<void> check_wait(const ShimSettings& settings) {
  const char* text = std::getenv("GPUMEM_WAIT");
  if (settings.wait || text == nullptr || *text == '\0') return {};
  const auto wait = parse_duration(text);
  return wait ? Result<void>() : wait.error().in("GPUMEM_WAIT");
}

// Sets the limit of each process. Of `gpumem run` inside another one, or of a limit that the environment
// sets, the smaller one holds.
void set_limit(const Setup& setup, const std::optional<Bytes>& outer, RunOptions& options,
               Progress& progress) {
  if (!options.limit) return;
  const Bytes most = most_of(setup, options.settings);
  const Bytes limit = std::max(options.limit->of(most), kLeastLimit);
  const std::string said = "--limit " + options.limit->text();
  options.settings.limit = limit;
  if (outer && !outer->is_zero() && *outer < limit) {
    progress.say(said + " is more than GPUMEM_LIMIT allows: " + to_string(*outer) + " hold");
    options.settings.limit = *outer;
    options.limit = Amount::absolute(*outer);
  } else if (limit > most) {
    progress.say(said + ": the limit is " + to_string(most) + ", which is all that the " +
                 (setup.is_nested() ? "job" : "tenant") + " may have");
  }
}

// The command's job. Inside another one, the command is in that.
Result<void> begin_job(Setup& setup, RunOptions& options) {
  if (setup.is_nested()) return {};
  constexpr Bytes kWholeInPoints{10'000};
  JobOptions job{.label = options.settings.name};
  if (job.label.empty()) {
    const std::string name = std::filesystem::path(options.words.front()).filename().string();
    job.label = to_printable(name.substr(0, kLabelBytes));
  }
  if (options.limit && is_percentage(*options.limit))
    job.limit_points = options.limit->of(kWholeInPoints).count;
  else if (options.limit)
    job.limit = *options.settings.limit;
  const auto begun = setup.session.begin_job(job);
  if (!begun) return begun.error();
  options.settings.job = *begun;
  return {};
}

// Answers the signal that has ended the waiting.
Result<std::optional<int>> reserve_limit(Setup& setup, const RunOptions& options, const Signals& signals,
                                         Progress& progress) {
  const ShimSettings& settings = options.settings;
  if (!options.limit || !settings.wait) return std::optional<int>();
  if (setup.is_nested()) {
    progress.say("nothing is reserved for --limit " + options.limit->text() +
                 ": the command is in the job of the gpumem run around it");
    return std::optional<int>();
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const auto device = settings.device.empty() ? first_visible(setup.lent, visible == nullptr ? "" : visible)
                                              : Result<std::string>(settings.device);
  if (!device) return device.error();
  const auto usage = std::ranges::find(setup.usage, *device, &DeviceUsage::device);
  const Bytes most = most_of(*usage);
  const Bytes bytes =
      std::max(std::min(options.limit->of(most), most).rounded_down(kLeastLimit), kLeastLimit);
  return reserve_for_job(setup.session, {settings.runtime_folder, *device, bytes, *settings.wait}, signals,
                         progress);
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

std::string account_text(const JobAccount& account) {
  if (account.peak.is_zero() && account.denied == 0) return "no process of the command has borrowed memory";
  std::string text = "peak " + to_string(account.peak) + ", waited " + span_text(account.waited);
  if (account.denied == 0) return text + ", nothing denied";
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

Result<int, CommandError> run_brokered(RunOptions& options, Setup& setup, const Signals& signals,
                                       Progress& progress) {
  options.settings.driver_folder = setup.driver_folder;
  options.settings.shim_folder = setup.shim_folder;
  auto ended = run_to_its_end({options.words, with_shim(own_environment(), options.settings)}, signals);
  if (ended && !setup.is_nested()) tell_account(setup.session, progress);
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
  if (auto possible = check_limit(options, outer); !possible) return refuse(progress, possible.error());
  if (auto possible = check_wait(options.settings); !possible) return refuse(progress, possible.error());
  AnswerInTime<Setup> asked([options] { return find_setup(options); }, signals);
  Result<Setup>& setup = asked.answer();
  if (!setup) {
    const int status = run_without(options, setup.error(), signals, progress);
    if (asked.is_stuck()) std::_Exit(status);
    return status;
  }
  if (auto chosen = choose_device(*setup, options); !chosen) return refuse(progress, chosen.error());
  set_limit(*setup, outer ? *outer : std::nullopt, options, progress);
  if (auto begun = begin_job(*setup, options); !begun)
    return run_without(options, begun.error(), signals, progress);
  const auto ended_by = reserve_limit(*setup, options, signals, progress);
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

void add_limit(CLI::App& run, std::optional<Amount>& limit) {
  run.add_option_function<std::string>(
         "--limit",
         [&limit](const std::string& text) {
           const auto read = parse_amount(text);
           if (!read) throw CLI::ValidationError("--limit", read.error().message);
           if (read->kind() == Amount::Kind::kAllBut)
             throw CLI::ValidationError("--limit", "'" + text + "' is neither bytes nor a percentage");
           if (read->of(Bytes{10'000}).is_zero())
             throw CLI::ValidationError("--limit", "0 bytes are of no use");
           limit = *read;
         },
         "The most that all its processes together can hold: 8GiB, 50% [the tenant's]")
      ->type_name("BYTES|PERCENT");
}

}  // namespace

void add_run_command(CLI::App& app, const std::string& runtime_dir, const SplitLine& line, int& status) {
  const auto arguments = std::make_shared<RunArguments>();  // lives as long as the callback
  ShimSettings& settings = arguments->options.settings;
  CLI::App* run = app.add_subcommand(
      "run", "Run an unmodified program with borrowed memory (without a command: the shell)");
  take_command(*run, arguments->runtime_dir);
  run->footer(kFooter);
  add_limit(*run, arguments->options.limit);
  run->add_option("--device", arguments->options.device,
                  "Only this device: UUID, or its place in `gpumem status`")
      ->type_name("DEVICE");
  add_time(
      *run, "--wait", [&settings](std::chrono::milliseconds wait) { settings.wait = wait; },
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
    options.settings.runtime_folder = std::filesystem::absolute(client::runtime_folder(named));
    options.settings.framework_settings = !arguments->plain_frameworks;
    status = run_program(options);
  });
}

}  // namespace gpumem::cli
