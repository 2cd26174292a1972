// Legacy sharing between processes: memory and events by handles of 64 bytes.
#include <cuda.h>

#include "tests/sim/work_support.h"

namespace gpumem::sim::test {
namespace {

class Ipc : public SimTest {};

/// A process that shares `size` bytes filled with 7.
void share_memory(Channel& channel, std::size_t size) {
  enter_primary();
  CUdeviceptr memory = 0;
  ASSERT_CU(cuMemAlloc(&memory, size));
  ASSERT_CU(cuMemsetD8(memory, 7, size));
  CUipcMemHandle handle{};
  ASSERT_CU(cuIpcGetMemHandle(&handle, memory));
  channel.tell_value(handle);
}

class IpcOfTwoDevices : public SimTest {
 protected:
  IpcOfTwoDevices() : SimTest("2x64MiB") {}
};

TEST_F(IpcOfTwoDevices, PeerOpensMemoryIfItAsksForPeerAccess) {
  Process owner([](Channel& channel) {
    share_memory(channel, kPage);
    channel.await();
  });
  const auto handle = owner.channel().hear_value<CUipcMemHandle>();
  in_process([&] {
    enter_primary(1);
    CUdeviceptr memory = 0, own = 0;
    EXPECT_EQ(cuIpcOpenMemHandle(&memory, handle, 0), CUDA_ERROR_INVALID_DEVICE);
    ASSERT_CU(cuIpcOpenMemHandle(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    ASSERT_CU(cuMemAlloc(&own, kPage));
    EXPECT_CU(cuMemcpyDtoD(own, memory, kPage));
    EXPECT_EQ(*bytes_at(own), 7);
    EXPECT_CU(cuIpcCloseMemHandle(memory));
  });
  owner.signal_and_join();
}

TEST_F(Ipc, OpenedMemoryOutlivesItsKilledOwnerAndIsChargedUntilClosed) {
  Process owner([](Channel& channel) {
    share_memory(channel, kPage);
    channel.await();
  });
  const auto handle = owner.channel().hear_value<CUipcMemHandle>();
  Process opener([&](Channel& channel) {
    enter_primary();
    CUdeviceptr memory = 0;
    ASSERT_CU(cuIpcOpenMemHandle(&memory, handle, 0));
    channel.signal_and_await();
    EXPECT_EQ(*bytes_at(memory + kPage - 1), 7);
  });
  opener.channel().await();
  owner.kill();
  EXPECT_GE(used(), kPage);
  opener.signal_and_join();
  EXPECT_EQ(used(), 0U);
  in_process([&] {
    enter_primary();
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuIpcOpenMemHandle(&memory, handle, 0), CUDA_ERROR_INVALID_VALUE) << "it is no more";
  });
}

TEST_F(Ipc, EventOfAKilledRecorderHoldsNobodyUp) {
  Process recorder([](Channel& channel) {
    enter_primary();
    CUevent event = nullptr;
    ASSERT_CU(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    ASSERT_CU(cuLaunchHostFunc(
        nullptr, [](void* other) { static_cast<Channel*>(other)->await(); }, &channel));
    ASSERT_CU(cuEventRecord(event, nullptr));
    CUipcEventHandle handle{};
    ASSERT_CU(cuIpcGetEventHandle(&handle, event));
    channel.tell_value(handle);
    ASSERT_CU(cuCtxSynchronize());
  });
  const auto handle = recorder.channel().hear_value<CUipcEventHandle>();
  Process waiter([&](Channel& channel) {
    enter_primary();
    CUevent event = nullptr;
    ASSERT_CU(cuIpcOpenEventHandle(&event, handle));
    channel.signal();
    EXPECT_CU(cuEventSynchronize(event));
  });
  waiter.channel().await();
  recorder.kill();
  waiter.join();
}

}  // namespace
}  // namespace gpumem::sim::test
