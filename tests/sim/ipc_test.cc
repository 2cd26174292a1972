// Legacy sharing between processes: memory and events by handles of 64 bytes.
#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/sim/work_support.h"

namespace gpumem::sim::test {
namespace {

class Ipc : public SimTest {};

/// Sends 64 bytes to the other side in a file of their own.
template <class Handle>
void send(Peer& peer, const Handle& handle) {
  const UniqueFd file(::memfd_create("handle", MFD_CLOEXEC));
  ASSERT_EQ(::pwrite(file.get(), &handle, sizeof handle, 0), static_cast<ssize_t>(sizeof handle));
  peer.send(file.get());
}

template <class Handle>
Handle receive(Peer& peer) {
  const UniqueFd file = peer.receive();
  Handle handle{};
  EXPECT_EQ(::pread(file.get(), &handle, sizeof handle, 0), static_cast<ssize_t>(sizeof handle));
  return handle;
}

/// A process that shares `size` bytes filled with 7.
void share_memory(Peer& peer, std::size_t size) {
  enter_primary();
  CUdeviceptr memory = 0;
  ASSERT_CU(cuMemAlloc(&memory, size));
  ASSERT_CU(cuMemsetD8(memory, 7, size));
  CUipcMemHandle handle{};
  ASSERT_CU(cuIpcGetMemHandle(&handle, memory));
  send(peer, handle);
}

class IpcOfTwoDevices : public SimTest {
 protected:
  IpcOfTwoDevices() : SimTest("2x64MiB") {}
};

TEST_F(IpcOfTwoDevices, PeerOpensMemoryIfItAsksForPeerAccess) {
  Process owner([](Peer& peer) {
    share_memory(peer, kPage);
    peer.await();
  });
  const auto handle = receive<CUipcMemHandle>(owner.peer());
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
  owner.peer().signal();
  EXPECT_EQ(owner.join(), 0);
}

TEST_F(Ipc, OpenedMemoryOutlivesItsKilledOwnerAndIsChargedUntilClosed) {
  Process owner([](Peer& peer) {
    share_memory(peer, kPage);
    peer.await();
  });
  const auto handle = receive<CUipcMemHandle>(owner.peer());
  Process opener([&](Peer& peer) {
    enter_primary();
    CUdeviceptr memory = 0;
    ASSERT_CU(cuIpcOpenMemHandle(&memory, handle, 0));
    peer.signal();
    peer.await();
    EXPECT_EQ(*bytes_at(memory + kPage - 1), 7);
  });
  opener.peer().await();
  owner.kill();
  EXPECT_GE(used(), kPage);
  opener.peer().signal();
  EXPECT_EQ(opener.join(), 0);
  EXPECT_EQ(used(), 0U);
  in_process([&] {
    enter_primary();
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuIpcOpenMemHandle(&memory, handle, 0), CUDA_ERROR_INVALID_VALUE) << "it is no more";
  });
}

TEST_F(Ipc, HandleOfAKilledOwnerIsRefusedThoughNobodyHasLookedSince) {
  Process owner([](Peer& peer) {
    share_memory(peer, kPage);
    peer.await();
  });
  const auto handle = receive<CUipcMemHandle>(owner.peer());
  owner.kill();
  in_process([&] {
    enter_primary();
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuIpcOpenMemHandle(&memory, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(memory, 0U);
  });
  EXPECT_EQ(used(), 0U);
}

TEST_F(Ipc, HandlesThatAreNoneAreRefused) {
  in_process([] {
    enter_primary();
    CUdeviceptr memory = 0, out = 0;
    CUipcMemHandle handle{};
    ASSERT_CU(cuMemAlloc(&memory, kPage));
    ASSERT_CU(cuIpcGetMemHandle(&handle, memory));
    EXPECT_EQ(cuIpcOpenMemHandle(nullptr, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuIpcOpenMemHandle(&out, handle, 8), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuIpcGetMemHandle(nullptr, memory), CUDA_ERROR_INVALID_VALUE);
    std::memset(&handle, 0xa5, sizeof handle);
    EXPECT_EQ(cuIpcOpenMemHandle(&out, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CUipcEventHandle event_handle{};
    CUevent event = nullptr;
    for (const char* const name : {"xxxxxxxx", "event-../../../../etc/passwd"}) {
      std::strcpy(event_handle.reserved, name);
      EXPECT_EQ(cuIpcOpenEventHandle(&event, event_handle), CUDA_ERROR_INVALID_HANDLE) << name;
    }
  });
}

TEST_F(Ipc, EventOrdersTheWorkOfTwoProcesses) {
  Process recorder([](Peer& peer) {
    enter_primary();
    CUevent event = nullptr;
    ASSERT_CU(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    CUstream stream = nullptr;
    ASSERT_CU(cuStreamCreate(&stream, 0));
    ASSERT_CU(cuLaunchHostFunc(
        stream, [](void* other) { static_cast<Peer*>(other)->await(); }, &peer));
    ASSERT_CU(cuEventRecord(event, stream));
    CUipcEventHandle handle{};
    ASSERT_CU(cuIpcGetEventHandle(&handle, event));
    send(peer, handle);
    ASSERT_CU(cuStreamSynchronize(stream));
    peer.await();
  });
  const auto handle = receive<CUipcEventHandle>(recorder.peer());
  in_process([&] {
    enter_primary();
    CUevent event = nullptr;
    ASSERT_CU(cuIpcOpenEventHandle(&event, handle));
    CUstream stream = nullptr;
    ASSERT_CU(cuStreamCreate(&stream, 0));
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_CU(cuStreamWaitEvent(stream, event, 0));
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    recorder.peer().signal();  // lets the recorder's work go on
    EXPECT_CU(cuStreamSynchronize(stream));
    EXPECT_CU(cuEventQuery(event));
    EXPECT_CU(cuEventDestroy(event));
  });
  recorder.peer().signal();
  EXPECT_EQ(recorder.join(), 0);
}

TEST_F(Ipc, EventOfAKilledRecorderHoldsNobodyUp) {
  Process recorder([](Peer& peer) {
    enter_primary();
    CUevent event = nullptr;
    ASSERT_CU(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    ASSERT_CU(cuLaunchHostFunc(
        nullptr, [](void* other) { static_cast<Peer*>(other)->await(); }, &peer));
    ASSERT_CU(cuEventRecord(event, nullptr));
    CUipcEventHandle handle{};
    ASSERT_CU(cuIpcGetEventHandle(&handle, event));
    send(peer, handle);
    ASSERT_CU(cuCtxSynchronize());
  });
  const auto handle = receive<CUipcEventHandle>(recorder.peer());
  Process waiter([&](Peer& peer) {
    enter_primary();
    CUevent event = nullptr;
    ASSERT_CU(cuIpcOpenEventHandle(&event, handle));
    peer.signal();
    EXPECT_CU(cuEventSynchronize(event));
  });
  waiter.peer().await();
  recorder.kill();
  EXPECT_EQ(waiter.join(), 0);
}

}  // namespace
}  // namespace gpumem::sim::test
