#include "client/shim/memory/session/left_to_driver.h"

#include <sys/auxv.h>
#include <unistd.h>

#include "base/small_file.h"
#include "base/system_mode.h"
#include "client/process/runtime_folder.h"

namespace gpumem::shim {

bool is_left_to_driver() {
  if (::getauxval(AT_SECURE) != 0 || ::access(system_mode::kOff, F_OK) == 0) return true;
  const auto status = read_small_file("/proc/self/status");
  const auto process = status ? system_mode::ProcessFacts::in(*status) : std::nullopt;
  const std::filesystem::path runtime = client::runtime_folder("");
  return !process || system_mode::Rules::read(runtime).leave_to_driver(*process) ||
         !client::may_connect(runtime);
}

}  // namespace gpumem::shim
