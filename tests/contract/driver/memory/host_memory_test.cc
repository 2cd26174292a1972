// Pinned host memory: allocated, or registered where it is; in several processes too.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include <cstring>

#include "tests/contract/driver/streams.h"

namespace gpumem::contract {
namespace {

using HostMemory = DriverTest;
constexpr std::size_t kSize = 1U << 20;

TEST_IN_CONTEXT(HostMemory, AllocatedHasOneAddressOnBothSides) {
  void* host = nullptr;
  ASSERT_OK(calls().cuMemHostAlloc(&host, kSize, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  CUdeviceptr seen = 0;
  EXPECT_OK(calls().cuMemHostGetDevicePointer(&seen, host, 0));
  EXPECT_EQ(seen, reinterpret_cast<CUdeviceptr>(host)) << "unified addressing";
  unsigned flags = 0;
  EXPECT_OK(calls().cuMemHostGetFlags(&flags, host));
  EXPECT_TRUE((flags & CU_MEMHOSTALLOC_PORTABLE) != 0);
  EXPECT_OK(calls().cuMemFreeHost(host));
  EXPECT_REFUSED(calls().cuMemFreeHost(host)) << "a second time";
}

// As the host store has it, if the driver allocates that. Without a context on either side.
TEST_F(HostMemory, OnANodeIsZeroSharedAndMappedForEveryProcessor) {
  Process owner([this](Channel& channel) {
    const auto own = cuda::Allocation::create_on_host(driver(), 0, unit_);
    if (!own) return channel.tell(own.error().message);
    channel.tell("made");
    channel.send(exported(*own).get());
    channel.await();
  });
  if (const std::string made = owner.channel().hear(); made != "made") {
    owner.join();
    GTEST_SKIP() << "this driver has no such memory: " << made;
  }
  const UniqueFd descriptor = owner.channel().receive();
  for (const int value : {0, 7}) {
    Process user([&](Channel&) {
      std::vector<cuda::Allocation> extents;
      extents.push_back(import(descriptor, unit_));
      const cuda::Reservation range = reserve(unit_);
      const auto mapped = cuda::Mapping::create(driver(), range.base(), extents, cuda::kHostOrdinal);
      ASSERT_TRUE(mapped) << mapped.error().message;
      auto* const bytes = reinterpret_cast<char*>(range.base());
      EXPECT_EQ(bytes[0], value);
      EXPECT_EQ(bytes[unit_.count - 1], value);
      std::memset(bytes, 7, unit_.count);
      const cuda::CurrentContext entered = context();
      EXPECT_TRUE(holds(range.base(), unit_, 7)) << "the device reads what a CPU has written";
      CUdeviceptr seen = 0;
      EXPECT_OK(calls().cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, range.base()));
      EXPECT_EQ(seen, range.base());
    });
    user.join();
  }
  owner.signal_and_join();
}

TEST_F(HostMemory, CostsNoDeviceMemory) {
  Process process([this](Channel& channel) {
    const cuda::CurrentContext entered = context();
    channel.signal_and_await();
    PinnedNumbers pinned(4 * block_.count / sizeof(unsigned));
    channel.signal_and_await();
  });
  process.channel().await();
  const std::uint64_t before = used();
  process.channel().signal_and_await();
  expect_used(before);
  process.signal_and_join();
}

TEST_IN_CONTEXT(HostMemory, IsRegisteredWhereItIsAndOnce) {
  void* const host = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(host, MAP_FAILED);
  ASSERT_OK(calls().cuMemHostRegister(host, kSize, CU_MEMHOSTREGISTER_PORTABLE));
  EXPECT_EQ(calls().cuMemHostRegister(host, kSize, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  unsigned type = 0;
  EXPECT_OK(calls().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                          reinterpret_cast<CUdeviceptr>(host)));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  EXPECT_OK(calls().cuMemHostUnregister(host));
  EXPECT_EQ(calls().cuMemHostUnregister(host), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(::munmap(host, kSize), 0);
}

TEST_IN_CONTEXT(HostMemory, RegisteredHasAllItsPages) {
  void* const host = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(host, MAP_FAILED);
  const auto pages = [host] {
    std::vector<unsigned char> there(kSize / static_cast<std::size_t>(::getpagesize()));
    EXPECT_EQ(::mincore(host, kSize, there.data()), 0);
    return std::ranges::count_if(there, [](unsigned char one) { return (one & 1) != 0; });
  };
  EXPECT_EQ(pages(), 0);
  ASSERT_OK(calls().cuMemHostRegister(host, kSize, 0));
  EXPECT_EQ(pages(), static_cast<std::ptrdiff_t>(kSize) / ::getpagesize());
  EXPECT_OK(calls().cuMemHostUnregister(host));
  EXPECT_EQ(::munmap(host, kSize), 0);
  EXPECT_REFUSED(calls().cuMemHostRegister(host, kSize, 0)) << "nothing is mapped there";
}

TEST_IN_CONTEXT(HostMemory, RegistrationEndsAtItsStartAlone) {
  void* const host = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(host, MAP_FAILED);
  ASSERT_OK(calls().cuMemHostRegister(host, kSize, 0));
  // As the tests of cuda-python 12.6.0 have it: cuda/tests/test_cudart.py, test_cudart_hostRegister.
  EXPECT_EQ(calls().cuMemHostUnregister(static_cast<char*>(host) + kSize / 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(calls().cuMemHostUnregister(host));
  EXPECT_EQ(::munmap(host, kSize), 0);
}

TEST_IN_CONTEXT(HostMemory, RegisteredIsCopiedFromAndTo) {
  void* const host = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(host, MAP_FAILED);
  ASSERT_OK(calls().cuMemHostRegister(host, kSize, 0));
  const Stream stream;
  const DeviceMemory memory(kSize);
  auto* const numbers = static_cast<unsigned*>(host);
  numbers[0] = 4711;
  must(calls().cuMemcpyHtoDAsync(memory, host, kSize, stream));
  must(calls().cuStreamSynchronize(stream));
  numbers[0] = 0;
  must(calls().cuMemcpyDtoHAsync(host, memory, kSize, stream));
  must(calls().cuStreamSynchronize(stream));
  EXPECT_EQ(numbers[0], 4711U);
  EXPECT_OK(calls().cuMemHostUnregister(host));
}

TEST_F(HostMemory, OfOneSharedFileIsRegisteredInSeveralProcesses) {
  const UniqueFd file(::memfd_create("shared", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kSize), 0);
  const auto map_shared = [&file] {
    void* const host = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    must(calls().cuMemHostRegister(host, kSize, CU_MEMHOSTREGISTER_PORTABLE));
    return static_cast<unsigned*>(host);
  };
  Process writer([&](Channel& channel) {
    const cuda::CurrentContext entered = context();
    unsigned* const host = map_shared();
    const DeviceMemory memory(kSize);
    must(calls().cuMemsetD32(memory, 99, kSize / sizeof(unsigned)));
    must(calls().cuMemcpyDtoH(host, memory, kSize));
    channel.signal_and_await();
  });
  writer.channel().await();
  in_process([&] {
    const cuda::CurrentContext entered = context();
    unsigned* const host = map_shared();
    EXPECT_EQ(host[kSize / sizeof(unsigned) - 1], 99U);
  });
  writer.signal_and_join();
}

TEST_IN_CONTEXT(HostMemory, OfNobodyIsNotFreedOrUnregistered) {
  static int plain = 0;
  EXPECT_REFUSED(calls().cuMemFreeHost(&plain));
  EXPECT_REFUSED(calls().cuMemHostUnregister(&plain));
  EXPECT_REFUSED(calls().cuMemHostRegister(nullptr, kSize, 0));
  EXPECT_REFUSED(calls().cuMemHostRegister(&plain, 0, 0));
}

}  // namespace
}  // namespace gpumem::contract
