#include "base/log.h"
#include "daemon/kubernetes/driver.h"
#include "daemon/kubernetes/options.h"
#include "daemon/kubernetes/program.h"
#include "daemon/kubernetes/stop_signals.h"

using gpumem::kubernetes::fail;

int main(int argc, char** argv) {
  gpumem::kubernetes::CommandLine line = gpumem::kubernetes::parse_command_line(argc, argv);
  if (auto started = gpumem::start_log(line.log.format, line.log.level); !started)
    return fail(started.error());
  const gpumem::kubernetes::StopSignals signals;
  auto server = gpumem::kubernetes::api_server_of(line);
  if (!server) return fail(server.error());
  line.driver.server = std::move(*server);
  auto driver = gpumem::kubernetes::Driver::start(line.driver);
  if (!driver) return fail(driver.error());
  signals.wait();
  spdlog::info("stopping; what is prepared stays");
  return 0;
}
