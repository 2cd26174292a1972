// How programs find the driver's functions: by base name, version and flags.
#include <atomic>
#include <thread>

#include "tests/contract/driver/streams.h"

namespace gpumem::contract {
namespace {

using ProcAddress = DriverTest;

// CUdriverProcAddress_flags and CUdriverProcAddressQueryResult, which the oldest headers lack.
constexpr unsigned long long kLegacyStream = 1, kPerThreadStream = 2;
constexpr int kFound = 0, kNoSuchSymbol = 1, kNotInThisVersion = 2;

int newest() {
  int version = 0;
  must(calls().cuDriverGetVersion(&version));
  return version;
}

TEST_IN_PROCESS(ProcAddress, FindsWhatTheHeaderDeclares) {
#define GPUMEM_CONTRACT_EXPECT_FOUND(name, version) EXPECT_NE(find(#name, version).address, nullptr) << #name;
  GPUMEM_CONTRACT_CALLS(GPUMEM_CONTRACT_EXPECT_FOUND)
#undef GPUMEM_CONTRACT_EXPECT_FOUND
}

TEST_IN_PROCESS(ProcAddress, IsTheSameEveryTime) {
  EXPECT_EQ(find("cuMemAlloc", 3020).address, find("cuMemAlloc", 3020).address);
  EXPECT_EQ(find("cuMemAlloc", 3020).address, find("cuMemAlloc", newest()).address) << "until a newer form";
}

TEST_IN_PROCESS(ProcAddress, OfAnOlderVersionIsAnotherFunction) {
  EXPECT_NE(find("cuCtxCreate", 3020).address, find("cuCtxCreate", 11040).address);
  EXPECT_NE(find("cuGetProcAddress", 11030).address, find("cuGetProcAddress", 12000).address);
}

TEST_IN_PROCESS(ProcAddress, OfAnUnknownNameIsNull) {
  const Found unknown = find("cuNoSuchFunction", newest());
  EXPECT_EQ(unknown.address, nullptr);
  if (unknown.status == -1) return;  // before CUDA 12 the result says it
  EXPECT_EQ(unknown.result, CUDA_SUCCESS);
  EXPECT_EQ(unknown.status, kNoSuchSymbol);
  EXPECT_EQ(find("", newest()).address, nullptr);
}

TEST_IN_PROCESS(ProcAddress, SaysWhetherTheVersionSuffices) {
  const Found known = find("cuMemCreate", 10020);
  if (known.status == -1) return;  // before CUDA 12
  EXPECT_EQ(known.status, kFound);
  const Found too_early = find("cuMemCreate", 9000);
  EXPECT_EQ(too_early.address, nullptr);
  EXPECT_EQ(too_early.status, kNotInThisVersion);
}

TEST_IN_PROCESS(ProcAddress, OfAVersionNewerThanTheDriverIsInvalid) {
  EXPECT_EQ(find("cuMemAlloc", newest() + 10).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(find("cuMemAlloc", newest()).result, CUDA_SUCCESS);
}

TEST_F(ProcAddress, OfUnknownFlagsIsInvalid) {
  in_process([] { EXPECT_EQ(find("cuMemAlloc", 3020, 1ULL << 40).result, CUDA_ERROR_INVALID_VALUE); });
}

TEST_IN_PROCESS(ProcAddress, PerThreadIsAnotherFunctionWhereAStreamMatters) {
  for (const char* name : {"cuMemcpyHtoDAsync", "cuMemsetD8Async", "cuStreamSynchronize", "cuEventRecord"}) {
    const Found legacy = find(name, 7000, kLegacyStream), own = find(name, 7000, kPerThreadStream);
    EXPECT_NE(legacy.address, nullptr) << name;
    EXPECT_NE(own.address, nullptr) << name;
    EXPECT_NE(own.address, legacy.address) << name;
  }
  EXPECT_EQ(find("cuMemAlloc", 7000, kPerThreadStream).address, find("cuMemAlloc", 7000).address)
      << "and the same where none does";
  EXPECT_EQ(find("cuMemcpyHtoDAsync", 3020, kPerThreadStream).address, nullptr)
      << "there were none before CUDA 7.0";
}

TEST_IN_CONTEXT(ProcAddress, PerThreadDefaultStreamsDoNotWaitForEachOther) {
  CUcontext shared = nullptr;
  must(calls().cuCtxGetCurrent(&shared));
  const auto launch = raw<decltype(&::cuLaunchHostFunc)>("cuLaunchHostFunc", 10000, kPerThreadStream);
  const auto fill_async = raw<decltype(&::cuMemsetD8Async)>("cuMemsetD8Async", 7000, kPerThreadStream);
  const auto synchronise =
      raw<decltype(&::cuStreamSynchronize)>("cuStreamSynchronize", 7000, kPerThreadStream);
  static std::atomic<bool> opened{false};
  const DeviceMemory memory(4096);
  must(launch(
      nullptr, [](void*) { opened.wait(false); }, nullptr));  // holds up this thread's stream
  std::thread([&] {
    must(calls().cuCtxSetCurrent(shared));
    EXPECT_OK(fill_async(memory, 1, 4096, nullptr));
    EXPECT_OK(synchronise(nullptr)) << "another thread's";
  }).join();
  opened = true;
  opened.notify_all();
  EXPECT_OK(synchronise(nullptr));
}

}  // namespace
}  // namespace gpumem::contract
