// Streams: order within one, none between two, and the default stream's bonds.
#include "tests/contract/driver/streams.h"

namespace gpumem::contract {
namespace {

using Streams = DriverTest;

TEST_IN_CONTEXT(Streams, RunTheirWorkInOrder) {
  const DeviceMemory memory(kBytes);
  const Stream stream;
  PinnedNumbers seen(kCount);
  for (unsigned round = 1; round <= 50; ++round) {
    must(calls().cuMemsetD32Async(memory, round, kCount, stream));
    must(
        calls().cuMemcpyDtoHAsync(&seen[round], memory + round * sizeof(unsigned), sizeof(unsigned), stream));
  }
  EXPECT_OK(calls().cuStreamSynchronize(stream));
  for (unsigned round = 1; round <= 50; ++round) EXPECT_EQ(seen[round], round);
}

TEST_IN_CONTEXT(Streams, CopyThereAndBackBetweenPinnedMemoryAndTheDevice) {
  const DeviceMemory first(kBytes), second(kBytes);
  const Stream stream;
  PinnedNumbers from(kCount), to(kCount);
  for (unsigned i = 0; i < kCount; ++i) from[i] = 3 * i + 1;
  must(calls().cuMemcpyHtoDAsync(first, from.data(), kBytes, stream));
  must(calls().cuMemcpyDtoDAsync(second, first, kBytes, stream));
  must(calls().cuMemcpyDtoHAsync(to.data(), second, kBytes, stream));
  must(calls().cuStreamSynchronize(stream));
  EXPECT_TRUE(std::equal(from.data(), from.data() + kCount, to.data()));
  EXPECT_OK(calls().cuStreamQuery(stream));
}

TEST_IN_CONTEXT(Streams, AreNotReadyWhileWorkIsPending) {
  const Stream stream;
  PinnedNumbers seen(kCount);
  const DeviceMemory memory(kBytes);
  must(calls().cuMemsetD32Async(memory, 77, kCount, stream));
  must(calls().cuStreamSynchronize(stream));
  Gate gate(stream);
  must(calls().cuMemcpyDtoHAsync(seen.data(), memory, kBytes, stream));
  EXPECT_EQ(calls().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(seen[0], 0U) << "nothing is copied yet";
  gate.open();
  EXPECT_OK(calls().cuStreamSynchronize(stream));
  EXPECT_OK(calls().cuStreamQuery(stream));
  EXPECT_EQ(seen[kCount - 1], 77U);
}

TEST_IN_CONTEXT(Streams, DoNotWaitForEachOther) {
  const Stream held, running;
  const DeviceMemory memory(kBytes);
  Gate gate(held);
  must(calls().cuMemsetD8Async(memory, 1, kBytes, running));
  EXPECT_OK(calls().cuStreamSynchronize(running)) << "while the other is held up";
  EXPECT_EQ(calls().cuStreamQuery(held), CUDA_ERROR_NOT_READY);
}

TEST_IN_CONTEXT(Streams, AreAllWaitedForByTheContext) {
  const Stream stream;
  const DeviceMemory memory(kBytes);
  PinnedNumbers seen(kCount);
  Gate gate(stream);
  must(calls().cuMemsetD32Async(memory, 5, kCount, stream));
  must(calls().cuMemcpyDtoHAsync(seen.data(), memory, kBytes, stream));
  gate.open();
  EXPECT_OK(calls().cuCtxSynchronize());
  EXPECT_EQ(seen[kCount - 1], 5U);
}

// Queues a copy and an event in the default stream while `other` is held up, and says whether the event
// waits.
bool default_stream_waits_for(unsigned flags) {
  const cuda::CurrentContext entered = context();
  const Stream other(flags);
  const Event behind(CU_EVENT_DISABLE_TIMING);
  const DeviceMemory memory(kBytes);
  PinnedNumbers from(kCount);
  Gate gate(other);
  must(calls().cuMemcpyHtoDAsync(memory, from.data(), kBytes, nullptr));
  must(calls().cuEventRecord(behind, nullptr));
  const CUresult held =
      flags == CU_STREAM_NON_BLOCKING ? calls().cuEventSynchronize(behind) : calls().cuEventQuery(behind);
  gate.open();
  EXPECT_OK(calls().cuEventSynchronize(behind));
  return held == CUDA_ERROR_NOT_READY;
}

TEST_F(Streams, OfTheBlockingKindAreAwaitedByTheDefaultStream) {
  in_process([] { EXPECT_TRUE(default_stream_waits_for(CU_STREAM_DEFAULT)); });
}

TEST_F(Streams, OfTheNonBlockingKindAreNotAwaitedByTheDefaultStream) {
  in_process([] { EXPECT_FALSE(default_stream_waits_for(CU_STREAM_NON_BLOCKING)); });
}

TEST_IN_CONTEXT(Streams, OfTheBlockingKindWaitForTheDefaultStream) {
  const Stream blocking(CU_STREAM_DEFAULT);
  const Stream free_running;
  const DeviceMemory memory(2 * kBytes);
  Gate gate(nullptr);
  must(calls().cuMemsetD8Async(memory, 1, kBytes, blocking));
  must(calls().cuMemsetD8Async(memory + kBytes, 1, kBytes, free_running));
  EXPECT_OK(calls().cuStreamSynchronize(free_running));
  EXPECT_EQ(calls().cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_OK(calls().cuStreamSynchronize(blocking));
}

TEST_IN_CONTEXT(Streams, FinishTheirWorkAfterTheirDestruction) {
  const DeviceMemory memory(kBytes);
  PinnedNumbers seen(kCount);
  const Event done(CU_EVENT_DISABLE_TIMING);
  CUstream stream = nullptr;
  must(calls().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Gate gate(stream);
  must(calls().cuMemsetD32Async(memory, 6, kCount, stream));
  must(calls().cuMemcpyDtoHAsync(seen.data(), memory, kBytes, stream));
  must(calls().cuEventRecord(done, stream));
  EXPECT_OK(calls().cuStreamDestroy(stream)) << "does not wait: the gate is closed";
  EXPECT_EQ(calls().cuEventQuery(done), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_OK(calls().cuEventSynchronize(done));
  EXPECT_EQ(seen[0], 6U);
}

TEST_IN_PROCESS(Streams, WorkOnMappedExtentsToo) {
  const Mapped mapped = map(allocate(unit_));
  const cuda::CurrentContext entered = context();
  const Stream stream;
  must(calls().cuMemsetD8Async(mapped.range.base(), 0x3c, unit_.count, stream));
  must(calls().cuStreamSynchronize(stream));
  EXPECT_TRUE(holds(mapped.range.base(), unit_, 0x3c));
}

}  // namespace
}  // namespace gpumem::contract
