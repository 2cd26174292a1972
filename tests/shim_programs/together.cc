// Programs that share a device with others.
#include <string>

#include "tests/shim_programs/program.h"

namespace gpumem::shim_programs {

// hold MIB: takes so much, and frees it when the test says so.
TASK(hold) {
  start();
  CUdeviceptr at = 0;
  const std::uint64_t size = std::stoull(arguments[0]) * kMiB;
  OK(cuMemAlloc(&at, size));
  OK(cuMemsetD8(at, 1, 4096));
  tell_and_await_test();
  MUST(byte_at(at) == 1);
  OK(cuMemFree(at));
}

}  // namespace gpumem::shim_programs
