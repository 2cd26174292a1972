#pragma once
#include <string>
#include <string_view>

#include "base/log.h"
#include "gpumem/result.h"

namespace CLI {
class App;
}

/// What the main programs of both drivers have in common.
namespace gpumem::kubernetes {

struct LogOptions {
  LogFormat format = LogFormat::kText;
  std::string level = "info";
};

void add_log_options(CLI::App& app, LogOptions& log);

/// Reads the command line; ends the process for --help, --version and usage errors (status 2).
/// `what_stays`  text for --help: the effects that remain when the program stops.
void parse(CLI::App& app, int argc, char** argv, std::string_view what_stays);

/// Logs why the program cannot run; its exit status.
int fail(const Error& error);

}  // namespace gpumem::kubernetes
