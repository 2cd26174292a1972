#include <CLI/CLI.hpp>
#include <iostream>

#include "client/cli/commands/usage.h"
#include "client/cli/system/system.h"
#include "client/cli/system/system_findings.h"
#include "client/cli/system/system_switch.h"
#include "client/cli/views/text.h"
#include "client/process/runtime_folder.h"

namespace gpumem::cli {
namespace {

int report(const char* command, const Result<void>& done, const char* words) {
  if (!done) {
    std::cerr << "gpumem system " << command << ": " << done.error().message << "\n";
    return 1;
  }
  std::cout << words << "\n";
  return 0;
}

}  // namespace

void add_system_command(CLI::App& app, const std::string& runtime_dir, int& status) {
  CLI::App* system = app.add_subcommand(
      "system", "Have every program borrow that starts on this machine, without gpumem run");
  system->require_subcommand(1);
  system->add_subcommand("enable", "Put the drop-in driver first in the loader's cache (root)")
      ->callback([&] {
        status = report("enable", enable_system(),
                        "enabled: programs that start from now on borrow. gpumem system status says which");
      });
  system->add_subcommand("disable", "Leave the driver to programs that start from now on (root)")
      ->callback([&] {
        status = report("disable", disable_system(),
                        "disabled: programs that run already keep the driver that they have");
      });
  CLI::App* shown = system->add_subcommand("status", "Say what the loader finds, and which programs borrow");
  auto json = std::make_shared<bool>(false);
  add_json_flag(*shown, *json);
  shown->callback([&, json] {
    const auto findings = system_findings(client::runtime_folder(runtime_dir));
    std::cout << (*json ? json_text(findings_json(findings)) : findings_text(findings));
    status = all_well(findings) ? 0 : 1;
  });
}

}  // namespace gpumem::cli
