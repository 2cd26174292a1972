// Events: marks in a stream that others ask for, wait for, and measure with.
#include "tests/contract/driver/streams.h"

namespace gpumem::contract {
namespace {

using Events = DriverTest;

TEST_IN_CONTEXT(Events, AreNotReadyUntilTheWorkBeforeThemIsDone) {
  const Stream stream;
  const Event event;
  Gate gate(stream);
  must(calls().cuEventRecord(event, stream));
  EXPECT_EQ(calls().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_OK(calls().cuEventSynchronize(event));
  EXPECT_OK(calls().cuEventQuery(event));
}

TEST_IN_CONTEXT(Events, NeverRecordedAreReady) {
  const Event event;
  EXPECT_OK(calls().cuEventQuery(event));
  EXPECT_OK(calls().cuEventSynchronize(event));
}

TEST_IN_CONTEXT(Events, RecordedAgainStandForTheLatestRecord) {
  const Stream stream;
  const Event event;
  must(calls().cuEventRecord(event, stream));
  must(calls().cuEventSynchronize(event));
  Gate gate(stream);
  must(calls().cuEventRecord(event, stream));
  EXPECT_EQ(calls().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_OK(calls().cuEventSynchronize(event));
}

TEST_IN_CONTEXT(Events, OrderOneStreamBehindAnother) {
  const Stream first, second;
  const Event written(CU_EVENT_DISABLE_TIMING);
  const DeviceMemory memory(kBytes);
  PinnedNumbers seen(kCount);
  Gate gate(first);
  must(calls().cuMemsetD32Async(memory, 41, kCount, first));
  must(calls().cuEventRecord(written, first));
  must(calls().cuStreamWaitEvent(second, written, 0));
  must(calls().cuMemcpyDtoHAsync(seen.data(), memory, kBytes, second));
  EXPECT_EQ(calls().cuStreamQuery(second), CUDA_ERROR_NOT_READY) << "it waits for the first";
  EXPECT_EQ(seen[0], 0U);
  gate.open();
  EXPECT_OK(calls().cuStreamSynchronize(second));
  EXPECT_EQ(seen[kCount - 1], 41U);
}

TEST_IN_CONTEXT(Events, WaitedForStandForTheRecordOfThatMoment) {
  const Stream first, second;
  const Event event(CU_EVENT_DISABLE_TIMING);
  must(calls().cuEventRecord(event, first));
  must(calls().cuStreamSynchronize(first));
  must(calls().cuStreamWaitEvent(second, event, 0));
  Gate gate(first);
  must(calls().cuEventRecord(event, first));  // later than the wait: no concern of it
  EXPECT_OK(calls().cuStreamSynchronize(second));
}

TEST_IN_CONTEXT(Events, TellTheTimeBetweenThem) {
  const Stream stream;
  const Event start, end;
  const DeviceMemory memory(kBytes);
  must(calls().cuEventRecord(start, stream));
  must(calls().cuMemsetD8Async(memory, 1, kBytes, stream));
  must(calls().cuEventRecord(end, stream));
  must(calls().cuEventSynchronize(end));
  float milliseconds = -1;
  EXPECT_OK(calls().cuEventElapsedTime(&milliseconds, start, end));
  EXPECT_GE(milliseconds, 0);
}

TEST_IN_CONTEXT(Events, TellNoTimeThatIsNotThereYet) {
  const Stream stream;
  const Event start, end, unrecorded;
  float milliseconds = -1;
  must(calls().cuEventRecord(start, stream));
  EXPECT_EQ(calls().cuEventElapsedTime(&milliseconds, start, unrecorded), CUDA_ERROR_INVALID_HANDLE);
  Gate gate(stream);
  must(calls().cuEventRecord(end, stream));
  EXPECT_EQ(calls().cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_NOT_READY);
}

TEST_IN_CONTEXT(Events, MadeWithoutTimingTellNoTime) {
  const Stream stream;
  const Event start, end(CU_EVENT_DISABLE_TIMING);
  must(calls().cuEventRecord(start, stream));
  must(calls().cuEventRecord(end, stream));
  must(calls().cuStreamSynchronize(stream));
  float milliseconds = -1;
  EXPECT_EQ(calls().cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE);
}

TEST_IN_CONTEXT(Events, MayBeDestroyedBeforeTheyAreDone) {
  const Stream stream;
  CUevent event = nullptr;
  must(calls().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  Gate gate(stream);
  must(calls().cuEventRecord(event, stream));
  EXPECT_OK(calls().cuEventDestroy(event)) << "does not wait: the gate is closed";
  gate.open();
  EXPECT_OK(calls().cuStreamSynchronize(stream));
}

}  // namespace
}  // namespace gpumem::contract
