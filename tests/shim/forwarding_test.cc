// Trampolines: the driver's functions under the driver's names.
#include <cuda.h>

#include <barrier>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/shim/fixture.h"
#include "tests/shim/old_driver.h"

namespace gpumem::shim::test {
namespace {

using ShimForwarding = ShimTest;

/// The library's answers about its devices, and to bad arguments: results and figures, in the order of the
/// calls.
std::vector<std::size_t> answers_of(const Opened& library) {
  std::vector<std::size_t> all;
  const auto note = [&](CUresult result, std::size_t value = 0) { all.insert(all.end(), {result, value}); };
  int number = 0;
  std::size_t bytes = 0;
  CUuuid uuid{};
  const char* words = nullptr;
  note(library.get<decltype(::cuInit)>("cuInit")(77));
  note(library.get<decltype(::cuInit)>("cuInit")(0));
  note(library.get<decltype(::cuDriverGetVersion)>("cuDriverGetVersion")(&number),
       static_cast<std::size_t>(number));
  note(library.get<decltype(::cuDeviceGetCount)>("cuDeviceGetCount")(&number),
       static_cast<std::size_t>(number));
  note(library.get<decltype(::cuDeviceGet)>("cuDeviceGet")(&number, 99));
  note(library.get<decltype(::cuDeviceTotalMem_v2)>("cuDeviceTotalMem_v2")(&bytes, 0), bytes);
  note(library.get<decltype(::cuDeviceTotalMem_v2)>("cuDeviceTotalMem_v2")(nullptr, 0));
  note(library.get<decltype(::cuDeviceGetUuid_v2)>("cuDeviceGetUuid_v2")(&uuid, 0),
       static_cast<unsigned char>(uuid.bytes[15]));
  note(library.get<decltype(::cuGetErrorName)>("cuGetErrorName")(CUDA_ERROR_OUT_OF_MEMORY, &words),
       reinterpret_cast<std::size_t>(words));
  note(library.get<decltype(::cuGetErrorName)>("cuGetErrorName")(static_cast<CUresult>(998), &words));
  note(library.get<decltype(::cuMemFree_v2)>("cuMemFree_v2")(12345));
  return all;
}

TEST_F(ShimForwarding, AnswersAsTheDriverDoes) {
  with_both([](const Opened& shim, const Opened& driver) {
    const std::vector<std::size_t> through_shim = answers_of(shim);
    EXPECT_EQ(file_of(shim.find("cuInit")), shim_folder() / "libcuda.so.1");
    EXPECT_NE(file_of(driver.find("cuInit")), shim_folder() / "libcuda.so.1");
    EXPECT_EQ(through_shim, answers_of(driver));
    EXPECT_EQ(through_shim, answers_of(shim)) << "again";
  });
}

TEST_F(ShimForwarding, MemoryWrittenThroughItIsReadByTheDriver) {
  with_both([](const Opened& shim, const Opened& driver) {
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    const std::vector<int> written(1024, 4711);
    std::vector<int> read(written.size());
    const std::size_t bytes = written.size() * sizeof(int);
    ASSERT_EQ(shim.get<decltype(::cuInit)>("cuInit")(0), CUDA_SUCCESS);
    ASSERT_EQ(shim.get<decltype(::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 0),
              CUDA_SUCCESS);
    ASSERT_EQ(shim.get<decltype(::cuCtxSetCurrent)>("cuCtxSetCurrent")(context), CUDA_SUCCESS);
    ASSERT_EQ(shim.get<decltype(::cuMemAlloc_v2)>("cuMemAlloc_v2")(&address, bytes), CUDA_SUCCESS);
    ASSERT_EQ(shim.get<decltype(::cuMemcpyHtoD_v2)>("cuMemcpyHtoD_v2")(address, written.data(), bytes),
              CUDA_SUCCESS);
    ASSERT_EQ(driver.get<decltype(::cuMemcpyDtoH_v2)>("cuMemcpyDtoH_v2")(read.data(), address, bytes),
              CUDA_SUCCESS);
    EXPECT_EQ(read, written);
    EXPECT_EQ(shim.get<decltype(::cuMemFree_v2)>("cuMemFree_v2")(address), CUDA_SUCCESS);
  });
}

TEST_F(ShimForwarding, PassesEveryArgumentOnFromTheFirstCall) {
  in_process([] {
    ::setenv("GPUMEM_REAL_LIBCUDA", SHIM_TEST_OLD_DRIVER, 1);
    const Opened shim(shim_folder() / "libcuda.so.1");
    auto* const launch = shim.get<OldLaunch>("cuLaunchKernel");
    const PassedArguments wanted{{1, -2, 3, -4, 5, -6, 7}, {.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5}};
    for (const char* call : {"first", "second"}) {
      PassedArguments passed{};
      EXPECT_EQ(launch(1, -2, 3, -4, 5, -6, .5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 7, &passed), 4711) << call;
      EXPECT_EQ(passed, wanted) << call;
    }
  });
}

TEST_F(ShimForwarding, ACallThatTheDriverLacksNeedsANewerDriver) {
  in_process([] {
    ::setenv("GPUMEM_REAL_LIBCUDA", SHIM_TEST_OLD_DRIVER, 1);
    const Opened shim(shim_folder() / "libcuda.so.1");
    int version = 0;
    EXPECT_EQ(shim.get<decltype(::cuDriverGetVersion)>("cuDriverGetVersion")(&version), CUDA_SUCCESS);
    EXPECT_EQ(version, 11080);
    for (int call = 0; call < 2; ++call) {
      EXPECT_EQ(static_cast<int>(shim.get<decltype(::cuCtxSynchronize)>("cuCtxSynchronize")()), 36);
    }
  });
}

TEST_F(ShimForwarding, ThreadsThatComeFirstTogetherAllGetThrough) {
  in_process([] {
    const Opened shim(shim_folder() / "libcuda.so.1");
    constexpr int kThreads = 16;
    std::barrier start(kThreads);
    std::vector<std::thread> threads;
    std::vector<int> counts(kThreads, -1);
    for (int& count : counts) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        EXPECT_EQ(shim.get<decltype(::cuInit)>("cuInit")(0), CUDA_SUCCESS);
        EXPECT_EQ(shim.get<decltype(::cuDeviceGetCount)>("cuDeviceGetCount")(&count), CUDA_SUCCESS);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(counts, std::vector<int>(kThreads, 1));
  });
}

}  // namespace
}  // namespace gpumem::shim::test
