// Order of work in and between streams. Work is held up by host functions, so nothing depends on time.
#include <cuda.h>

#include <atomic>
#include <functional>
#include <thread>

#include "tests/sim/work_support.h"

namespace gpumem::sim::test {
namespace {

class Streams : public SimTest {};

CUstream stream(unsigned flags = CU_STREAM_DEFAULT) {
  CUstream made = nullptr;
  EXPECT_CU(cuStreamCreate(&made, flags));
  return made;
}

TEST_IN_CONTEXT(Streams, PageableMemoryIsCopiedBeforeTheCallReturns) {
  CUdeviceptr memory = 0;
  ASSERT_CU(cuMemAlloc(&memory, 4));
  const CUstream queue = stream();
  int word = 5;
  EXPECT_CU(cuMemcpyHtoDAsync(memory, &word, 4, queue));
  word = 6;
  EXPECT_CU(cuMemcpyDtoHAsync(&word, memory, 4, queue));
  EXPECT_EQ(word, 5);
}

TEST_IN_CONTEXT(Streams, FreeWaitsForWorkThatMayUseTheMemory) {
  CUdeviceptr memory = 0;
  ASSERT_CU(cuMemAlloc(&memory, kPage));
  const CUstream queue = stream(CU_STREAM_NON_BLOCKING);
  Barrier slow;
  slow.put_in(queue);
  EXPECT_CU(cuMemsetD8Async(memory, 1, kPage, queue));
  std::atomic<bool> is_freed = false;
  std::thread frees([&] {
    EXPECT_CU(cuMemFree(memory));
    is_freed = true;
  });
  EXPECT_FALSE(is_freed);
  slow.open();
  frees.join();
  EXPECT_CU(cuStreamSynchronize(queue)) << "the fill came before the memory went";
}

TEST_IN_CONTEXT(Streams, WorkOnUnmappedMemoryFailsItsContextForGood) {
  const CUdeviceptr range = mapped(create(kPage), kPage);
  const CUstream queue = stream();
  Barrier slow;
  slow.put_in(queue);
  EXPECT_CU(cuMemsetD8Async(range, 1, kPage, queue));
  EXPECT_CU(cuMemUnmap(range, kPage));  // without a synchronisation: the program's fault
  slow.open();
  EXPECT_NE(cuStreamSynchronize(queue), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  EXPECT_NE(cuMemAlloc(&memory, 4), CUDA_SUCCESS);
}

/// `call` returns only after the barrier was opened, which is not before it has begun and had its chance.
void expect_to_wait(Barrier& barrier, const std::function<void()>& call) {
  CUcontext context = nullptr;
  EXPECT_CU(cuCtxGetCurrent(&context));
  std::atomic<bool> has_begun{false}, is_open{false};
  std::thread caller([&] {
    EXPECT_CU(cuCtxSetCurrent(context));
    has_begun = true;
    call();
    EXPECT_TRUE(is_open) << "there is work to be waited for";
  });
  while (!has_begun) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  is_open = true;
  barrier.open();
  caller.join();
}

TEST_IN_CONTEXT(Streams, WorkOfADestroyedStreamIsWaitedForAsBefore) {
  CUdeviceptr memory = 0;
  ASSERT_CU(cuMemAlloc(&memory, 4));
  EXPECT_CU(cuMemsetD32(memory, 1, 1));
  int* const words = pinned(2);
  words[0] = 5;
  Barrier barrier;
  CUstream queue = stream();
  barrier.put_in(queue);
  EXPECT_CU(cuMemcpyHtoDAsync(memory, &words[0], 4, queue));
  EXPECT_CU(cuStreamDestroy(queue));
  expect_to_wait(barrier, [] { EXPECT_CU(cuCtxSynchronize()); });
  queue = stream();
  barrier.put_in(queue);
  EXPECT_CU(cuMemsetD32Async(memory, 6, 1, queue));
  EXPECT_CU(cuStreamDestroy(queue));
  expect_to_wait(barrier, [&] { EXPECT_CU(cuMemcpyDtoH(&words[1], memory, 4)); });
  EXPECT_EQ(words[1], 6) << "the legacy stream comes after all blocking streams";
}

TEST_IN_CONTEXT(Streams, MemoryIsFreedAfterTheWorkOfADestroyedStream) {
  CUdeviceptr from = 0, to = 0;
  ASSERT_CU(cuMemAlloc(&from, kPage));
  ASSERT_CU(cuMemAlloc(&to, kPage));
  int* const words = pinned(2);
  Barrier barrier;
  CUstream queue = stream(CU_STREAM_NON_BLOCKING);
  barrier.put_in(queue);
  EXPECT_CU(cuMemcpyDtoDAsync(to, from, kPage, queue));
  EXPECT_CU(cuStreamDestroy(queue));
  expect_to_wait(barrier, [&] { EXPECT_CU(cuMemFree(from)); });
  queue = stream(CU_STREAM_NON_BLOCKING);
  barrier.put_in(queue);
  EXPECT_CU(cuMemcpyHtoDAsync(to, words, 4, queue));
  EXPECT_CU(cuStreamDestroy(queue));
  expect_to_wait(barrier, [&] { EXPECT_CU(cuMemFreeHost(words)); });
  EXPECT_CU(cuCtxSynchronize());
}

}  // namespace
}  // namespace gpumem::sim::test
