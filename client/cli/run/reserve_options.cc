#include <CLI/CLI.hpp>
#include <memory>

#include "base/time_format.h"
#include "client/cli/run/reserve.h"
#include "client/runtime_folder.h"

namespace gpumem::cli {
namespace {

constexpr const char* kReserveFooter =
    "Without a command, the memory is reserved until this program is interrupted.\n"
    "Exit status: that of the command; 125 gpumem itself has failed, or there is no room; 126 the command\n"
    "cannot be executed; 127 there is no such command.";

constexpr std::chrono::hours kForever{24 * 366};

struct ReserveArguments {
  ReserveOptions options;
  std::optional<Bytes> bytes;
  std::string runtime_dir;
};

void add_wait(CLI::App& reserve, ReserveOptions& options) {
  reserve
      .add_option_function<std::vector<std::string>>(
          "--wait",
          [&options](const std::vector<std::string>& texts) {
            options.wait = kForever;
            if (texts.empty() || texts.front().empty() || texts.front() == "{}") return;
            const auto read = parse_duration(texts.front());
            if (!read) throw CLI::ValidationError("--wait", read.error().message);
            options.wait = *read;
          },
          "Wait for room, so long at most: 500ms, 90s, 10m; a number is seconds [until there is some]")
      ->expected(0, 1)
      ->type_name("[TIME]");
}

}  // namespace

void add_reserve_command(CLI::App& app, const std::string& runtime_dir, const SplitLine& line, int& status) {
  const auto arguments = std::make_shared<ReserveArguments>();  // lives as long as the callback
  ReserveOptions& options = arguments->options;
  CLI::App* reserve =
      app.add_subcommand("reserve", "Have memory charged while a program runs that takes it by itself");
  take_command(*reserve, arguments->runtime_dir);
  reserve->footer(kReserveFooter);
  add_bytes(*reserve, "BYTES", arguments->bytes, "How much: 9GiB")->required();
  reserve->add_option("--device", options.device, "Of this device: UUID, or its place in `gpumem status` [0]")
      ->type_name("DEVICE");
  add_wait(*reserve, options);
  reserve
      ->add_option(
          "--on-pressure", options.on_pressure,
          "Who lets go of memory when it is asked for: a shell command, or an http:// URL to POST to")
      ->type_name("COMMAND|URL");
  add_name(*reserve, options.name);
  reserve->callback([=, &runtime_dir, &line, &status] {
    ReserveOptions& given = arguments->options;
    const std::string& named = arguments->runtime_dir.empty() ? runtime_dir : arguments->runtime_dir;
    given.bytes = *arguments->bytes;
    given.words = command_words(*reserve, line);
    given.runtime_folder = std::filesystem::absolute(client::runtime_folder(named));
    status = reserve_memory(given);
  });
}

}  // namespace gpumem::cli
