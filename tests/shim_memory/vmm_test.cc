// Memory that the program maps itself.
#include <fcntl.h>
#include <unistd.h>

#include <set>

#include "client/shim/memory/blocks/handles.h"
#include "tests/shim_memory/scene.h"

namespace gpumem::shim::test {
namespace {

using VmmTest = ShimMemory;
using Handle = CUmemGenericAllocationHandle;

CUmemAllocationProp device_memory(CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  wanted.requestedHandleTypes = types;
  return wanted;
}
CUdeviceptr reserve(std::uint64_t size) {
  CUdeviceptr at = 0;
  EXPECT_CU(real<decltype(&::cuMemAddressReserve)>("cuMemAddressReserve")(&at, size, 0, 0, 0));
  return at;
}
void allow(CUdeviceptr at, std::uint64_t size) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  EXPECT_CU(real<decltype(&::cuMemSetAccess)>("cuMemSetAccess")(at, size, &access, 1));
}

// 20 MiB is what PyTorch's expandable segments ask for: no size that the broker has one extent of.
SCENE(MapsItself) {
  start();
  const CUmemAllocationProp wanted = device_memory();
  Handle handle = 0;
  ASSERT_CU(calls::cuMemCreate(&handle, 20 * kMiB, &wanted, 0));
  EXPECT_EQ(free_memory(), kPool - 20 * kMiB);
  const CUdeviceptr at = reserve(20 * kMiB);
  ASSERT_CU(calls::cuMemMap(at, 20 * kMiB, 0, handle, 0));
  allow(at, 20 * kMiB);
  ASSERT_CU(real<decltype(&::cuMemsetD8_v2)>("cuMemsetD8_v2")(at, 5, 20 * kMiB));
  EXPECT_EQ(byte_at(at), 5);
  EXPECT_EQ(byte_at(at + 20 * kMiB - 1), 5);
  EXPECT_CU(calls::cuMemRelease(handle));
  tell_and_await();
  EXPECT_EQ(byte_at(at), 5) << "it stays while it is mapped";
  EXPECT_EQ(calls::cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE) << "twice";
  EXPECT_CU(calls::cuMemUnmap(at, 20 * kMiB));
  EXPECT_EQ(free_memory(), kPool);
  tell_and_await();
}

TEST_F(VmmTest, MemoryIsChargedUntilItIsReleasedAndUnmapped) {
  Actor one = actor("MapsItself");
  one.await();
  EXPECT_GE(charged(), 20 * kMiB);
  one.tell_and_await();
  EXPECT_TRUE(gpumem::test::eventually([&] { return charged() < 20 * kMiB; })) << charged();
  one.tell_and_expect_success();
}

SCENE(CreatesOnADeviceThatIsNotThere) {
  start();
  CUmemAllocationProp wanted = device_memory();
  wanted.location.id = 7;
  Handle handle = 0;
  EXPECT_EQ(calls::cuMemCreate(&handle, 2 * kMiB, &wanted, 0), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(VmmTest, DeviceThatIsNotThereIsTheDriversToRefuse) {
  const std::string said = expect("CreatesOnADeviceThatIsNotThere");
  EXPECT_EQ(said.find("not borrowed"), std::string::npos) << said;
}

SCENE(CreatesBeyondTheLimit) {
  start();
  const CUmemAllocationProp wanted = device_memory();
  Handle handle = 0, other = 0;
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 30 * kMiB));
  EXPECT_EQ(calls::cuMemCreate(&handle, 36 * kMiB, &wanted, 0), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(calls::cuMemCreate(&handle, 34 * kMiB, &wanted, 0));
  EXPECT_EQ(calls::cuMemCreate(&other, 2 * kMiB, &wanted, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(calls::cuMemRelease(handle));
  ASSERT_CU(calls::cuMemCreate(&handle, 34 * kMiB, &wanted, 0));
}

TEST_F(VmmTest, LimitHoldsForBlocksAndHandlesTogether) {
  expect("CreatesBeyondTheLimit", {{"GPUMEM_LIMIT", "64MiB"}, {"GPUMEM_WAIT", "10h"}});
}

int exported(Handle handle) {
  int fd = -1;
  EXPECT_CU(calls::cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return fd;
}
CUresult import_from(int fd, Handle* out) {
  return calls::cuMemImportFromShareableHandle(out, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

SCENE(ImportsWhatItExported) {
  start();
  const CUmemAllocationProp wanted = device_memory(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  Handle handle = 0, imported = 0, other = 0;
  ASSERT_CU(calls::cuMemCreate(&handle, 40 * kMiB, &wanted, 0));
  const int first = exported(handle), second = exported(handle);
  ::close(first);
  ASSERT_CU(import_from(second, &imported)) << "each of its exports is known";
  ::close(second);
  const CUdeviceptr at = reserve(40 * kMiB);
  ASSERT_CU(calls::cuMemMap(at, 40 * kMiB, 0, imported, 0));
  EXPECT_CU(calls::cuMemRelease(handle));
  EXPECT_EQ(free_memory(), 24 * kMiB) << "it is mapped";
  EXPECT_EQ(calls::cuMemCreate(&other, 40 * kMiB, &wanted, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(calls::cuMemUnmap(at, 40 * kMiB));
  EXPECT_EQ(free_memory(), 24 * kMiB) << "the import is not released";
  EXPECT_CU(calls::cuMemRelease(imported));
  EXPECT_EQ(free_memory(), 64 * kMiB);
}

TEST_F(VmmTest, WhatAProcessImportsOfItsOwnStaysCharged) {
  expect("ImportsWhatItExported", {{"GPUMEM_LIMIT", "64MiB"}});
}

SCENE_TEST(VmmTest, DescriptorIsOfOneHandleAlone) {
  start();
  const CUmemAllocationProp wanted = device_memory(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  Handle one = 0, two = 0, imported = 0;
  ASSERT_CU(calls::cuMemCreate(&one, 2 * kMiB, &wanted, 0));
  ASSERT_CU(calls::cuMemCreate(&two, 2 * kMiB, &wanted, 0));
  const int of_one = exported(one), of_two = exported(two);
  EXPECT_CU(import_from(of_two, &imported));
  EXPECT_EQ(imported, two);
  EXPECT_CU(import_from(of_one, &imported));
  EXPECT_EQ(imported, one);
  EXPECT_EQ(import_from(-1, &imported), CUDA_ERROR_INVALID_VALUE);
}

std::set<int> open_descriptors() {
  std::set<int> open;
  for (int fd = 0; fd < 256; ++fd)
    if (::fcntl(fd, F_GETFD) >= 0) open.insert(fd);
  return open;
}

// A program may open a file under the number of a descriptor of the library's. The library leaves that file
// alone.
SCENE_TEST(VmmTest, DescriptorThatTheProgramClosedIsNotClosedAgain) {
  start();
  const CUmemAllocationProp wanted = device_memory(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  Handle handle = 0;
  ASSERT_CU(calls::cuMemCreate(&handle, 2 * kMiB, &wanted, 0));
  const std::set<int> before = open_descriptors();
  const int own = exported(handle);
  int kept = -1;
  for (const int fd : open_descriptors())
    if (fd != own && !before.contains(fd)) kept = fd;
  ASSERT_GE(kept, 0);
  ASSERT_EQ(::dup2(STDERR_FILENO, kept), kept);
  Handle imported = 0;
  EXPECT_CU(import_from(own, &imported)) << "as another's";
  EXPECT_CU(calls::cuMemRelease(imported));
  EXPECT_CU(calls::cuMemRelease(handle));
  EXPECT_GE(::fcntl(kept, F_GETFD), 0);
}

TEST(ExportedFileTest, DuplicatesAreTheSameAndFilesOfOneInodeAreNot) {
  const gpumem::test::TemporaryFolder folder;
  const std::string path = folder / "file";
  const UniqueFd one(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const UniqueFd two(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const UniqueFd of_one = duplicate_of(one.get());
  for (const auto& is_same : {is_same_open_file, share_status_flags}) {
    EXPECT_TRUE(is_same(one.get(), of_one.get()));
    EXPECT_FALSE(is_same(one.get(), two.get()));
    EXPECT_FALSE(is_same(one.get(), -1));
    EXPECT_FALSE(is_same(-1, one.get()));
  }
  EXPECT_EQ(::fcntl(one.get(), F_GETFL) & O_NONBLOCK, 0) << "the flags are as they were";
}

SCENE_TEST(VmmTest, WholePoolCanBeOneHandle) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 64 * kMiB));
  EXPECT_CU(calls::cuMemFree_v2(at));
  const CUmemAllocationProp wanted = device_memory();
  Handle handle = 0;
  ASSERT_CU(calls::cuMemCreate(&handle, kPool, &wanted, 0)) << "what lies idle in blocks serves";
}

SCENE_TEST(VmmTest, MappingIsAllOrNothing) {
  start();
  const CUmemAllocationProp wanted = device_memory();
  Handle handle = 0;
  ASSERT_CU(calls::cuMemCreate(&handle, 20 * kMiB, &wanted, 0));
  const CUdeviceptr at = reserve(20 * kMiB);
  Handle last = 0;
  ASSERT_CU(calls::cuMemCreate(&last, 2 * kMiB, &wanted, 0));
  ASSERT_CU(calls::cuMemMap(at + 18 * kMiB, 2 * kMiB, 0, last, 0));
  EXPECT_NE(calls::cuMemMap(at, 20 * kMiB, 0, handle, 0), CUDA_SUCCESS) << "its end is taken";
  EXPECT_CU(calls::cuMemUnmap(at + 18 * kMiB, 2 * kMiB));
  EXPECT_CU(calls::cuMemMap(at, 20 * kMiB, 0, handle, 0));
}

SCENE_TEST(VmmTest, RetainedHandleIsTheSameAndIsReleasedOnceMore) {
  start();
  const CUmemAllocationProp wanted = device_memory();
  Handle handle = 0, again = 0;
  ASSERT_CU(calls::cuMemCreate(&handle, 6 * kMiB, &wanted, 0));
  const CUdeviceptr at = reserve(6 * kMiB);
  ASSERT_CU(calls::cuMemMap(at, 6 * kMiB, 0, handle, 0));
  ASSERT_CU(calls::cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(at + 5 * kMiB)));
  EXPECT_EQ(again, handle);
  EXPECT_CU(calls::cuMemUnmap(at, 6 * kMiB));
  EXPECT_CU(calls::cuMemRelease(handle));
  EXPECT_EQ(free_memory(), kPool - 6 * kMiB);
  EXPECT_CU(calls::cuMemRelease(handle));
  EXPECT_EQ(free_memory(), kPool);
  CUdeviceptr block = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&block, 6 * kMiB));
  EXPECT_EQ(calls::cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(block)),
            CUDA_ERROR_INVALID_VALUE)
      << "a block has no handle";
}

// Underneath it is mapped by the same calls.
SCENE_TEST(VmmTest, ABlockIsNotTheProgramsToMapOrUnmap) {
  start();
  CUdeviceptr block = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&block, 8 * kMiB));
  byte_at(block) = 7;
  CUmemAccessDesc none{};
  none.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const CUmemAllocationProp wanted = device_memory();
  Handle handle = 0;
  ASSERT_CU(calls::cuMemCreate(&handle, 2 * kMiB, &wanted, 0));
  for (const CUdeviceptr at : {block, block + 2 * kMiB, block + 64 * kMiB}) {  // the last: mapped by nobody
    EXPECT_EQ(calls::cuMemUnmap(at, 2 * kMiB), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(calls::cuMemSetAccess(at, 2 * kMiB, &none, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(calls::cuMemMap(at, 2 * kMiB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(calls::cuMemAddressFree(at, 2 * kMiB), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(byte_at(block), 7);
  EXPECT_EQ(byte_at(block + 8 * kMiB - 1), 0);
  EXPECT_CU(calls::cuMemRelease(handle));
  EXPECT_CU(calls::cuMemFree_v2(block));
}

SCENE_TEST(VmmTest, PropertiesAreWhatWasAskedFor) {
  start();
  const CUmemAllocationProp wanted = device_memory();
  Handle handle = 0;
  ASSERT_CU(calls::cuMemCreate(&handle, 2 * kMiB, &wanted, 0));
  CUmemAllocationProp found{};
  EXPECT_CU(calls::cuMemGetAllocationPropertiesFromHandle(&found, handle));
  EXPECT_EQ(found.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE) << "not what the broker needs";
  EXPECT_EQ(found.location.id, 0);
}

// As what cuMemAlloc gives, on a device that has it (NCCL and UCX register either with the network's card).
SCENE_TEST(VmmTest, MemoryIsMadeForDirectAccessByOtherCards) {
  start();
  CUmemAllocationProp wanted = device_memory();
  wanted.allocFlags.gpuDirectRDMACapable = 1;
  wanted.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
  Handle handle = 0;
  ASSERT_CU(calls::cuMemCreate(&handle, 6 * kMiB, &wanted, 0));
  CUmemAllocationProp found{};
  EXPECT_CU(calls::cuMemGetAllocationPropertiesFromHandle(&found, handle));
  EXPECT_EQ(found.allocFlags.gpuDirectRDMACapable, 1);
  EXPECT_EQ(found.allocFlags.compressionType, CU_MEM_ALLOCATION_COMP_NONE) << "which drivers refuse, too";
  const CUdeviceptr at = reserve(6 * kMiB);
  ASSERT_CU(calls::cuMemMap(at, 6 * kMiB, 0, handle, 0));
  CUdeviceptr block = 0, ordered = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&block, 3 * kMiB));
  ASSERT_CU(calls::cuMemAllocAsync(&ordered, 3 * kMiB, nullptr));
  for (const CUdeviceptr address : {at, block, ordered}) {
    bool is_capable = false;
    EXPECT_CU(
        calls::cuPointerGetAttribute(&is_capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, address));
    EXPECT_TRUE(is_capable);
  }
}

SCENE_TEST(VmmTest, FabricThatCannotBeIsNotSupportedInEveryCombination) {
  start();
  for (const unsigned types : {8U, 8U | CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}) {
    for (const bool direct : {false, true}) {
      CUmemAllocationProp wanted = device_memory(static_cast<CUmemAllocationHandleType>(types));
      wanted.allocFlags.gpuDirectRDMACapable = direct ? 1 : 0;
      Handle handle = 0;
      EXPECT_EQ(calls::cuMemCreate(&handle, 2 * kMiB, &wanted, 0), CUDA_ERROR_NOT_SUPPORTED) << types;
    }
  }
}

// Host memory is not the device's: the driver answers, and nothing is charged.
SCENE_TEST(VmmTest, MemoryOfTheHostIsTheDriversToGive) {
  start();
  CUmemAllocationProp wanted = device_memory(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  for (const int place : {2, 3, 4}) {  // CU_MEM_LOCATION_TYPE_HOST, _HOST_NUMA, _HOST_NUMA_CURRENT
    wanted.location = {static_cast<CUmemLocationType>(place), 0};
    Handle ours = 0, theirs = 0;
    const CUresult answer = real<decltype(&::cuMemCreate)>("cuMemCreate")(&theirs, 2 * kMiB, &wanted, 0);
    EXPECT_EQ(calls::cuMemCreate(&ours, 2 * kMiB, &wanted, 0), answer) << place;
    EXPECT_EQ(free_memory(), kPool);
    if (answer != CUDA_SUCCESS) continue;
    EXPECT_CU(calls::cuMemRelease(ours));
    EXPECT_CU(calls::cuMemRelease(theirs));
  }
}

SCENE_TEST(VmmTest, ExportedDescriptorIsOfTheMemory) {
  start();
  const CUmemAllocationProp wanted = device_memory(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  Handle handle = 0, imported = 0;
  ASSERT_CU(calls::cuMemCreate(&handle, 2 * kMiB, &wanted, 0));
  int fd = -1;
  ASSERT_CU(calls::cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ASSERT_CU(real<decltype(&::cuMemImportFromShareableHandle)>("cuMemImportFromShareableHandle")(
      &imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ::close(fd);
  const CUdeviceptr at = reserve(4 * kMiB);
  ASSERT_CU(calls::cuMemMap(at, 2 * kMiB, 0, handle, 0));
  ASSERT_CU(calls::cuMemMap(at + 2 * kMiB, 2 * kMiB, 0, imported, 0)) << "the driver's own handle";
  allow(at, 4 * kMiB);
  byte_at(at) = 77;
  EXPECT_EQ(byte_at(at + 2 * kMiB), 77);
}

}  // namespace
}  // namespace gpumem::shim::test
