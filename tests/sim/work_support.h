#pragma once
// What tests of work on a device say in one word.
#include <cuda.h>

#include <algorithm>
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

/// The free memory of the current device, in bytes.
inline std::uint64_t memory_left() {
  size_t free = 0, total = 0;
  EXPECT_CU(cuMemGetInfo(&free, &total));
  return free;
}

/// `count` words of pinned host memory, all 0, so that copies need not be waited for.
inline int* pinned(std::size_t count = 1) {
  void* words = nullptr;
  EXPECT_CU(cuMemAllocHost(&words, count * sizeof(int)));
  std::fill_n(static_cast<int*>(words), count, 0);
  return static_cast<int*>(words);
}

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
