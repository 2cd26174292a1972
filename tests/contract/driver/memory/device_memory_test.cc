// cuMemAlloc and its relatives: what they charge, where they begin and end, what an address is.
#include "tests/contract/driver/streams.h"

namespace gpumem::contract {
namespace {

using Memory = DriverTest;

template <class Value>
CUresult ask_of_pointer(Value& value, CUpointer_attribute attribute, CUdeviceptr address) {
  return calls().cuPointerGetAttribute(&value, attribute, address);
}

TEST_F(Memory, OfCuMemAllocIsChargedAndFreed) {
  Process process([this](Channel& channel) {
    const cuda::CurrentContext entered = context();
    CUdeviceptr address = 0;
    channel.await();
    ASSERT_OK(calls().cuMemAlloc(&address, 3 * block_.count));
    channel.signal_and_await();
    EXPECT_OK(calls().cuMemFree(address));
    channel.signal_and_await();
  });
  process.channel().signal_and_await();
  const std::uint64_t with_it = used();  // the context's own memory, and this
  expect_used_at_least(3 * block_.count);
  process.channel().signal_and_await();
  expect_used(with_it - 3 * block_.count);
  process.signal_and_join();
  expect_used(0);
}

TEST_F(Memory, OfAKilledProcessIsFreed) {
  Process process([this](Channel& channel) {
    const cuda::CurrentContext entered = context();
    const DeviceMemory memory(3 * block_.count);
    must(calls().cuMemsetD8(memory, 1, 3 * block_.count));
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used_at_least(3 * block_.count);
  process.kill();
  expect_used(0);
}

TEST_IN_CONTEXT(Memory, IsAlignedForEverything) {
  for (const std::size_t size : {1U, 100U, 4096U, 1U << 20, 3U << 20}) {
    CUdeviceptr address = 0;
    ASSERT_OK(calls().cuMemAlloc(&address, size));
    EXPECT_EQ(address % 256, 0U) << size;
    EXPECT_OK(calls().cuMemFree(address));
  }
}

TEST_IN_CONTEXT(Memory, OfNoneOrTooManyBytesIsRefused) {
  CUdeviceptr address = 0;
  EXPECT_EQ(calls().cuMemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls().cuMemAlloc(&address, device().total.count + (1U << 20)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls().cuMemAlloc(&address, std::size_t{1} << 60), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_REFUSED(calls().cuMemAlloc(nullptr, 4096));
  EXPECT_OK(calls().cuMemAlloc(&address, 4096)) << "a refusal spoils nothing";
  EXPECT_OK(calls().cuMemFree(address));
}

TEST_IN_CONTEXT(Memory, IsFreedOnceAndByItsStart) {
  CUdeviceptr address = 0;
  ASSERT_OK(calls().cuMemAlloc(&address, 4U << 20));
  EXPECT_EQ(calls().cuMemFree(address + 4096), CUDA_ERROR_INVALID_VALUE) << "inside";
  EXPECT_OK(calls().cuMemFree(address));
  EXPECT_EQ(calls().cuMemFree(address), CUDA_ERROR_INVALID_VALUE) << "a second time";
}

TEST_IN_PROCESS(Memory, OfMappedExtentsIsNotFreedAsAllocated) {
  const Mapped mapped = map(allocate(unit_));
  const cuda::CurrentContext entered = context();
  EXPECT_REFUSED(calls().cuMemFree(mapped.range.base()));
  EXPECT_TRUE((fill(mapped.range.base(), unit_, 2), holds(mapped.range.base(), unit_, 2)));
}

TEST_IN_CONTEXT(Memory, TellsItsRangeFromAnyAddressInside) {
  const std::size_t size = 5U << 20;
  const DeviceMemory memory(size);
  for (const std::size_t offset : {std::size_t{0}, std::size_t{12345}, size - 1}) {
    CUdeviceptr base = 0;
    std::size_t length = 0;
    EXPECT_OK(calls().cuMemGetAddressRange(&base, &length, memory + offset));
    EXPECT_EQ(base, static_cast<CUdeviceptr>(memory));
    EXPECT_GE(length, size);
    EXPECT_LE(length, size + (2U << 20)) << "rounded up at most";
  }
  CUdeviceptr base = 0;
  EXPECT_OK(calls().cuMemGetAddressRange(&base, nullptr, memory)) << "either may be null";
  EXPECT_EQ(base, static_cast<CUdeviceptr>(memory));
}

TEST_IN_PROCESS(Memory, TellsTheRangeOfAMappedExtent) {
  const Mapped mapped = map(allocate(unit_));
  const cuda::CurrentContext entered = context();
  CUdeviceptr base = 0;
  std::size_t length = 0;
  EXPECT_OK(calls().cuMemGetAddressRange(&base, &length, mapped.range.base() + 100));
  EXPECT_LE(base, mapped.range.base() + 100);
  EXPECT_GT(base + length, mapped.range.base() + 100);
}

TEST_IN_CONTEXT(Memory, TellsWhatAnAddressIs) {
  const std::size_t size = 4U << 20;
  const DeviceMemory memory(size);
  CUcontext current = nullptr, owner = nullptr;
  must(calls().cuCtxGetCurrent(&current));
  unsigned type = 0;
  int ordinal = -1;
  CUdeviceptr start = 0, pointer = 0;
  std::size_t length = 0;
  EXPECT_OK(ask_of_pointer(type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 8));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_OK(ask_of_pointer(ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
  EXPECT_EQ(ordinal, device().ordinal);
  EXPECT_OK(ask_of_pointer(owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
  EXPECT_EQ(owner, current);
  EXPECT_OK(ask_of_pointer(start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 8));
  EXPECT_EQ(start, static_cast<CUdeviceptr>(memory));
  EXPECT_OK(ask_of_pointer(length, CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory + 8));
  EXPECT_EQ(length, size);
  EXPECT_OK(ask_of_pointer(pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, memory + 8));
  EXPECT_EQ(pointer, memory + 8);
}

TEST_IN_CONTEXT(Memory, HasABufferIdOfItsOwn) {
  const DeviceMemory first(4096), second(4096);
  unsigned long long one = 0, inside = 0, other = 0;
  EXPECT_OK(ask_of_pointer(one, CU_POINTER_ATTRIBUTE_BUFFER_ID, first));
  EXPECT_OK(ask_of_pointer(inside, CU_POINTER_ATTRIBUTE_BUFFER_ID, first + 100));
  EXPECT_OK(ask_of_pointer(other, CU_POINTER_ATTRIBUTE_BUFFER_ID, second));
  EXPECT_EQ(one, inside);
  EXPECT_NE(one, other);
}

TEST_IN_CONTEXT(Memory, IsTellablyIpcCapableOrNot) {
  const DeviceMemory memory(4U << 20);
  const Mapped mapped = map(allocate(unit_));
  bool is_capable = false;
  EXPECT_OK(ask_of_pointer(is_capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory));
  EXPECT_TRUE(is_capable);
  EXPECT_OK(ask_of_pointer(is_capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, mapped.range.base()));
  EXPECT_FALSE(is_capable) << "mapped extents are shared by descriptor";
  unsigned long long types = 99;
  EXPECT_OK(ask_of_pointer(types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, mapped.range.base()));
  EXPECT_EQ(types, static_cast<unsigned>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
}

TEST_IN_CONTEXT(Memory, IsMadeSynchronousUntilItIsFreedUnlessItIsMapped) {
  const auto set = [](CUdeviceptr address) {
    const unsigned on = 1;
    return calls().cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address);
  };
  const auto is_set = [](CUdeviceptr address) {
    unsigned value = 0;
    EXPECT_OK(ask_of_pointer(value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    return (value & 0xff) != 0;
  };
  CUdeviceptr one = 0, other = 0;
  must(calls().cuMemAlloc(&one, 3000));
  must(calls().cuMemAlloc(&other, 3000));
  EXPECT_OK(set(one + 17));
  EXPECT_TRUE(is_set(one));
  EXPECT_FALSE(is_set(other));
  must(calls().cuMemFree(one));
  must(calls().cuMemAlloc(&one, 3000));
  EXPECT_FALSE(is_set(one)) << "another block, even where the one was";
  const Mapped mapped = map(allocate(unit_));
  EXPECT_EQ(set(mapped.range.base()), CUDA_ERROR_NOT_SUPPORTED);
  must(calls().cuMemFree(one));
  must(calls().cuMemFree(other));
}

TEST_IN_CONTEXT(Memory, OfTheHostIsUnknownUnlessPinned) {
  static int plain = 0;
  unsigned type = 99;
  EXPECT_EQ(ask_of_pointer(type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&plain)),
            CUDA_ERROR_INVALID_VALUE);
  PinnedNumbers pinned(16);
  EXPECT_OK(
      ask_of_pointer(type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(pinned.data())));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  void* host = nullptr;
  EXPECT_OK(
      ask_of_pointer(host, CU_POINTER_ATTRIBUTE_HOST_POINTER, reinterpret_cast<CUdeviceptr>(pinned.data())));
  EXPECT_EQ(host, pinned.data());
}

TEST_IN_CONTEXT(Memory, AnswersSeveralAttributesAtOnceEvenForForeignAddresses) {
  const DeviceMemory memory(4096);
  static int plain = 0;
  unsigned type = 99;
  int ordinal = 99;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&type, &ordinal};
  EXPECT_OK(calls().cuPointerGetAttributes(2, attributes, values, memory));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(ordinal, device().ordinal);
  EXPECT_OK(calls().cuPointerGetAttributes(2, attributes, values, reinterpret_cast<CUdeviceptr>(&plain)));
  EXPECT_EQ(type, 0U) << "nothing";
}

TEST_IN_CONTEXT(Memory, OfManagedAllocationsIsReachedFromBothSides) {
  CUdeviceptr address = 0;
  const std::size_t count = 1024;
  ASSERT_OK(calls().cuMemAllocManaged(&address, count * sizeof(unsigned), CU_MEM_ATTACH_GLOBAL));
  EXPECT_OK(calls().cuMemsetD32(address, 12, count));
  EXPECT_OK(calls().cuCtxSynchronize());
  auto* const host = reinterpret_cast<volatile unsigned*>(address);
  EXPECT_EQ(host[count - 1], 12U);
  host[0] = 13;
  unsigned seen = 0;
  EXPECT_OK(calls().cuMemcpyDtoH(&seen, address, sizeof seen));
  EXPECT_EQ(seen, 13U);
  bool is_managed = false;
  EXPECT_OK(ask_of_pointer(is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
  EXPECT_TRUE(is_managed);
  EXPECT_OK(calls().cuMemFree(address));
  EXPECT_EQ(calls().cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_REFUSED(calls().cuMemAllocManaged(&address, 4096, 0xff)) << "no such flags";
}

}  // namespace
}  // namespace gpumem::contract
