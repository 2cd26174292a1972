#include <CLI/CLI.hpp>
#include <memory>

#include "client/cli/run/run.h"
#include "client/runtime_folder.h"

namespace gpumem::cli {
namespace {

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
  add_span(
      *run, "--wait", settings.wait,
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
