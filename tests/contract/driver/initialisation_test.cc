// Before cuInit, and after fork(): the two states in which nothing works. And what errors are called.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "cuda/memory.h"
#include "tests/contract/driver/fixture.h"

namespace gpumem::contract {
namespace {

using Initialisation = DriverTest;

// Calls of every family, with arguments that would do.
struct Attempt {
  const char* name;
  CUresult result;
};
std::vector<Attempt> attempts(std::uint64_t size) {
  const Calls& cu = calls();
  static int number;
  static std::size_t bytes;
  static CUmemGenericAllocationHandle handle;
  static CUdeviceptr address;
  static CUcontext context;
  static CUstream stream;
  const CUmemAllocationProp properties = cuda::allocation_properties(0);
  const CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  return {{"cuDeviceGetCount", cu.cuDeviceGetCount(&number)},
          {"cuDeviceGet", cu.cuDeviceGet(&number, 0)},
          {"cuDeviceTotalMem", cu.cuDeviceTotalMem(&bytes, 0)},
          {"cuDevicePrimaryCtxRetain", cu.cuDevicePrimaryCtxRetain(&context, 0)},
          {"cuCtxGetCurrent", cu.cuCtxGetCurrent(&context)},
          {"cuCtxSynchronize", cu.cuCtxSynchronize()},
          {"cuMemGetInfo", cu.cuMemGetInfo(&bytes, &bytes)},
          {"cuMemAlloc", cu.cuMemAlloc(&address, 4096)},
          {"cuMemFree", cu.cuMemFree(size)},
          {"cuStreamCreate", cu.cuStreamCreate(&stream, 0)},
          {"cuMemGetAllocationGranularity",
           cu.cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM)},
          {"cuMemCreate", cu.cuMemCreate(&handle, size, &properties, 0)},
          {"cuMemAddressReserve", cu.cuMemAddressReserve(&address, size, 0, 0, 0)},
          {"cuMemSetAccess", cu.cuMemSetAccess(size, size, &access, 1)},
          {"cuMemUnmap", cu.cuMemUnmap(size, size)}};
}

TEST_IN_PROCESS(Initialisation, ComesBeforeEverythingElse) {
  for (const Attempt& attempt : attempts(unit_.count)) {
    EXPECT_EQ(attempt.result, CUDA_ERROR_NOT_INITIALIZED) << attempt.name;
  }
  EXPECT_OK(calls().cuInit(0));
  allocate(unit_);
}

TEST_IN_PROCESS(Initialisation, IsNotNeededForVersionsAndWords) {
  int version = 0;
  EXPECT_OK(calls().cuDriverGetVersion(&version));
  EXPECT_GE(version, 11080);
  const char* name = nullptr;
  EXPECT_OK(calls().cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
  EXPECT_STREQ(name, "CUDA_ERROR_OUT_OF_MEMORY");
}

TEST_IN_PROCESS(Initialisation, TwiceIsAsGoodAsOnce) {
  EXPECT_OK(calls().cuInit(0));
  EXPECT_OK(calls().cuInit(0));
  allocate(unit_);
}

TEST_F(Initialisation, CostsNoDeviceMemory) {
  Process process([](Channel& channel) {
    driver();
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used(0);
  process.signal_and_join();
}

TEST_IN_PROCESS(Initialisation, DoesNotComeThroughFork) {
  const Mapped mapped = map(allocate(unit_));
  fill(mapped.range.base(), unit_, 1);
  calls();  // found before the fork, as a program's would be
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    int refused = 0;
    const std::vector<Attempt> all = attempts(unit_.count);
    for (const Attempt& attempt : all) refused += attempt.result == CUDA_ERROR_NOT_INITIALIZED ? 1 : 0;
    ::_exit(refused == static_cast<int>(all.size()) ? 0 : 100 + refused);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "wait status " << status;
  EXPECT_TRUE(holds(mapped.range.base(), unit_, 1)) << "the parent goes on";
}

TEST_F(Initialisation, LostInAChildPinsNoMemory) {
  Process process([this](Channel& channel) {
    pid_t child = -1;
    int to_child[2];
    ASSERT_EQ(::pipe(to_child), 0);
    {
      const Mapped mapped = map(allocate(block_));
      child = ::fork();
      if (child == 0) {
        ::close(to_child[1]);
        char nothing = 0;
        const ssize_t ended = ::read(to_child[0], &nothing, 1);  // until the parent closes its end
        ::_exit(ended == 0 ? 0 : 1);
      }
    }
    channel.signal_and_await();
    ::close(to_child[1]);
    ::waitpid(child, nullptr, 0);
  });
  process.channel().await();
  expect_used(0);
  process.signal_and_join();
}

TEST_IN_PROCESS(Initialisation, ErrorsHaveNamesAndWords) {
  const Calls& cu = calls();
  const std::pair<CUresult, const char*> kNamed[] = {
      {CUDA_SUCCESS, "CUDA_SUCCESS"},
      {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
      {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
      {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
      {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED"},
      {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
      {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
      {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
      {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
      {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
      {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY"},
      {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED"},
      {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
      {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"}};
  for (const auto& [result, expected] : kNamed) {
    const char* name = nullptr;
    const char* words = nullptr;
    EXPECT_EQ(cu.cuGetErrorName(result, &name), CUDA_SUCCESS);
    EXPECT_STREQ(name, expected);
    EXPECT_EQ(cu.cuGetErrorString(result, &words), CUDA_SUCCESS);
    EXPECT_TRUE(words != nullptr && std::strlen(words) > 0) << expected;
  }
  const char* name = "unchanged";
  EXPECT_EQ(cu.cuGetErrorName(static_cast<CUresult>(1001), &name), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(name, nullptr) << "an unknown result has no name";
}

}  // namespace
}  // namespace gpumem::contract
