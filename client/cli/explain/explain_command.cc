#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "base/system/small_file.h"
#include "base/text/number.h"
#include "client/cli/check/check.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/usage.h"
#include "client/cli/explain/explain.h"
#include "client/cli/monitor/monitor.h"
#include "client/process/runtime_folder.h"

namespace gpumem::cli {
namespace {

constexpr int kMostLooks = 3;

struct Options {
  std::filesystem::path runtime_folder;
  std::string subject;
  TableFlags flags;
};

/// Ledgers before and after a look at the driver.
struct Figures {
  Ledger before;
  v1::ReconcileResponse look;
  Ledger after;
  int looks = 0;
  std::vector<Account> accounts;  // of the wanted devices
};

Result<Ledger> read_ledger(const Monitor& monitor) {
  auto status = monitor.status();
  if (!status) return status.error();
  auto tenants = monitor.tenants();
  if (!tenants) return tenants.error();
  auto sessions = monitor.sessions();
  if (!sessions) return sessions.error();
  return Ledger{std::move(*status), std::move(*tenants), std::move(*sessions)};
}

// Looks again if something moved meanwhile. `device`  empty: all.
Result<Figures> read_figures(const Monitor& monitor, const std::string& device) {
  Figures figures;
  for (bool is_settled = false; !is_settled && figures.looks < kMostLooks;) {
    auto before = read_ledger(monitor);
    if (!before) return before.error();
    auto look = monitor.reconcile(true);
    if (!look) return look.error();
    auto after = read_ledger(monitor);
    if (!after) return after.error();
    if (auto host = look_at_host(*after, read_small_file("/proc/meminfo").value_or("")))
      *look->add_devices() = std::move(*host);
    figures = {std::move(*before), std::move(*look), std::move(*after), figures.looks + 1, {}};
    for (const v1::Reconciliation& one : figures.look.devices())
      if (device.empty() || one.device() == device)
        figures.accounts.push_back(account_of(figures.before, one, figures.after));
    is_settled = std::ranges::all_of(figures.accounts, &Account::is_settled);
  }
  return figures;
}

Result<std::string> explain_devices(const Monitor& monitor, const std::string& device,
                                    const TableFlags& flags) {
  const auto figures = read_figures(monitor, device);
  if (!figures) return figures.error();
  if (flags.json) {
    Json devices = Json::array();
    for (const Account& one : figures->accounts) devices.push_back(account_json(one));
    return json_text({{"looks", figures->looks}, {"devices", std::move(devices)}});
  }
  const v1::GetStatusResponse& status = figures->after.status;
  std::string text;
  for (const Account& one : figures->accounts)
    text += (text.empty() ? "" : "\n") + account_text(one, status, figures->looks,
                                                      std::chrono::system_clock::now(),
                                                      layout_for(status, flags.is_long));
  return text.empty() ? "no devices\n" : text;
}

std::optional<std::int64_t> number_in(std::string_view text) {
  const auto number = whole_number<std::int64_t>(text);
  return number && *number >= 0 ? number : std::nullopt;
}

Error no_such(const std::string& subject) {
  return {Code::kNotFound, "there is no device, process or job " + subject +
                               "; see `gpumem status`, `gpumem ps` and `gpumem job list`"};
}

std::string name_of(pid_t pid) {
  std::string name = read_proc_file(pid, "comm").value_or("");
  if (name.ends_with('\n')) name.pop_back();
  return name;
}

// Fills in the processes. A process that the broker does not know is one of this PID namespace.
Result<void> find_members(Program& program, const Figures& figures) {
  program.members = members_of(program.subject, figures.after.sessions, figures.look);
  const bool is_unknown = program.members.empty() && program.subject.job == 0;
  if (is_unknown) program.members.push_back({.pid = program.subject.pid});
  for (Member& one : program.members) {
    const auto status = one.pid == 0 ? Result<std::string>(std::string())
                                     : read_proc_file(static_cast<pid_t>(one.pid), "status");
    if (is_unknown && !status) return no_such(std::to_string(one.pid));
    if (status) one.host = host_memory_in(*status, one.command, one.uid);
    if (is_unknown) one.command = name_of(static_cast<pid_t>(one.pid));
  }
  return {};
}

Result<std::string> explain_program(const Monitor& monitor, const Subject& subject, const TableFlags& flags) {
  const auto figures = read_figures(monitor, "");
  if (!figures) return figures.error();
  const auto jobs = monitor.jobs();
  if (!jobs) return jobs.error();
  Program program{.subject = subject,
                  .members = {},
                  .uses = {},
                  .accounts = figures->accounts,
                  .status = figures->after.status,
                  .job = {}};
  if (const auto* job = find_job(*jobs, subject.job)) program.job = *job;
  if (auto found = find_members(program, *figures); !found) return found.error();
  program.uses = uses_of(subject, program.members, figures->after, *jobs, figures->look);
  return flags.json ? json_text(program_json(program))
                    : program_text(program, layout_for(program.status, flags.is_long));
}

// The number behind the prefix; nothing: `text` is none.
std::optional<std::int64_t> number_behind(std::string_view prefix, std::string_view text) {
  return text.starts_with(prefix) ? number_in(text.substr(prefix.size())) : std::nullopt;
}

Result<Named> named_by_number(const Monitor& monitor, const v1::GetStatusResponse& status,
                              std::int64_t number) {
  const auto jobs = monitor.jobs();
  if (!jobs) return jobs.error();
  const auto sessions = monitor.sessions();
  if (!sessions) return sessions.error();
  return named_by(number, status, *jobs, *sessions);
}

Result<Named> named_by_text(const Monitor& monitor, const std::string& text) {
  if (const auto pid = number_behind(kPidPrefix, text); pid && *pid > 0) return Named(Subject{.pid = *pid});
  if (const auto number = number_behind(kJobPrefix, text)) {
    const auto jobs = monitor.jobs();
    if (!jobs) return jobs.error();
    const auto id = static_cast<std::uint64_t>(*number);
    return find_job(*jobs, id) != nullptr ? Result<Named>(Subject{.job = id}) : no_such(text);
  }
  if (text.starts_with(kJobPrefix) || text.starts_with(kPidPrefix)) return no_such(text);
  const auto status = monitor.status();
  if (!status) return status.error();
  if (const auto number = number_in(text)) return named_by_number(monitor, *status, *number);
  auto device = find_device(*status, text);
  return device ? Result<Named>(std::move(*device)) : device.error();
}

Result<std::string> explain(const Options& options) {
  const auto monitor = Monitor::connect(options.runtime_folder);
  if (!monitor) return monitor.error();
  if (options.subject.empty()) return explain_devices(*monitor, "", options.flags);
  const auto named = named_by_text(*monitor, options.subject);
  if (!named) return named.error();
  const auto* const device = std::get_if<std::string>(&*named);
  return device != nullptr ? explain_devices(*monitor, *device, options.flags)
                           : explain_program(*monitor, std::get<Subject>(*named), options.flags);
}

}  // namespace

void add_explain_command(CLI::App& app, const std::string& runtime_dir, int& status) {
  CLI::App* command = app.add_subcommand("explain", "Account for every byte of a device, a process or a job");
  auto options = std::make_shared<Options>();
  command
      ->add_option("DEVICE|PID|JOB", options->subject,
                   "gpu0, a UUID or the beginning of one, host; pid:N; job:N; a number that is only one of "
                   "these; default: all devices")
      ->check(refuse_unprintable);
  add_table_flags(*command, options->flags);
  command->callback([&runtime_dir, &status, options] {
    options->runtime_folder = client::runtime_folder(runtime_dir);
    status = print(explain(*options));
  });
}

}  // namespace gpumem::cli
