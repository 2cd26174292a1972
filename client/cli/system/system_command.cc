#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "base/system/system_mode.h"
#include "client/cli/check/check.h"
#include "client/cli/commands/usage.h"
#include "client/cli/system/system.h"
#include "client/cli/system/system_switch.h"
#include "client/cli/views/text.h"
#include "client/process/runtime_folder.h"
#include "proto/lane.h"

namespace gpumem::cli {
namespace {

using State = Finding::State;

std::string joined(const std::vector<std::string>& words, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < words.size() && i < most; ++i) text += (i == 0 ? "" : ", ") + words[i];
  return text + (words.size() > most ? ", ..." : "");
}

Finding find_library(const SystemLibrary& library) {
  constexpr std::size_t kMostNames = 8;
  Finding finding{library.file.substr(0, library.file.find('.')), State::kOk, {}, {}};
  if (library.real.empty()) {
    finding.state = State::kFail;
    finding.found = "the loader's cache has no " + library.file + " of NVIDIA's driver";
    finding.mend = "install the driver, then run ldconfig";
  } else if (library.drop_in.empty() || !library.problem.empty()) {
    finding.state = State::kFail;
    finding.found =
        library.drop_in.empty() ? "there is no drop-in driver for " + library.file : library.problem;
    finding.mend = library.drop_in.empty() ? "install the whole package gpumem" : "run ldconfig";
  } else if (!library.missing.empty()) {
    finding.state = State::kFail;
    finding.found = library.real.string() + " has functions that the drop-in driver lacks (" +
                    std::to_string(library.missing.size()) + "): " + joined(library.missing, kMostNames);
    finding.mend = is_system_enabled() ? "gpumem system disable, until a newer gpumem is installed"
                                       : "install a newer gpumem";
  } else if (is_system_enabled() && !library.is_drop_in_first()) {
    finding.state = State::kFail;
    finding.found = "the loader finds " + library.first.string() + " first";
    finding.mend = "gpumem system enable";
  } else {
    finding.found = "programs of 64 bits get " + library.first.string() +
                    (library.is_drop_in_first() ? ", which passes calls on to " + library.real.string() : "");
  }
  return finding;
}

Finding find_switch(const std::vector<SystemLibrary>& libraries) {
  if (!is_system_enabled() && std::ranges::any_of(libraries, &SystemLibrary::is_drop_in_first))
    return {"system_mode", State::kFail, "disabled, but the loader still finds the drop-in driver first",
            "gpumem system disable"};
  if (!is_system_enabled())
    return {"system_mode", State::kWarn, "disabled: only programs under gpumem run borrow",
            "gpumem system enable"};
  if (::access(system_mode::kOff, F_OK) == 0)
    return {"system_mode", State::kWarn,
            std::string("enabled, but ") + system_mode::kOff + " leaves all programs to the driver",
            std::string("rm ") + system_mode::kOff};
  return {"system_mode", State::kOk, "enabled", {}};
}

std::string group_name(gid_t gid) {
  const group* const found = ::getgrgid(gid);
  return found != nullptr ? found->gr_name : std::to_string(gid);
}

void find_served(const std::filesystem::path& runtime_folder, std::vector<Finding>& findings) {
  const auto rules = system_mode::Rules::read(runtime_folder);
  const std::filesystem::path lane = runtime_folder / kLaneSocketName;
  struct stat socket {};
  if (::stat(lane.c_str(), &socket) != 0) {
    findings.push_back({"served", State::kFail, "no program: there is no broker at " + lane.string(),
                        "systemctl enable --now gpumemd"});
  } else {
    const bool everybody = (socket.st_mode & S_IWOTH) != 0;
    findings.push_back({"served",
                        State::kOk,
                        "programs of users from uid " + std::to_string(rules.least_uid) + " on" +
                            (everybody ? "" : " in group " + group_name(socket.st_gid)) +
                            " that start from now on",
                        {}});
  }
  findings.push_back({"left_to_driver",
                      State::kOk,
                      "programs of other users, with seccomp, or with the rights of another user" +
                          (rules.except.empty() ? "" : "; by name: " + joined(rules.except, 100)),
                      {}});
}

/// Whether system mode is enabled, what the loader finds, and which programs are served.
std::vector<Finding> system_findings(const std::filesystem::path& runtime_folder) {
  const auto libraries = system_libraries();
  std::vector<Finding> findings{find_switch(libraries)};
  for (const SystemLibrary& library : libraries) findings.push_back(find_library(library));
  if (is_system_enabled()) find_served(runtime_folder, findings);
  return findings;
}

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
