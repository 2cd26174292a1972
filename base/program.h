#pragma once
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>
#include <string>

#include "base/log.h"

// The common parts of the command lines of the broker and of the drivers for Kubernetes.

namespace gpumem {

/// Adds --log-format and --log-level.
inline void add_log_options(CLI::App& app, LogOptions& log) {
  const std::map<std::string, LogFormat> formats{{"text", LogFormat::kText}, {"json", LogFormat::kJson}};
  app.add_option("--log-format", log.format, "text (for people) or json (one object a line)")
      ->transform(CLI::CheckedTransformer(formats));
  app.add_option("--log-level", log.level, "trace, debug, info, warning, error, critical or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "critical", "off"}))
      ->capture_default_str();
}

/// Reads the command line; ends the process for --help, --version and usage errors (status 2).
inline void parse_or_exit(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
}

/// Logs why the program cannot run; its exit status.
inline int fail(const Error& error) {
  spdlog::critical("{}", error.message);
  return 1;
}

}  // namespace gpumem
