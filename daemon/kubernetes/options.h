#pragma once
#include <string>

#include "daemon/kubernetes/driver.h"
#include "daemon/kubernetes/program.h"

namespace gpumem::kubernetes {

/// The command line of gpumem-dra.
struct CommandLine {
  Driver::Options driver;
  std::string api_server;  ///< empty: as pods find it
  std::string token_file;
  std::string ca_file;
  LogOptions log;
};

/// Reads the command line; ends the process for --help, --version and usage errors (status 2).
CommandLine parse_command_line(int argc, char** argv);

/// Where the API server is, by the command line or else by the environment of pods.
/// Errors  kInvalidArgument: no URL that can be used. kFailedPrecondition: no pod.
Result<ApiServer::Options> api_server_of(const CommandLine& line);

}  // namespace gpumem::kubernetes
