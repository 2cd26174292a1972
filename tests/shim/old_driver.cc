// A libcuda.so.1 of CUDA 11.8 that has few calls. It declares them by itself: some have a signature of their
// own, since a trampoline must pass on any.
#include <cstring>

#include "tests/shim/old_driver.h"

extern "C" {

int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }

int cuDriverGetVersion(int* version) {
  *version = 11080;
  return 0;
}

int cuLaunchKernel(long a, long b, long c, long d, long e, long f, double p, double q, double r, double s,
                   double t, double u, double v, double w, long on_stack, PassedArguments* passed) {
  *passed = {{a, b, c, d, e, f, on_stack}, {p, q, r, s, t, u, v, w}};
  return 4711;
}

// Known to the look-up alone.
static int look_up_of_its_own(const char* symbol, void** found, int version, unsigned long long flags);

int cuGetProcAddress(const char* symbol, void** found, int version, unsigned long long flags) {
  if (version > 11080) return 1;
  if (std::strcmp(symbol, "cuGetProcAddress") == 0) {
    *found = reinterpret_cast<void*>(&look_up_of_its_own);
  } else if (std::strcmp(symbol, "cuLaunchKernel") == 0) {
    *found = reinterpret_cast<void*>(&cuLaunchKernel);
  } else {
    return 500;  // CUDA_ERROR_NOT_FOUND; *found is as before
  }
  return flags <= 2 ? 0 : 1;
}

static int look_up_of_its_own(const char* symbol, void** found, int version, unsigned long long flags) {
  return cuGetProcAddress(symbol, found, version, flags);
}
}
