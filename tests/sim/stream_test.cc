// Order of work in and between streams. Work is held up by host functions, so nothing depends on time.
#include <cuda.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "tests/sim/work_support.h"

namespace gpumem::sim::test {
namespace {

class Streams : public SimTest {};

CUstream stream(unsigned flags = CU_STREAM_DEFAULT) {
  CUstream made = nullptr;
  EXPECT_CU(cuStreamCreate(&made, flags));
  return made;
}

CUevent event(unsigned flags = CU_EVENT_DEFAULT) {
  CUevent made = nullptr;
  EXPECT_CU(cuEventCreate(&made, flags));
  return made;
}

/// Two pinned words of host memory, so that copies need not be waited for.
int* pinned() {
  void* words = nullptr;
  EXPECT_CU(cuMemAllocHost(&words, 2 * sizeof(int)));
  return static_cast<int*>(words);
}

TEST_F(Streams, WorkIsDoneInOrderAndTheHostGoesOn) {
  in_process([] {
    enter_primary();
    CUdeviceptr memory = 0;
    ASSERT_CU(cuMemAlloc(&memory, 4));
    const CUstream queue = stream();
    int* const words = pinned();
    words[0] = 1;
    Barrier barrier;
    barrier.put_in(queue);
    EXPECT_CU(cuMemcpyHtoDAsync(memory, &words[0], 4, queue));
    EXPECT_CU(cuMemsetD32Async(memory, 2, 1, queue));
    EXPECT_CU(cuMemcpyDtoHAsync(&words[1], memory, 4, queue));
    EXPECT_EQ(cuStreamQuery(queue), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(words[1], 0);
    barrier.open();
    EXPECT_CU(cuStreamSynchronize(queue));
    EXPECT_CU(cuStreamQuery(queue));
    EXPECT_EQ(words[1], 2);
  });
}

TEST_F(Streams, PageableMemoryIsReadBeforeTheCallReturns) {
  in_process([] {
    enter_primary();
    CUdeviceptr memory = 0;
    ASSERT_CU(cuMemAlloc(&memory, 4));
    const CUstream queue = stream();
    int word = 5;
    EXPECT_CU(cuMemcpyHtoDAsync(memory, &word, 4, queue));
    word = 6;
    EXPECT_CU(cuMemcpyDtoHAsync(&word, memory, 4, queue));
    EXPECT_EQ(word, 5);
  });
}

TEST_F(Streams, EventIsDoneWhenTheWorkBeforeItIs) {
  in_process([] {
    enter_primary();
    const CUstream queue = stream();
    const CUevent start = event(), end = event();
    EXPECT_CU(cuEventQuery(end)) << "never recorded";
    Barrier barrier;
    EXPECT_CU(cuEventRecord(start, queue));
    barrier.put_in(queue);
    EXPECT_CU(cuEventRecord(end, queue));
    EXPECT_CU(cuEventSynchronize(start));
    EXPECT_EQ(cuEventQuery(end), CUDA_ERROR_NOT_READY);
    float milliseconds = -1;
    EXPECT_EQ(cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_NOT_READY);
    barrier.open();
    EXPECT_CU(cuEventSynchronize(end));
    EXPECT_CU(cuEventElapsedTime(&milliseconds, start, end));
    EXPECT_GE(milliseconds, 0);
  });
}

TEST_F(Streams, EventHoldsAnotherStreamBackEvenIfRecordedAnew) {
  in_process([] {
    enter_primary();
    const CUstream first = stream(CU_STREAM_NON_BLOCKING), second = stream(CU_STREAM_NON_BLOCKING);
    const CUevent passed = event(CU_EVENT_DISABLE_TIMING);
    Barrier barrier;
    barrier.put_in(first);
    EXPECT_CU(cuEventRecord(passed, first));
    EXPECT_CU(cuStreamWaitEvent(second, passed, 0));
    EXPECT_CU(cuEventRecord(passed, second));  // the wait was for the record before
    EXPECT_EQ(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
    EXPECT_CU(cuEventDestroy(passed));
    barrier.open();
    EXPECT_CU(cuStreamSynchronize(second));
    EXPECT_CU(cuStreamQuery(first));
  });
}

TEST_F(Streams, LegacyDefaultStreamWaitsForBlockingStreamsOnly) {
  in_process([] {
    enter_primary();
    const CUstream blocking = stream(), apart = stream(CU_STREAM_NON_BLOCKING);
    Barrier slow, apart_slow;
    slow.put_in(blocking);
    apart_slow.put_in(apart);
    EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    slow.open();
    EXPECT_CU(cuStreamSynchronize(CU_STREAM_LEGACY));
    EXPECT_CU(cuStreamQuery(blocking));
    EXPECT_EQ(cuStreamQuery(apart), CUDA_ERROR_NOT_READY);
    apart_slow.open();
    EXPECT_CU(cuCtxSynchronize());
    EXPECT_CU(cuStreamQuery(apart));
  });
}

TEST_F(Streams, BlockingStreamsWaitForTheLegacyDefaultStream) {
  in_process([] {
    enter_primary();
    const CUstream blocking = stream(), apart = stream(CU_STREAM_NON_BLOCKING);
    Barrier slow;
    slow.put_in(nullptr);
    const CUevent behind = event(), beside = event();
    EXPECT_CU(cuEventRecord(behind, blocking));
    EXPECT_CU(cuEventRecord(beside, apart));
    EXPECT_EQ(cuEventQuery(behind), CUDA_ERROR_NOT_READY);
    EXPECT_CU(cuEventQuery(beside));
    slow.open();
    EXPECT_CU(cuEventSynchronize(behind));
  });
}

TEST_F(Streams, EachThreadHasADefaultStreamOfItsOwn) {
  in_process([] {
    enter_primary();
    CUcontext context = nullptr;
    ASSERT_CU(cuCtxGetCurrent(&context));
    Barrier slow;
    slow.put_in(CU_STREAM_PER_THREAD);
    EXPECT_EQ(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
    std::thread other([context] {
      ASSERT_CU(cuCtxSetCurrent(context));
      EXPECT_CU(cuStreamQuery(CU_STREAM_PER_THREAD));
      EXPECT_EQ(cuStreamDestroy(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
    });
    other.join();
    slow.open();
    EXPECT_CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  });
}

TEST_F(Streams, FreeWaitsForWorkThatMayUseTheMemory) {
  in_process([] {
    enter_primary();
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
  });
}

TEST_F(Streams, WorkOnUnmappedMemoryFailsItsContextForGood) {
  in_process([] {
    enter_primary();
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
  });
}

TEST_F(Streams, HandlesThatAreNoneAreRefused) {
  in_process([] {
    enter_primary();
    const CUstream gone = stream();
    const CUevent past = event();
    EXPECT_CU(cuStreamDestroy(gone));
    EXPECT_CU(cuEventDestroy(past));
    const auto wild = reinterpret_cast<CUstream>(0x1234);
    const auto wild_event = reinterpret_cast<CUevent>(0x1234);
    CUdeviceptr memory = 0;
    ASSERT_CU(cuMemAlloc(&memory, 4));
    for (const CUstream bad : {gone, wild}) {
      EXPECT_EQ(cuStreamSynchronize(bad), CUDA_ERROR_INVALID_HANDLE);
      EXPECT_EQ(cuStreamQuery(bad), CUDA_ERROR_INVALID_HANDLE);
      EXPECT_EQ(cuStreamDestroy(bad), CUDA_ERROR_INVALID_HANDLE);
      EXPECT_EQ(cuMemsetD8Async(memory, 0, 4, bad), CUDA_ERROR_INVALID_HANDLE);
    }
    for (const CUevent bad : {past, wild_event, CUevent{}}) {
      EXPECT_EQ(cuEventQuery(bad), CUDA_ERROR_INVALID_HANDLE);
      EXPECT_EQ(cuEventRecord(bad, nullptr), CUDA_ERROR_INVALID_HANDLE);
      EXPECT_EQ(cuStreamWaitEvent(nullptr, bad, 0), CUDA_ERROR_INVALID_HANDLE);
      EXPECT_EQ(cuEventDestroy(bad), CUDA_ERROR_INVALID_HANDLE);
    }
    EXPECT_EQ(cuLaunchHostFunc(nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    CUevent never = nullptr;
    EXPECT_EQ(cuEventCreate(&never, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE) << "needs no timing";
  });
}

TEST_F(Streams, DestroyedStreamStillDoesItsWork) {
  in_process([] {
    enter_primary();
    const CUstream queue = stream(CU_STREAM_NON_BLOCKING);
    const CUevent end = event();
    Barrier slow;
    slow.put_in(queue);
    EXPECT_CU(cuEventRecord(end, queue));
    EXPECT_CU(cuStreamDestroy(queue));
    EXPECT_EQ(cuEventQuery(end), CUDA_ERROR_NOT_READY);
    slow.open();
    EXPECT_CU(cuEventSynchronize(end));
  });
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

TEST_F(Streams, WorkOfADestroyedStreamIsWaitedForAsBefore) {
  in_process([] {
    enter_primary();
    CUdeviceptr memory = 0;
    ASSERT_CU(cuMemAlloc(&memory, 4));
    EXPECT_CU(cuMemsetD32(memory, 1, 1));
    int* const words = pinned();
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
  });
}

TEST_F(Streams, MemoryIsFreedAfterTheWorkOfADestroyedStream) {
  in_process([] {
    enter_primary();
    CUdeviceptr from = 0, to = 0;
    ASSERT_CU(cuMemAlloc(&from, kPage));
    ASSERT_CU(cuMemAlloc(&to, kPage));
    int* const words = pinned();
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
  });
}

TEST_F(Streams, CopyWhoseMemoryIsGoneFailsItsContext) {
  in_process([] {
    enter_primary();
    const CUdeviceptr from = mapped(create(kPage), kPage);
    int* const words = pinned();
    Barrier barrier;
    const CUstream queue = stream();
    barrier.put_in(queue);
    EXPECT_CU(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(words), from, 4, queue));
    EXPECT_CU(cuMemUnmap(from, kPage));
    EXPECT_CU(cuMemAddressFree(from, kPage));
    barrier.open();
    EXPECT_NE(cuStreamSynchronize(queue), CUDA_SUCCESS);
    EXPECT_EQ(words[0], 0) << "an address that is unmapped is no host memory";
  });
}

TEST_F(Streams, TwoDimensionalCopiesKeepToTheirRows) {
  in_process([] {
    enter_primary();
    CUdeviceptr memory = 0;
    std::size_t pitch = 0;
    ASSERT_CU(cuMemAllocPitch(&memory, &pitch, 12, 3, 4));
    EXPECT_EQ(pitch, 512U);
    ASSERT_CU(cuMemsetD8(memory, 0xff, pitch * 3));
    const std::vector<unsigned char> in(4 * 3, 7);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = in.data();
    copy.srcPitch = 4;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = memory;
    copy.dstPitch = pitch;
    copy.dstXInBytes = 8;
    copy.WidthInBytes = 4;
    copy.Height = 3;
    EXPECT_CU(cuMemcpy2D(&copy));
    EXPECT_CU(cuMemsetD2D8(memory, pitch, 1, 4, 2));
    std::vector<unsigned char> out(pitch * 3);
    EXPECT_CU(cuMemcpyDtoH(out.data(), memory, out.size()));
    const unsigned char* const last = &out[2 * pitch];
    EXPECT_EQ(out[0], 1);
    EXPECT_EQ(out[4], 0xff);
    EXPECT_EQ(out[8], 7);
    EXPECT_EQ(out[12], 0xff);
    EXPECT_EQ(last[0], 0xff);
    EXPECT_EQ(last[11], 7);
    copy.dstPitch = 8;
    EXPECT_EQ(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE) << "rows overlap";
    copy.dstPitch = pitch;
    copy.Height = 1U << 20;
    EXPECT_EQ(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE) << "past the memory";
    EXPECT_EQ(cuMemcpy2D(nullptr), CUDA_ERROR_INVALID_VALUE);
  });
}

}  // namespace
}  // namespace gpumem::sim::test
