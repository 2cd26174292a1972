#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "base/text/number.h"
#include "client/cli/check/check.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/history.h"
#include "client/cli/commands/usage.h"
#include "client/cli/explain/explain.h"
#include "client/cli/run/program/command.h"
#include "client/cli/run/program/command_line.h"
#include "client/cli/system/system.h"
#include "client/cli/top/top.h"
#include "client/cli/views/text.h"
#include "client/cli/web/web.h"
#include "client/process/runtime_folder.h"
#include "cuda/library.h"

namespace gpumem::cli {
namespace {

constexpr int kUsageError = 2;

constexpr const char* kFooter =
    "Exit status: 0 done; 1 failed, or the answer is no; 2 wrong usage; 3 no broker.\n"
    "Environment: GPUMEM_RUNTIME_DIR (the broker's runtime folder), GPUMEM_DRIVER_DIR (the folder of\n"
    "libcuda.so.1), GPUMEM_HISTORY_SOCKET (gpumem-history's socket, for `account` and `events`),\n"
    "COLUMNS (the width of tables), NO_COLOR.";

/// What the command line says.
struct Arguments {
  std::string runtime_dir;
  TableFlags flags;
  SessionsChoice sessions;
  bool no_allocate = false;
  std::optional<pid_t> program;
  bool now = false;
  bool csv = false;
  HistoryChoice history;
  bool no_follow = false;
  std::string since, until;
  std::string tenant;
  std::string subject;
  std::optional<double> watch_seconds;
};

int run_check(const Arguments& arguments) {
  if (arguments.program) {
    const auto report = check_program(*arguments.program, client::runtime_folder(arguments.runtime_dir));
    std::cout << (arguments.flags.json ? json_text(program_json(report)) : findings_text(report.findings));
    return all_well(report.findings) ? 0 : 1;
  }
  const auto findings = run_checks({client::runtime_folder(arguments.runtime_dir), !arguments.no_allocate});
  std::cout << (arguments.flags.json ? json_text(findings_json(findings)) : findings_text(findings));
  return all_well(findings) ? 0 : 1;
}

int run_listing(const Listing& listing, const Arguments& arguments) {
  check_choice(arguments.history);
  if (arguments.history.is_made())
    return run_history(
        {client::runtime_folder(arguments.runtime_dir), arguments.history, arguments.flags, arguments.csv});
  const Style style{arguments.flags.json, arguments.flags.is_long, arguments.now, arguments.sessions,
                    arguments.csv};
  return run_listing(listing,
                     {client::runtime_folder(arguments.runtime_dir), style, arguments.watch_seconds});
}

std::string refuse_no_time(const std::string& text) {
  constexpr double kMost = 366.0 * 24 * 3600;
  double seconds = 0;
  const bool is_number = CLI::detail::lexical_cast(text, seconds);
  if (is_number && seconds > 0 && seconds <= kMost) return {};
  return "'" + text +
         "': " + (seconds > kMost ? "a year at most" : "a number of more than 0 seconds is needed");
}

void add_watch(CLI::App& command, Arguments& arguments) {
  command.add_option("--watch", arguments.watch_seconds, "Show again every SECONDS, until interrupted")
      ->check(refuse_no_time)
      ->type_name("SECONDS");
}

void add_sessions_choice(CLI::App& command, SessionsChoice& choice) {
  command
      .add_option_function<std::string>(
          "--user",
          [&choice](const std::string& text) {
            choice.user = find_user(text);
            if (!choice.user) throw CLI::ValidationError("--user", "there is no user '" + text + "'");
          },
          "Only of this user: a name or a number")
      ->type_name("USER");
  command.add_option("--sort", choice.sort, "By amount or age, the largest first, or by user")
      ->check(CLI::IsMember(std::vector<std::string>(kSessionKeys.begin(), kSessionKeys.end())))
      ->type_name("KEY");
  command.add_flag("--total", choice.total, "With sums for each device");
}

void add_why(CLI::App& app, Arguments& arguments, int& status) {
  CLI::App* command = app.add_subcommand("why", "Say how a tenant stands and what its requests wait for");
  command
      ->add_option("SESSION|TENANT", arguments.subject,
                   "The number of a session, or the name of a tenant or a user")
      ->required()
      ->check(refuse_unprintable);
  add_table_flags(*command, arguments.flags);
  add_watch(*command, arguments);
  command->callback([&] {
    status = run_why({client::runtime_folder(arguments.runtime_dir), arguments.subject, arguments.flags,
                      arguments.watch_seconds});
  });
}

void add_events(CLI::App& app, Arguments& arguments, int& status) {
  CLI::App* command = app.add_subcommand("events", "Show what happens, as it happens, until interrupted");
  add_instant(*command, "--since", arguments.since,
              "Begin with what happened since then (yesterday, monday, 2026-11-01, 10m, RFC 3339)");
  add_instant(*command, "--until", arguments.until, "Show what happened before that, and end");
  command->add_option("--tenant", arguments.tenant, "Only of this tenant and of what belongs to it")
      ->check(refuse_unprintable)
      ->type_name("TENANT");
  command->add_flag("--no-follow", arguments.no_follow, "Show what is kept, and end");
  add_table_flags(*command, arguments.flags);
  command->callback([&] {
    check_span(arguments.since, arguments.until);
    status = run_events({client::runtime_folder(arguments.runtime_dir), arguments.since, arguments.until,
                         arguments.tenant, !arguments.no_follow, arguments.flags});
  });
}

void add_check(CLI::App& app, Arguments& arguments, int& status) {
  CLI::App* check =
      app.add_subcommand("check", "Check that this user can borrow memory here, and say how to mend it");
  add_json_flag(*check, arguments.flags.json);
  check->add_flag("--no-allocate", arguments.no_allocate, "Do not borrow an extent for the test");
  check
      ->add_option("--program", arguments.program,
                   "Look at a running program instead: whether it borrows, and what bypasses the broker")
      ->check([](const std::string& text) {
        return whole_number<pid_t>(text).value_or(0) > 0 ? std::string()
                                                         : "'" + text + "' is not the number of a process";
      })
      ->type_name("PID");
  check->callback([&] { status = run_check(arguments); });
}

void add_commands(CLI::App& app, Arguments& arguments, const SplitLine& line, int& status) {
  for (const Listing& listing : listings()) {
    CLI::App* command = app.add_subcommand(listing.name, listing.about);
    add_table_flags(*command, arguments.flags);
    if (listing.has_history) add_history_options(*command, arguments.history);
    if (listing.has_sessions) add_sessions_choice(*command, arguments.sessions);
    if (listing.has_csv)
      command->add_flag("--csv", arguments.csv, "Print comma-separated values")->excludes("--json");
    if (listing.watchable) add_watch(*command, arguments);
    if (listing.renewable) command->add_flag("--now", arguments.now, "Have the broker ask the driver first");
    command->callback([&] { status = run_listing(listing, arguments); });
  }
  add_run_command(app, arguments.runtime_dir, line, status);
  add_reserve_command(app, arguments.runtime_dir, line, status);
  add_job_command(app, arguments.runtime_dir, status);
  add_region_commands(app, arguments.runtime_dir, status);
  add_quota_command(app, arguments.runtime_dir, status);
  add_claims_command(app, arguments.runtime_dir, status);
  add_request_commands(app, arguments.runtime_dir, status);
  add_why(app, arguments, status);
  add_events(app, arguments, status);
  add_explain_command(app, arguments.runtime_dir, status);
  add_check(app, arguments, status);
  add_system_command(app, arguments.runtime_dir, status);
  add_top_command(app, arguments.runtime_dir, status);
  add_web_command(app, arguments.runtime_dir, status);
}

// Help that was asked for, or what is wrong. Answers the exit status.
int explain_usage(const CLI::App& app, const CLI::ParseError& error) {
  if (const std::string text = unknown_command(app, error); !text.empty()) {
    std::cerr << text;
    return kUsageError;
  }
  if (app.exit(error) == 0) return 0;
  return runs_a_command(app) ? kOwnFailure : kUsageError;
}

// Says so if not.
bool all_is_written() {
  if (std::cout << std::flush) return true;
  std::cerr << "gpumem: cannot write to standard output\n";
  return false;
}

int run(int argc, char** argv) {
  CLI::App app{"Shows what the gpumem broker lends to whom, and checks that this machine is set up.",
               "gpumem"};
  Arguments arguments;
  SplitLine line = split_line(argc, argv);
  int status = 0;
  app.add_option("--runtime-dir", arguments.runtime_dir, "Folder of the broker's sockets [/run/gpumemd]")
      ->type_name("DIR");
  app.set_version_flag("--version", "gpumem " GPUMEM_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // --runtime-dir is understood after the command as well
  app.footer(kFooter);
  add_commands(app, arguments, line, status);
  if (argc > 1 && std::string_view(argv[1]) == "__complete") {
    std::cout << completions(app, {argv + 2, argv + argc});
    return all_is_written() ? 0 : 1;
  }
  move_behind_command(app, line.words);
  try {
    app.parse(static_cast<int>(line.words.size()), line.words.data());
  } catch (const CLI::ParseError& error) {
    status = explain_usage(app, error);
  }
  return all_is_written() || status != 0 ? status : 1;
}

}  // namespace
}  // namespace gpumem::cli

int main(int argc, char** argv) {
  // A standard stream that is closed would become whatever is opened next, and be written to.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) (void)!::open("/dev/null", O_RDONLY | O_CLOEXEC);
  gpumem::cuda::Library::pass_by_drop_in();
  return gpumem::cli::run(argc, argv);
}
