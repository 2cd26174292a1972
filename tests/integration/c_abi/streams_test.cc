// Memory stays ordered behind the work of the streams it was freed on, whatever becomes of those streams and
// of their threads. Work on the device is held up by gates, so that "not yet" is a fact.
#include <pthread.h>

#include <functional>
#include <future>
#include <thread>

#include "cuda/library.h"
#include "tests/integration/c_abi/broker.h"
#include "tests/support/host_gate.h"

namespace gpumem::test {
namespace {

/// DriverCalls that programs make and the library does not.
struct DriverCalls {
  decltype(&::cuDevicePrimaryCtxRetain) retain_context = nullptr;
  decltype(&::cuCtxSetCurrent) set_current = nullptr;
  decltype(&::cuCtxSynchronize) synchronize = nullptr;
  decltype(&::cuStreamCreate) create_stream = nullptr;
  decltype(&::cuStreamDestroy) destroy_stream = nullptr;
  decltype(&::cuStreamQuery) query = nullptr;
  decltype(&::cuLaunchHostFunc) launch = nullptr;
  decltype(&::cuMemsetD8Async) fill = nullptr;
  CUresult (*create_context)(CUcontext*, unsigned, CUdevice) = nullptr;
  decltype(&::cuCtxDestroy) destroy_context = nullptr;
  decltype(&::cuStreamBeginCapture) begin_capture = nullptr;
  decltype(&::cuStreamEndCapture) end_capture = nullptr;
  decltype(&::cuGraphDestroy) destroy_graph = nullptr;

  DriverCalls() {
    const auto library = cuda::Library::open(broker().driver_folder(), "libcuda.so.1");
    EXPECT_TRUE(library->bind(retain_context, "cuDevicePrimaryCtxRetain"));
    EXPECT_TRUE(library->bind(set_current, "cuCtxSetCurrent"));
    EXPECT_TRUE(library->bind(synchronize, "cuCtxSynchronize"));
    EXPECT_TRUE(library->bind(create_stream, "cuStreamCreate"));
    EXPECT_TRUE(library->bind(destroy_stream, "cuStreamDestroy_v2"));
    EXPECT_TRUE(library->bind(query, "cuStreamQuery"));
    EXPECT_TRUE(library->bind(launch, "cuLaunchHostFunc"));
    EXPECT_TRUE(library->bind(fill, "cuMemsetD8Async"));
    EXPECT_TRUE(library->bind(create_context, "cuCtxCreate_v2"));
    EXPECT_TRUE(library->bind(destroy_context, "cuCtxDestroy_v2"));
    EXPECT_TRUE(library->bind(begin_capture, "cuStreamBeginCapture_v2"));
    EXPECT_TRUE(library->bind(end_capture, "cuStreamEndCapture"));
    EXPECT_TRUE(library->bind(destroy_graph, "cuGraphDestroy"));
  }
};

const DriverCalls& driver_calls() {
  static const DriverCalls kDriverCalls;
  return kDriverCalls;
}

CUstream new_stream() {
  CUstream made = nullptr;
  EXPECT_EQ(driver_calls().create_stream(&made, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  return made;
}

/// Holds `stream` up until it is opened.
class Gate : public HostGate {
 public:
  explicit Gate(CUstream stream) {
    EXPECT_EQ(driver_calls().launch(stream, &wait, argument()), CUDA_SUCCESS);
  }
};

constexpr std::uint64_t kLimit = std::uint64_t{16} << 20;

class CStreams : public CAbiTest, public testing::WithParamInterface<std::uint64_t> {
 protected:
  CStreams() {
    gpumem_allocator_options options = GPUMEM_ALLOCATOR_OPTIONS_INIT;
    options.limit = kLimit;
    options.idle_ms = 3'600'000;
    allocator_ = open_allocator(options);
    CUcontext context = nullptr;
    EXPECT_EQ(driver_calls().retain_context(&context, 0), CUDA_SUCCESS);  // for good, as by frameworks
    context_ = context;
    enter();
  }
  void enter() const { EXPECT_EQ(driver_calls().set_current(context_), CUDA_SUCCESS); }

  gpumem_address allocate(std::uint64_t bytes, CUstream on) {
    gpumem_address address = 0;
    EXPECT_TRUE(ok(gpumem_allocate(allocator_, bytes, on, &address))) << bytes;
    return address;
  }
  void free(gpumem_address address, std::uint64_t bytes, CUstream on) {
    EXPECT_TRUE(ok(gpumem_deallocate(allocator_, address, bytes, on))) << bytes;
  }
  /// Blocks of `bytes` on `on` that take all there is.
  std::vector<gpumem_address> take_all(std::uint64_t bytes, CUstream on) {
    std::vector<gpumem_address> all;
    for (std::uint64_t taken = 0; taken < kLimit; taken += bytes) all.push_back(allocate(bytes, on));
    return all;
  }
  /// Whether memory that is had now, all of it, is behind the work that `gate` holds up.
  void expect_behind(HostGate& gate) {
    CUstream other = new_stream();
    const gpumem_address block = allocate(kLimit, other);
    EXPECT_EQ(driver_calls().query(other), CUDA_ERROR_NOT_READY)
        << "memory is reused before the work on it is done";
    gate.open();
    free(block, kLimit, other);
    EXPECT_TRUE(ok(gpumem_synchronize(allocator_, other)));
    EXPECT_EQ(driver_calls().destroy_stream(other), CUDA_SUCCESS);
  }

  gpumem_allocator* allocator_ = nullptr;
  CUcontext context_ = nullptr;
};

TEST_P(CStreams, FreedMemoryIsBehindTheWorkOfAStreamThatHasEnded) {
  const CUstream ended = new_stream();
  const auto blocks = take_all(GetParam(), ended);
  Gate gate(ended);
  for (const gpumem_address block : blocks) free(block, GetParam(), ended);
  EXPECT_EQ(driver_calls().destroy_stream(ended), CUDA_SUCCESS);
  expect_behind(gate);
}

TEST_P(CStreams, DefaultStreamThatIsWaitedForIsThatOfTheCallersContext) {
  EXPECT_TRUE(ok(gpumem_synchronize(allocator_, nullptr)));
  CUcontext other = nullptr;
  ASSERT_EQ(driver_calls().create_context(&other, 0, 0), CUDA_SUCCESS);
  Gate gate(nullptr);
  auto waited = std::async(std::launch::async, [&] {
    EXPECT_EQ(driver_calls().set_current(other), CUDA_SUCCESS);
    return gpumem_synchronize(allocator_, nullptr);
  });
  EXPECT_EQ(waited.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  gate.open();
  EXPECT_TRUE(ok(waited.get()));
  EXPECT_EQ(driver_calls().destroy_context(other), CUDA_SUCCESS);
  enter();
}

TEST_P(CStreams, FreedMemoryIsBehindTheWorkOfAThreadThatHasEnded) {
  std::optional<Gate> gate;
  std::thread([&] {
    enter();
    const auto blocks = take_all(GetParam(), CU_STREAM_PER_THREAD);
    gate.emplace(CU_STREAM_PER_THREAD);
    for (const gpumem_address block : blocks) free(block, GetParam(), CU_STREAM_PER_THREAD);
  }).join();
  expect_behind(*gate);
}

TEST_P(CStreams, ThreadThatIsAboutToEndFreesBehindItsWork) {
  using Last = std::function<void()>;
  free(allocate(256, nullptr), 256, nullptr);  // the library's destructor of threads comes first
  EXPECT_TRUE(ok(gpumem_allocator_trim(allocator_, GPUMEM_UNKNOWN_SIZE, nullptr)));
  pthread_key_t key{};
  ASSERT_EQ(
      ::pthread_key_create(&key, [](void* last) { (*std::unique_ptr<Last>(static_cast<Last*>(last)))(); }),
      0);
  std::optional<Gate> gate;
  std::thread([&] {
    enter();
    const auto blocks = take_all(GetParam(), CU_STREAM_PER_THREAD);
    gate.emplace(CU_STREAM_PER_THREAD);
    ::pthread_setspecific(key, new Last([this, blocks] {
                            for (const gpumem_address block : blocks)
                              free(block, GetParam(), CU_STREAM_PER_THREAD);
                          }));
  }).join();
  ::pthread_key_delete(key);
  expect_behind(*gate);
}

TEST_P(CStreams, BlockOfAThreadsStreamThatAnotherThreadFreesIsBehindTheWorkOfBoth) {
  std::vector<gpumem_address> blocks;
  std::optional<Gate> gate;
  std::promise<void> freed;
  std::promise<void> worked;
  std::thread owner([&] {
    enter();
    blocks = take_all(GetParam(), CU_STREAM_PER_THREAD);
    gate.emplace(CU_STREAM_PER_THREAD);
    worked.set_value();
    freed.get_future().wait();
  });
  worked.get_future().wait();
  for (const gpumem_address block : blocks) free(block, GetParam(), CU_STREAM_PER_THREAD);
  expect_behind(*gate);
  freed.set_value();
  owner.join();
}

TEST_P(CStreams, BlockThatAThreadWithoutAContextFreesIsBehindTheWorkOfItsRecordedStream) {
  const CUstream recorded = new_stream();
  const auto blocks = take_all(GetParam(), nullptr);
  for (const gpumem_address block : blocks)
    ASSERT_TRUE(ok(gpumem_record_stream(allocator_, block, recorded)));
  Gate gate(recorded);
  std::thread([&] {
    for (const gpumem_address block : blocks) free(block, GetParam(), nullptr);
  }).join();
  const CUstream other = new_stream();
  auto taking = std::async(std::launch::async, [&] {
    enter();
    return take_all(kLimit, other);
  });
  EXPECT_TRUE(eventually([&] {
    gpumem_statistics statistics = GPUMEM_STATISTICS_INIT;
    return gpumem_allocator_statistics(allocator_, &statistics) == GPUMEM_OK && statistics.refused != 0;
  })) << "it looks for other memory";
  EXPECT_NE(taking.wait_for(std::chrono::seconds(0)), std::future_status::ready)
      << "memory is reused before the work on it is done";
  gate.open();
  for (const gpumem_address block : taking.get()) free(block, kLimit, other);
}

TEST_P(CStreams, BlockOfAStreamIsFreedByAThreadWithoutAContext) {
  const CUstream stream = new_stream();
  const auto blocks = take_all(GetParam(), stream);
  Gate gate(stream);
  std::thread([&] {
    for (const gpumem_address block : blocks) free(block, GetParam(), stream);
  }).join();
  expect_behind(gate);
}

INSTANTIATE_TEST_SUITE_P(Sizes, CStreams, testing::Values(4096, 1 << 20, kLimit));

using CStreamsOfAProgram = CStreams;

TEST_P(CStreamsOfAProgram, ComeAndGoWithoutEnd) {
  for (int i = 0; i < 5000; ++i) {
    const CUstream one = new_stream();
    gpumem_address block = 0;
    ASSERT_TRUE(ok(gpumem_allocate(allocator_, GetParam(), one, &block))) << "stream " << i;
    ASSERT_TRUE(ok(gpumem_deallocate(allocator_, block, GetParam(), one))) << "stream " << i;
    ASSERT_EQ(driver_calls().destroy_stream(one), CUDA_SUCCESS);
  }
  EXPECT_TRUE(ok(gpumem_allocator_trim(allocator_, GPUMEM_UNKNOWN_SIZE, nullptr)));
}

TEST_P(CStreamsOfAProgram, ClosingWaitsForTheWorkOnBlocksThatOtherThreadsFreed) {
  std::optional<Gate> gate;
  std::promise<void> freed;
  std::promise<void> closed;
  std::thread worker([&] {
    enter();
    const gpumem_address block = allocate(GetParam(), CU_STREAM_PER_THREAD);
    gate.emplace(CU_STREAM_PER_THREAD);
    EXPECT_EQ(driver_calls().fill(block, 1, GetParam(), CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    free(block, GetParam(), CU_STREAM_PER_THREAD);
    freed.set_value();
    closed.get_future().wait();
    EXPECT_EQ(driver_calls().synchronize(), CUDA_SUCCESS) << "its memory was there until then";
  });
  freed.get_future().wait();
  auto closing = std::async(std::launch::async, [&] { return gpumem_allocator_close(allocator_); });
  gpumem_address none = 0;
  EXPECT_TRUE(eventually(
      [&] { return gpumem_allocate(allocator_, 0, nullptr, &none) == GPUMEM_FAILED_PRECONDITION; }));
  gate->open();
  EXPECT_TRUE(ok(closing.get()));
  closed.set_value();
  worker.join();
}

/// Closes while `gate` holds up work of the current context. The device would report memory that is gone.
void expect_closing_waits(gpumem_allocator* allocator, Gate& gate,
                          gpumem_status (*close)(gpumem_allocator*)) {
  auto closing = std::async(std::launch::async, close, allocator);
  gpumem_address none = 0;
  EXPECT_TRUE(eventually([&] {
    return gpumem_allocate(allocator, 0, nullptr, &none) == GPUMEM_FAILED_PRECONDITION;
  })) << "it is closed";
  EXPECT_NE(closing.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  gate.open();
  EXPECT_TRUE(ok(closing.get()));
  EXPECT_EQ(driver_calls().synchronize(), CUDA_SUCCESS) << "the memory was there until then";
}

TEST_P(CStreamsOfAProgram, ClosingWaitsForTheWorkOnABlockThatWasFreedDuringACapture) {
  const CUstream stream = new_stream();
  const gpumem_address block = allocate(GetParam(), stream);
  Gate gate(stream);
  EXPECT_EQ(driver_calls().fill(block, 1, GetParam(), stream), CUDA_SUCCESS);
  ASSERT_EQ(driver_calls().begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  free(block, GetParam(), stream);
  CUgraph graph = nullptr;
  ASSERT_EQ(driver_calls().end_capture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(driver_calls().destroy_graph(graph), CUDA_SUCCESS);
  EXPECT_EQ(driver_calls().destroy_stream(stream), CUDA_SUCCESS);
  expect_closing_waits(allocator_, gate, gpumem_allocator_close);
}

TEST_P(CStreamsOfAProgram, DestroyingWaitsForTheWorkOfEveryContext) {
  free(allocate(GetParam(), nullptr), GetParam(), nullptr);
  CUcontext second = nullptr;
  ASSERT_EQ(driver_calls().create_context(&second, 0, 0), CUDA_SUCCESS);
  const CUstream stream = new_stream();
  const gpumem_address block = allocate(GetParam(), stream);
  Gate gate(stream);
  EXPECT_EQ(driver_calls().fill(block, 1, GetParam(), stream), CUDA_SUCCESS);
  expect_closing_waits(allocator_, gate, gpumem_allocator_destroy);
  EXPECT_EQ(driver_calls().destroy_context(second), CUDA_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(Sizes, CStreamsOfAProgram, testing::Values(4096, 1 << 20));

}  // namespace
}  // namespace gpumem::test
