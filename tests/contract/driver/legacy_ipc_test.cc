// The older way to share: 64 bytes that name memory or an event of another process.
#include "tests/contract/driver/streams.h"

namespace gpumem::contract {
namespace {

using LegacyIpc = DriverTest;

CUresult open_memory(CUdeviceptr& address, const CUipcMemHandle& handle) {
  return calls().cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

// Allocates and fills with 3, passes the handle on, and checks what the other wrote when told.
void share(Channel& channel, std::uint64_t size, int expected) {
  const cuda::CurrentContext entered = context();
  const DeviceMemory memory(size);
  fill(memory, {size}, 3);
  CUipcMemHandle handle{};
  must(calls().cuIpcGetMemHandle(&handle, memory));
  channel.tell_value(handle);
  channel.await();
  EXPECT_TRUE(holds(memory, {size}, expected));
}

TEST_F(LegacyIpc, ShowsMemoryToAnotherProcess) {
  const std::uint64_t size = 4 * unit_.count;
  Process exporter([&](Channel& channel) { share(channel, size, 4); });
  const auto handle = exporter.channel().hear_value<CUipcMemHandle>();
  in_process([&] {
    const cuda::CurrentContext entered = context();
    CUdeviceptr address = 0;
    ASSERT_OK(open_memory(address, handle));
    EXPECT_TRUE(holds(address, {size}, 3));
    fill(address, {size}, 4);
    EXPECT_OK(calls().cuIpcCloseMemHandle(address));
  });
  exporter.signal_and_join();
  expect_used(0);
}

TEST_F(LegacyIpc, OpenedTwiceIsOneAddressCountedTwice) {
  Process exporter([&](Channel& channel) { share(channel, 4 * unit_.count, 3); });
  const auto handle = exporter.channel().hear_value<CUipcMemHandle>();
  in_process([&] {
    const cuda::CurrentContext entered = context();
    CUdeviceptr first = 0, second = 0;
    ASSERT_OK(open_memory(first, handle));
    ASSERT_OK(open_memory(second, handle));
    EXPECT_EQ(first, second);
    EXPECT_OK(calls().cuIpcCloseMemHandle(first));
    EXPECT_TRUE(holds(first, unit_, 3)) << "one is left";
    EXPECT_OK(calls().cuIpcCloseMemHandle(second));
    EXPECT_REFUSED(calls().cuIpcCloseMemHandle(second));
  });
  exporter.signal_and_join();
}

TEST_F(LegacyIpc, MemoryIsTheSameInEveryImporter) {
  Process exporter([&](Channel& channel) { share(channel, 4 * unit_.count, 9); });
  const auto handle = exporter.channel().hear_value<CUipcMemHandle>();
  Process first([&](Channel& channel) {
    const cuda::CurrentContext entered = context();
    CUdeviceptr address = 0;
    must(open_memory(address, handle));
    channel.await();
    EXPECT_TRUE(holds(address, {4 * unit_.count}, 9)) << "what the second wrote";
    EXPECT_OK(calls().cuIpcCloseMemHandle(address));
  });
  in_process([&] {
    const cuda::CurrentContext entered = context();
    CUdeviceptr address = 0;
    must(open_memory(address, handle));
    fill(address, {4 * unit_.count}, 9);
    EXPECT_OK(calls().cuIpcCloseMemHandle(address));
  });
  first.signal_and_join();
  exporter.signal_and_join();
}

TEST_IN_CONTEXT(LegacyIpc, IsNotOpenedInTheProcessThatMadeIt) {
  const DeviceMemory memory(4 * unit_.count);
  CUipcMemHandle handle{};
  ASSERT_OK(calls().cuIpcGetMemHandle(&handle, memory));
  CUdeviceptr address = 0;
  EXPECT_REFUSED(open_memory(address, handle));
}

TEST_IN_CONTEXT(LegacyIpc, TakesNoMappedExtentsAndNoHostMemory) {
  const Mapped mapped = map(allocate(unit_));
  PinnedNumbers pinned(16);
  CUipcMemHandle handle{};
  EXPECT_REFUSED(calls().cuIpcGetMemHandle(&handle, mapped.range.base()));
  EXPECT_REFUSED(calls().cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(pinned.data())));
  EXPECT_REFUSED(calls().cuIpcGetMemHandle(&handle, 0));
}

TEST_IN_CONTEXT(LegacyIpc, OfGarbageIsRefused) {
  CUipcMemHandle nothing{};
  CUdeviceptr address = 0;
  EXPECT_REFUSED(open_memory(address, nothing));
  CUipcEventHandle no_event{};
  CUevent event = nullptr;
  EXPECT_REFUSED(calls().cuIpcOpenEventHandle(&event, no_event));
  EXPECT_REFUSED(calls().cuIpcCloseMemHandle(0x1000));
}

TEST_F(LegacyIpc, MemoryIsNotFreedByTheImporter) {
  Process exporter([&](Channel& channel) { share(channel, 4 * unit_.count, 3); });
  const auto handle = exporter.channel().hear_value<CUipcMemHandle>();
  in_process([&] {
    const cuda::CurrentContext entered = context();
    CUdeviceptr address = 0;
    must(open_memory(address, handle));
    EXPECT_REFUSED(calls().cuMemFree(address));
    EXPECT_OK(calls().cuIpcCloseMemHandle(address));
  });
  exporter.signal_and_join();
}

TEST_F(LegacyIpc, EventsAreAwaitedInAnotherProcess) {
  Process exporter([](Channel& channel) {
    const cuda::CurrentContext entered = context();
    const Stream stream;
    const Event event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    CUipcEventHandle handle{};
    must(calls().cuIpcGetEventHandle(&handle, event));
    Gate gate(stream);
    must(calls().cuEventRecord(event, stream));
    channel.tell_value(handle);
    channel.await();  // the importer has seen the event pending
    gate.open();
    must(calls().cuStreamSynchronize(stream));
    channel.signal_and_await();
  });
  const auto handle = exporter.channel().hear_value<CUipcEventHandle>();
  Process importer([&](Channel& channel) {
    const cuda::CurrentContext entered = context();
    CUevent event = nullptr;
    must(calls().cuIpcOpenEventHandle(&event, handle));
    EXPECT_EQ(calls().cuEventQuery(event), CUDA_ERROR_NOT_READY);
    channel.signal();
    EXPECT_OK(calls().cuEventSynchronize(event));
    EXPECT_OK(calls().cuEventQuery(event));
    EXPECT_OK(calls().cuEventDestroy(event));
  });
  importer.channel().await();
  exporter.channel().signal_and_await();
  importer.join();
  exporter.signal_and_join();
}

TEST_IN_CONTEXT(LegacyIpc, EventsMustBeMadeForIt) {
  const Event plain(CU_EVENT_DISABLE_TIMING);
  CUipcEventHandle handle{};
  EXPECT_REFUSED(calls().cuIpcGetEventHandle(&handle, plain));
  CUevent timed = nullptr;
  EXPECT_REFUSED(calls().cuEventCreate(&timed, CU_EVENT_INTERPROCESS))
      << "events between processes tell no time";
}

}  // namespace
}  // namespace gpumem::contract
