#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "client/cli/check.h"
#include "client/cli/listings.h"
#include "client/runtime_folder.h"

namespace gpumem::cli {
namespace {

constexpr int kUsageError = 2;

constexpr const char* kFooter =
    "Exit status: 0 done; 1 failed, or the answer is no; 2 wrong usage; 3 no broker.\n"
    "Environment: GPUMEM_RUNTIME_DIR (the broker's runtime folder), GPUMEM_DRIVER_DIR (the folder of\n"
    "libcuda.so.1, for `check`).";

/// What the command line says.
struct Arguments {
  std::string runtime_dir;
  bool json = false;
  bool no_allocate = false;
  std::optional<double> watch_seconds;
};

int run_check(const Arguments& arguments) {
  const auto findings = run_checks({client::runtime_folder(arguments.runtime_dir), !arguments.no_allocate});
  std::cout << (arguments.json ? json_text(findings_json(findings)) : findings_text(findings));
  return all_well(findings) ? 0 : 1;
}

int run_listing(const Listing& listing, const Arguments& arguments) {
  const Style style{arguments.json, ::isatty(STDOUT_FILENO) == 1};
  return run_listing(listing,
                     {client::runtime_folder(arguments.runtime_dir), style, arguments.watch_seconds});
}

void add_json(CLI::App& command, Arguments& arguments) {
  command.add_flag("--json", arguments.json, "Print JSON: stable keys, sizes in bytes");
}

void add_commands(CLI::App& app, Arguments& arguments, int& status) {
  for (const Listing& listing : listings()) {
    CLI::App* command = app.add_subcommand(listing.name, listing.about);
    add_json(*command, arguments);
    if (listing.watchable) {
      command->add_option("--watch", arguments.watch_seconds, "Show again every SECONDS, until interrupted")
          ->check(CLI::PositiveNumber)
          ->type_name("SECONDS");
    }
    command->callback([&] { status = run_listing(listing, arguments); });
  }
  CLI::App* check =
      app.add_subcommand("check", "Check that this user can borrow memory here, and say how to mend it");
  add_json(*check, arguments);
  check->add_flag("--no-allocate", arguments.no_allocate, "Do not borrow an extent for the test");
  check->callback([&] { status = run_check(arguments); });
}

int run(int argc, char** argv) {
  CLI::App app{"Shows what the gpumem broker lends to whom, and checks that this machine is set up.",
               "gpumem"};
  Arguments arguments;
  int status = 0;
  app.add_option("--runtime-dir", arguments.runtime_dir, "Folder of the broker's sockets [/run/gpumemd]")
      ->type_name("DIR");
  app.set_version_flag("--version", "gpumem " GPUMEM_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // --runtime-dir is understood after the command as well
  app.footer(kFooter);
  add_commands(app, arguments, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  return status;
}

}  // namespace
}  // namespace gpumem::cli

int main(int argc, char** argv) { return gpumem::cli::run(argc, argv); }
