// A library that says of itself that it is a shim, and would be a driver but for that. As some hooks do, it
// ends a process that asks for its version before it is started, and, told so, every process that starts it.
#include <cstdlib>

namespace {
bool was_started = false;
}

extern "C" {
const char* gpumem_shim_version() { return "another"; }
int cuInit(unsigned /*flags*/) {
  if (std::getenv("OTHER_SHIM_ENDS_PROGRAMS") != nullptr) std::abort();
  was_started = true;
  return 999;
}
int cuDriverGetVersion(int* version) {
  if (!was_started) std::abort();
  return *version = 0;
}
}
