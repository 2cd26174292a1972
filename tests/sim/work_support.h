#pragma once
// What tests of work on a device say in one word.
#include <cuda.h>

#include <semaphore>

#include "tests/sim/sim_fixture.h"

namespace gpumem::sim::test {

inline void enter_primary(int device = 0) {
  ASSERT_CU(cuInit(0));
  CUcontext context = nullptr;
  ASSERT_CU(cuDevicePrimaryCtxRetain(&context, device));
  ASSERT_CU(cuCtxSetCurrent(context));
}
/// As TEST_IN_PROCESS, in the primary context of the first device.
#define TEST_IN_CONTEXT(fixture, name) GPUMEM_TEST_IN_PROCESS(fixture, name, enter_primary())

/// A stream that comes before or after no other one.
inline CUstream stream_apart() {
  CUstream made = nullptr;
  EXPECT_CU(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
  return made;
}

/// Work that is not done before it is let through.
class Barrier {
 public:
  void put_in(CUstream stream) {
    EXPECT_CU(cuLaunchHostFunc(
        stream, [](void* self) { static_cast<Barrier*>(self)->open_.acquire(); }, this));
  }
  void open() { open_.release(); }

 private:
  std::counting_semaphore<> open_{0};
};

}  // namespace gpumem::sim::test
