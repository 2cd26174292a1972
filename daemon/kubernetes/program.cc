#include "daemon/kubernetes/program.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>

namespace gpumem::kubernetes {

void add_log_options(CLI::App& app, LogOptions& log) {
  const std::map<std::string, LogFormat> formats{{"text", LogFormat::kText}, {"json", LogFormat::kJson}};
  app.add_option("--log-format", log.format, "text (for people) or json (one object a line)")
      ->transform(CLI::CheckedTransformer(formats));
  app.add_option("--log-level", log.level, "trace, debug, info, warning, error, critical or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "critical", "off"}))
      ->capture_default_str();
}

void parse(CLI::App& app, int argc, char** argv, std::string_view what_stays) {
  app.footer("It serves the kubelet until SIGTERM or SIGINT; " + std::string(what_stays) +
             ". Exit status: 0 stopped, 1 cannot run,\n2 wrong usage.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
}

int fail(const Error& error) {
  spdlog::critical("{}", error.message);
  return 1;
}

}  // namespace gpumem::kubernetes
