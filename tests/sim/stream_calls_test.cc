// What streams tell of themselves, callbacks, and events recorded with flags.
#include <cuda.h>

#include <atomic>
#include <thread>

#include "tests/sim/work_support.h"

namespace gpumem::sim::test {
namespace {

class StreamCalls : public SimTest {
 protected:
  StreamCalls() : SimTest("2x64MiB") {}
};

const auto kNoStream = reinterpret_cast<CUstream>(0x1234);

/// What a callback was called with, and the word that it read then.
struct Called {
  const int* word = nullptr;
  int seen = -1;
  CUstream stream = kNoStream;
  CUresult status = CUDA_ERROR_UNKNOWN;
  std::atomic<int> times = 0;

  static void CUDA_CB call(CUstream stream, CUresult status, void* data) {
    auto& self = *static_cast<Called*>(data);
    self.stream = stream;
    self.status = status;
    self.seen = *self.word;
    ++self.times;
  }
};

TEST_IN_CONTEXT(StreamCalls, CallbackComesAfterTheWorkBeforeItAndBeforeTheWorkAfterIt) {
  const CUstream queue = stream_apart();
  int* const word = pinned();
  CUdeviceptr memory = 0;
  ASSERT_CU(cuMemAlloc(&memory, 2 * sizeof(int)));
  ASSERT_CU(cuMemsetD32(memory, 1, 1));
  ASSERT_CU(cuMemsetD32(memory + sizeof(int), 2, 1));
  Barrier barrier;
  Called called{.word = word};
  barrier.put_in(queue);
  EXPECT_CU(cuMemcpyDtoHAsync(word, memory, sizeof(int), queue));
  EXPECT_CU(cuStreamAddCallback(queue, Called::call, &called, 0));
  EXPECT_CU(cuMemcpyDtoHAsync(word, memory + sizeof(int), sizeof(int), queue));
  EXPECT_EQ(called.times, 0);
  barrier.open();
  EXPECT_CU(cuStreamSynchronize(queue));
  EXPECT_EQ(called.times, 1);
  EXPECT_EQ(called.seen, 1);
  EXPECT_EQ(called.stream, queue);
  EXPECT_EQ(called.status, CUDA_SUCCESS);
  EXPECT_EQ(*word, 2);
}

TEST_IN_CONTEXT(StreamCalls, CallbackOfTheDefaultStreamIsToldTheStreamAsItWasNamed) {
  Called called{.word = pinned()};
  EXPECT_CU(cuStreamAddCallback(nullptr, Called::call, &called, 0));
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(called.times, 1);
  EXPECT_EQ(called.stream, nullptr);
}

/// The form of cuStreamGetCaptureInfo that a program of CUDA `version` is given.
template <class Function>
Function capture_info_of(int version) {
  void* found = nullptr;
#if CUDA_VERSION >= 12000
  EXPECT_CU(cuGetProcAddress("cuStreamGetCaptureInfo", &found, version, 0, nullptr));
#else
  EXPECT_CU(cuGetProcAddress("cuStreamGetCaptureInfo", &found, version, 0));
#endif
  return reinterpret_cast<Function>(found);
}

/// Holds one form of the call, with what it tells beyond the id left out, to its answers.
template <class... More>
void expect_no_capture(CUresult (*ask)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, More*...)) {
  ASSERT_NE(ask, nullptr);
  for (const CUstream stream : {CUstream{}, stream_apart(), CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    cuuint64_t id = 77;
    EXPECT_CU(ask(stream, &status, &id, static_cast<More*>(nullptr)...));
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(id, 77U) << "there is none to tell";
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_CU(ask(nullptr, &status, nullptr, static_cast<More*>(nullptr)...));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(ask(nullptr, nullptr, nullptr, static_cast<More*>(nullptr)...), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(kNoStream, &status, nullptr, static_cast<More*>(nullptr)...), CUDA_ERROR_INVALID_HANDLE);
}

TEST_IN_CONTEXT(StreamCalls, NoStreamIsBeingCapturedWhicheverFormAsks) {
  using First = CUresult (*)(CUstream, CUstreamCaptureStatus*, cuuint64_t*);
  using Second =
      CUresult (*)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**, size_t*);
  expect_no_capture(capture_info_of<First>(10010));
  expect_no_capture(capture_info_of<Second>(11030));
#if CUDA_VERSION >= 13000
  expect_no_capture(&cuStreamGetCaptureInfo);
#endif
}

#if CUDA_VERSION >= 12080
TEST_IN_PROCESS(StreamCalls, StreamIsOfTheDeviceOfItsContext) {
  enter_primary(1);
  const CUstream of_second = stream_apart();
  enter_primary(0);
  CUdevice device = -1;
  EXPECT_CU(cuStreamGetDevice(of_second, &device));
  EXPECT_EQ(device, 1);
  EXPECT_CU(cuStreamGetDevice(stream_apart(), &device));
  EXPECT_EQ(device, 0);
  enter_primary(1);
  for (const CUstream stream : {CUstream{}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    device = -1;
    EXPECT_CU(cuStreamGetDevice(stream, &device));
    EXPECT_EQ(device, 1) << "that of the current context";
  }
  EXPECT_EQ(cuStreamGetDevice(of_second, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamGetDevice(kNoStream, &device), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_CU(cuCtxSetCurrent(nullptr));
  EXPECT_EQ(cuStreamGetDevice(nullptr, &device), CUDA_ERROR_INVALID_CONTEXT);
}
#endif

#if CUDA_VERSION >= 12000
unsigned long long id_of(CUstream stream) {
  unsigned long long id = 0;
  EXPECT_CU(cuStreamGetId(stream, &id));
  return id;
}

TEST_IN_CONTEXT(StreamCalls, StreamsTellWhatTheyWereMadeWith) {
  int least = 9, greatest = 9, priority = 9;
  ASSERT_CU(cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_GE(least, greatest);
  CUstream stream = nullptr;
  ASSERT_CU(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest));
  EXPECT_CU(cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, greatest);
  unsigned flags = 0;
  EXPECT_CU(cuStreamGetFlags(stream, &flags));
  EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  CUcontext current = nullptr, of_stream = nullptr;
  ASSERT_CU(cuCtxGetCurrent(&current));
  EXPECT_CU(cuStreamGetCtx(stream, &of_stream));
  EXPECT_EQ(of_stream, current);
}

TEST_IN_CONTEXT(StreamCalls, IdsAreNeverTheSameTwice) {
  const CUstream first = stream_apart();
  const unsigned long long id = id_of(first);
  EXPECT_EQ(id_of(first), id);
  EXPECT_NE(id_of(stream_apart()), id);
  ASSERT_CU(cuStreamDestroy(first));
  const CUstream again = stream_apart();
  EXPECT_EQ(again, first) << "the handle of the one that was destroyed last";
  EXPECT_NE(id_of(again), id);
  EXPECT_EQ(id_of(nullptr), id_of(CU_STREAM_LEGACY));
  EXPECT_NE(id_of(CU_STREAM_LEGACY), id_of(CU_STREAM_PER_THREAD));
  const unsigned long long own = id_of(CU_STREAM_PER_THREAD);
  CUcontext context = nullptr;
  ASSERT_CU(cuCtxGetCurrent(&context));
  std::thread([&] {
    ASSERT_CU(cuCtxSetCurrent(context));
    EXPECT_NE(id_of(CU_STREAM_PER_THREAD), own);
    EXPECT_EQ(id_of(CU_STREAM_LEGACY), id_of(nullptr));
  }).join();
  unsigned long long none = 5;
  EXPECT_EQ(cuStreamGetId(kNoStream, &none), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(none, 5U);
  EXPECT_EQ(cuStreamGetId(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}
#endif

}  // namespace
}  // namespace gpumem::sim::test
