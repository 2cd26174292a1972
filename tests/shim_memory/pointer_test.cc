// Attributes of addresses, memory that the driver keeps for itself, and memory of other processes.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "tests/shim_memory/scene.h"
#include "tests/support/eventually.h"

namespace gpumem::shim::test {
namespace {

using PointerTest = ShimMemory;

template <class Value>
Value attribute_of(CUdeviceptr at, CUpointer_attribute which) {
  Value value{};
  EXPECT_CU(calls::cuPointerGetAttribute(&value, which, at)) << which;
  return value;
}

unsigned flags_of_context() {
  unsigned flags = 0;
  EXPECT_CU(real<decltype(&::cuCtxGetFlags)>("cuCtxGetFlags")(&flags));
  return flags;
}

// The driver has this of its own blocks alone, and of contexts.
SCENE_TEST(PointerTest, BlocksAreMadeSynchronousByTheirContext) {
  constexpr unsigned kSyncMemops = 0x80;
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 4096));
  const unsigned before = flags_of_context(), on = 1, off = 0;
  EXPECT_EQ(before & kSyncMemops, 0U);
  EXPECT_CU(calls::cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
  EXPECT_EQ(flags_of_context(), before);
  EXPECT_CU(calls::cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at + 4095));
  EXPECT_EQ(flags_of_context(), before | kSyncMemops);
  EXPECT_EQ(attribute_of<unsigned>(at, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), 1U);
  EXPECT_EQ(calls::cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at + 4096),
            CUDA_ERROR_INVALID_VALUE)
      << "of the slice, and of no block";
  EXPECT_EQ(calls::cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_CONTEXT, at), CUDA_ERROR_INVALID_VALUE);
}

SCENE_TEST(PointerTest, BlocksOfPoolsAreMadeSynchronousForTheCurrentContext) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAllocAsync(&at, 4096, nullptr));
  const unsigned on = 1, off = 0;
  EXPECT_CU(calls::cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
  EXPECT_EQ(flags_of_context() & 0x80U, 0U);
  EXPECT_CU(calls::cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
  EXPECT_EQ(flags_of_context() & 0x80U, 0x80U);
  EXPECT_EQ(attribute_of<unsigned>(at, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), 1U);
}

SCENE_TEST(PointerTest, SeveralAttributesAtOnceAndNoneOfFreedMemory) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 3000));
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
  unsigned type = 0;
  std::size_t size = 0;
  CUdeviceptr begin = 0;
  void* data[] = {&type, &size, &begin};
  ASSERT_CU(calls::cuPointerGetAttributes(3, wanted, data, at + 1));
  EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(size, 3000U);
  EXPECT_EQ(begin, at);
  EXPECT_CU(calls::cuMemFree_v2(at));
  ASSERT_CU(calls::cuPointerGetAttributes(1, wanted, data, at));
  EXPECT_EQ(type, 0U);
  EXPECT_EQ(calls::cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at),
            CUDA_ERROR_INVALID_VALUE);
}

SCENE_TEST(PointerTest, MemoryOfAPoolNamesItAndHasNoContext) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAllocAsync(&at, 3000, nullptr));
  CUmemoryPool pool = nullptr;
  EXPECT_CU(real<decltype(&::cuDeviceGetDefaultMemPool)>("cuDeviceGetDefaultMemPool")(&pool, 0));
  EXPECT_EQ(attribute_of<CUmemoryPool>(at, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE), pool);
  EXPECT_EQ(attribute_of<CUcontext>(at, CU_POINTER_ATTRIBUTE_CONTEXT), nullptr);
}

SCENE(UsesManagedMemory) {
  start();
  CUdeviceptr at = 0, other = 0;
  std::size_t free = 0;
  EXPECT_EQ(calls::cuMemAllocManaged(&at, 65 * kMiB, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(calls::cuMemAllocManaged(&at, 16 * kMiB, CU_MEM_ATTACH_GLOBAL));
  EXPECT_CU(calls::cuMemGetInfo_v2(&free, nullptr));
  EXPECT_EQ(free, 48 * kMiB);
  EXPECT_EQ(calls::cuMemAlloc_v2(&other, 49 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  tell_and_await();
  EXPECT_NE(calls::cuMemAllocManaged(&other, 1 * kMiB, 99), CUDA_SUCCESS) << "the driver's answer";
  EXPECT_CU(calls::cuMemFree_v2(at));
  EXPECT_CU(calls::cuMemGetInfo_v2(&free, nullptr));
  EXPECT_EQ(free, 64 * kMiB) << "and the failure costs nothing";
  tell_and_await();
}

TEST_F(PointerTest, ManagedMemoryIsChargedAndForwarded) {
  expect_told_of_outside("UsesManagedMemory", 16 * kMiB, {{"GPUMEM_LIMIT", "64MiB"}});
}

std::string handle_file() { return std::string(::getenv("SHARED_FOLDER")) + "/handle"; }

SCENE(PassesABlockOn) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 3 * kMiB));
  byte_at(at + 3 * kMiB - 1) = 42;
  CUipcMemHandle handle{}, again{};
  ASSERT_CU(calls::cuIpcGetMemHandle(&handle, at));
  ASSERT_CU(calls::cuIpcGetMemHandle(&again, at + kMiB)) << "of an interior pointer";
  EXPECT_EQ(std::memcmp(&handle, &again, sizeof handle), 0) << "the block's, each time";
  CUdeviceptr own = 0;
  EXPECT_EQ(calls::cuIpcOpenMemHandle_v2(&own, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_ERROR_INVALID_CONTEXT);
  gpumem::test::write_file(handle_file(), std::string(handle.reserved, sizeof handle.reserved));
  tell_and_await();
}

// The limits of a session's handles are at 1,024.
SCENE_TEST(PointerTest, BlocksAreSharedAndFreedForEver) {
  start();
  for (int i = 0; i < 3000; ++i) {
    CUdeviceptr at = 0;
    CUipcMemHandle handle{};
    ASSERT_CU(calls::cuMemAlloc_v2(&at, 4096)) << i;
    ASSERT_CU(calls::cuIpcGetMemHandle(&handle, at)) << i;
    ASSERT_CU(i % 2 == 0 ? calls::cuMemFree_v2(at) : calls::cuMemFreeAsync(at, nullptr)) << i;
  }
}

// Their answers are read by nobody else meanwhile.
SCENE_TEST(PointerTest, ManySharedBlocksAreFreedOneAfterTheOther) {
  start();
  for (int round = 0; round < 3; ++round) {
    std::vector<CUdeviceptr> blocks(1000);
    for (CUdeviceptr& at : blocks) {
      CUipcMemHandle handle{};
      ASSERT_CU(calls::cuMemAlloc_v2(&at, 4096));
      ASSERT_CU(calls::cuIpcGetMemHandle(&handle, at));
    }
    for (const CUdeviceptr at : blocks) ASSERT_CU(calls::cuMemFree_v2(at));
  }
}

void put_handle(const CUipcMemHandle& handle) {
  gpumem::test::write_file(handle_file(), std::string(handle.reserved, sizeof handle.reserved));
}
CUipcMemHandle get_handle() {
  CUipcMemHandle handle{};
  const std::string bytes = gpumem::test::read_file(handle_file());
  EXPECT_EQ(bytes.size(), sizeof handle.reserved);
  std::memcpy(handle.reserved, bytes.data(), std::min(bytes.size(), sizeof handle.reserved));
  return handle;
}

SCENE(EndsSharedBlocks) {
  start();
  CUcontext second = nullptr, own = nullptr;
  EXPECT_CU(real<decltype(&::cuCtxGetCurrent)>("cuCtxGetCurrent")(&own));
  EXPECT_CU(real<decltype(&::cuCtxCreate_v2)>("cuCtxCreate_v2")(&second, 0, 0));
  CUdeviceptr in_second = 0, at = 0;
  CUipcMemHandle handle{};
  ASSERT_CU(calls::cuMemAlloc_v2(&in_second, kMiB));
  ASSERT_CU(calls::cuIpcGetMemHandle(&handle, in_second));
  put_handle(handle);
  tell_and_await();
  EXPECT_CU(calls::cuCtxDestroy_v2(second));
  tell_and_await();
  EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(own));
  ASSERT_CU(calls::cuMemAlloc_v2(&at, kMiB));
  byte_at(at) = 42;
  ASSERT_CU(calls::cuIpcGetMemHandle(&handle, at));
  put_handle(handle);
  tell_and_await();
  EXPECT_CU(calls::cuMemFree_v2(at));
  tell_and_await();
}

SCENE(OpensABlockThatThenEnds) {
  start();
  CUdeviceptr at = 0, again = 0;
  ASSERT_CU(calls::cuIpcOpenMemHandle_v2(&at, get_handle(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  tell_and_await();
  byte_at(at) = 1;
  EXPECT_CU(calls::cuIpcOpenMemHandle_v2(&again, get_handle(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
      << "it is open: the broker is not asked";
  EXPECT_CU(calls::cuIpcCloseMemHandle(at));
  EXPECT_EQ(byte_at(again), 1);
  EXPECT_CU(calls::cuIpcCloseMemHandle(again));
  // The owner's call does not wait until the broker has heard of it.
  EXPECT_TRUE(gpumem::test::eventually([] {
    CUdeviceptr late = 0;
    if (calls::cuIpcOpenMemHandle_v2(&late, get_handle(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS)
      return true;
    EXPECT_CU(calls::cuIpcCloseMemHandle(late));
    return false;
  }));
}

TEST_F(PointerTest, AHandleEndsWithItsBlockAndWhatIsOpenStays) {
  const gpumem::test::TemporaryFolder folder;
  const Actor::Environment shared{{"SHARED_FOLDER", folder.path().string()}};
  Actor owner = actor("EndsSharedBlocks", shared);
  for (const char* how : {"cuCtxDestroy", "cuMemFree"}) {
    owner.await();
    Actor user = actor("OpensABlockThatThenEnds", shared);
    user.await();
    owner.tell_and_await();
    user.tell();
    EXPECT_TRUE(user.succeeds()) << how << ": " << user.output();
    owner.tell();
  }
  EXPECT_TRUE(owner.succeeds()) << owner.output();
}

SCENE(OutlivesTheOwnerOfABlock) {
  start();
  CUdeviceptr at = 0, again = 0;
  ASSERT_CU(calls::cuIpcOpenMemHandle_v2(&at, get_handle(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  tell_and_await();
  EXPECT_EQ(byte_at(at + 3 * kMiB - 1), 42);
  byte_at(at) = 1;
  EXPECT_CU(calls::cuIpcOpenMemHandle_v2(&again, get_handle(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT_EQ(again, at) << "it is open";
  EXPECT_CU(calls::cuIpcCloseMemHandle(at));
  EXPECT_EQ(byte_at(again), 1);
  tell_and_await();
  EXPECT_CU(calls::cuIpcCloseMemHandle(again));
  tell_and_await();
}

SCENE(EndsTheContextsThatHaveABlockOpen) {
  const CUcontext primary = start();
  const auto opened = [] {
    CUdeviceptr at = 0;
    EXPECT_CU(calls::cuIpcOpenMemHandle_v2(&at, get_handle(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return at;
  };
  const auto read = [](CUdeviceptr at) {
    unsigned char value = 0;
    return real<decltype(&::cuMemcpyDtoH_v2)>("cuMemcpyDtoH_v2")(&value, at, 1);
  };
  CUcontext other = nullptr;
  ASSERT_CU(calls::cuCtxCreate_v2(&other, 0, 0));
  const CUdeviceptr at = opened();
  EXPECT_CU(calls::cuCtxDestroy_v2(other));
  EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(primary));
  EXPECT_NE(read(at), CUDA_SUCCESS) << "nobody has it open any more";
  const CUdeviceptr twice = opened();
  EXPECT_EQ(opened(), twice);
  EXPECT_CU(calls::cuCtxCreate_v2(&other, 0, 0));
  EXPECT_EQ(opened(), twice);
  EXPECT_CU(calls::cuCtxDestroy_v2(other));
  EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(primary));
  EXPECT_CU(read(twice)) << "the primary context has";
  EXPECT_CU(calls::cuDevicePrimaryCtxReset_v2(0));
  start();
  EXPECT_NE(read(twice), CUDA_SUCCESS);
  EXPECT_NE(calls::cuIpcCloseMemHandle(twice), CUDA_SUCCESS);
}

TEST_F(PointerTest, WhatIsOpenEndsWithTheContextsThatHaveOpenedIt) {
  const gpumem::test::TemporaryFolder folder;
  const Actor::Environment shared{{"SHARED_FOLDER", folder.path().string()}};
  Actor owner = actor("PassesABlockOn", shared);
  owner.await();
  expect("EndsTheContextsThatHaveABlockOpen", shared);
  owner.tell_and_expect_success();
}

SCENE(ComesAfterTheOwnerOfABlock) {
  start();
  CUdeviceptr at = 0;
  EXPECT_NE(calls::cuIpcOpenMemHandle_v2(&at, get_handle(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_SUCCESS);
}

TEST_F(PointerTest, WhatIsOpenStaysAndIsChargedWhenItsOwnerIsKilledAndNobodyElseOpensIt) {
  const gpumem::test::TemporaryFolder folder;
  const Actor::Environment shared{{"SHARED_FOLDER", folder.path().string()}};
  Actor owner = actor("PassesABlockOn", shared);
  owner.await();
  Actor user = actor("OutlivesTheOwnerOfABlock", shared);
  user.await();
  owner.child().kill();
  EXPECT_TRUE(gpumem::test::eventually([&] { return broker_.sessions().size() == 1; }));
  user.tell_and_await();
  EXPECT_EQ(charged(), 4 * kMiB) << "its extents, to the process that has it open";
  expect("ComesAfterTheOwnerOfABlock", shared);
  EXPECT_EQ(charged(), 4 * kMiB);
  user.tell_and_await();
  EXPECT_TRUE(gpumem::test::eventually([&] { return charged() == 0; })) << charged();
  user.tell_and_expect_success();
}

SCENE(PassesALargeBlockOn) {
  start();
  CUdeviceptr at = 0;
  CUipcMemHandle handle{};
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 9 * kMiB + 5));
  ASSERT_CU(calls::cuIpcGetMemHandle(&handle, at));
  put_handle(handle);
  tell_and_await();
}

SCENE(LooksAtALargeBlock) {
  start();
  CUdeviceptr at = 0, base = 0;
  std::size_t size = 0;
  ASSERT_CU(calls::cuIpcOpenMemHandle_v2(&at, get_handle(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  for (const CUdeviceptr address : {at, at + 8 * kMiB + 1, at + 9 * kMiB + 4}) {
    EXPECT_CU(calls::cuMemGetAddressRange_v2(&base, &size, address));
    EXPECT_EQ(base, at);
    EXPECT_EQ(size, 9 * kMiB + 5);
    EXPECT_EQ(attribute_of<CUdeviceptr>(address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), at);
    EXPECT_EQ(attribute_of<std::size_t>(address, CU_POINTER_ATTRIBUTE_RANGE_SIZE), 9 * kMiB + 5);
    EXPECT_EQ(attribute_of<unsigned long long>(address, CU_POINTER_ATTRIBUTE_BUFFER_ID),
              attribute_of<unsigned long long>(at, CU_POINTER_ATTRIBUTE_BUFFER_ID));
  }
  EXPECT_CU(calls::cuIpcCloseMemHandle(at));
  EXPECT_NE(calls::cuMemGetAddressRange_v2(&base, &size, at), CUDA_SUCCESS);
}

TEST_F(PointerTest, BlockOfAnotherProcessIsOneRangeWhateverItsExtents) {
  const gpumem::test::TemporaryFolder folder;
  const Actor::Environment shared{{"SHARED_FOLDER", folder.path().string()}};
  Actor owner = actor("PassesALargeBlockOn", shared);
  owner.await();
  Actor user = actor("LooksAtALargeBlock", shared);
  EXPECT_TRUE(user.succeeds()) << user.output();
  owner.tell_and_expect_success();
}

}  // namespace
}  // namespace gpumem::shim::test
