// The machine's faults and costs as a program meets them, and calls that are not simulated.
#include <cuda.h>
#include <dlfcn.h>
#include <sys/wait.h>

#include <chrono>
#include <string>

#include "sim/control/costs.h"
#include "sim/control/faults.h"
#include "sim/machine/machine.h"
#include "tests/sim/graphs/graph_support.h"

namespace gpumem::sim::test {
namespace {

class Gates : public SimTest {
 protected:
  void fault(const char* text) const {
    const auto added = add_fault(load_machine(folder_).value(), text);
    ASSERT_TRUE(added) << added.error().message;
  }
};

TEST_IN_PROCESS(Gates, CallFailsWhereItShallAndChangesNothing) {
  ASSERT_CU(cuInit(0));
  const auto prop = properties();
  CUmemGenericAllocationHandle handle = 0;
  fault("cuMemCreate fail OUT_OF_MEMORY nth 2");
  EXPECT_CU(cuMemCreate(&handle, kPage, &prop, 0));
  EXPECT_EQ(cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used(), kPage);
  EXPECT_CU(cuMemCreate(&handle, kPage, &prop, 0));
}

TEST_F(Gates, InitialisationCanFailToo) {
  fault("cuInit fail SYSTEM_DRIVER_MISMATCH times 1");
  in_process([] {
    EXPECT_EQ(cuInit(0), CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_CU(cuInit(0));
  });
}

TEST_F(Gates, VariantsOfACallAreTheCall) {
  fault("cuMemAlloc fail OUT_OF_MEMORY");
  in_process([] {
    enter_primary();
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuMemAlloc(&memory, 4), CUDA_ERROR_OUT_OF_MEMORY);  // exported as cuMemAlloc_v2
    std::size_t pitch = 0;
    EXPECT_CU(cuMemAllocPitch(&memory, &pitch, 4, 4, 4)) << "another call, though it allocates";
  });
}

TEST_F(Gates, CallerIsKilledAtTheCallAndLeavesNothing) {
  Process process([](Channel& channel) {
    ASSERT_CU(cuInit(0));
    const auto handle = create(kPage);
    const CUdeviceptr address = reserve(kPage);
    channel.await();
    cuMemMap(address, kPage, 0, handle, 0);
    ADD_FAILURE() << "not reached";
  });
  fault(("cuMemMap kill pid " + std::to_string(process.pid())).c_str());
  in_process([] {
    ASSERT_CU(cuInit(0));
    mapped(create(kPage), kPage);  // of another process
  });
  process.channel().signal();
  const int status = process.wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(used(), 0U);
}

TEST_F(Gates, CostOfAsynchronousBytesIsTheStreams) {
  const auto machine = load_machine(folder_).value();
  const auto profile = parse_costs("cuMemsetD8Async 0us 20ms\ncuMemsetD8 0us 20ms\n");
  ASSERT_TRUE(profile) << profile.error().message;
  ASSERT_TRUE(set_costs(machine, *profile));
  in_process([] {
    enter_primary();
    CUdeviceptr memory = 0;
    ASSERT_CU(cuMemAlloc(&memory, kPage));
    CUevent start = nullptr, end = nullptr;
    ASSERT_CU(cuEventCreate(&start, 0));
    ASSERT_CU(cuEventCreate(&end, 0));
    EXPECT_CU(cuEventRecord(start, nullptr));
    EXPECT_CU(cuMemsetD8Async(memory, 1, kPage, nullptr));
    EXPECT_CU(cuEventRecord(end, nullptr));
    EXPECT_CU(cuEventSynchronize(end));
    float milliseconds = 0;
    EXPECT_CU(cuEventElapsedTime(&milliseconds, start, end));
    EXPECT_GE(milliseconds, 40);
  });
}

TEST_F(Gates, CostOfCapturedBytesIsThatOfEachLaunch) {
  const auto machine = load_machine(folder_).value();
  const auto profile = parse_costs("cuMemsetD8Async 0us 20ms\n");
  ASSERT_TRUE(profile) << profile.error().message;
  ASSERT_TRUE(set_costs(machine, *profile));
  in_process([] {
    enter_primary();
    const CUdeviceptr memory = device_words(kPage / sizeof(unsigned));
    const CUstream stream = begin_capture();
    EXPECT_CU(cuMemsetD8Async(memory, 1, kPage, stream));
    const CUgraphExec exec = instantiate(end_capture(stream));
    CUevent start = nullptr, end = nullptr;
    ASSERT_CU(cuEventCreate(&start, 0));
    ASSERT_CU(cuEventCreate(&end, 0));
    EXPECT_CU(cuEventRecord(start, stream));
    EXPECT_CU(cuGraphLaunch(exec, stream));
    EXPECT_CU(cuGraphLaunch(exec, stream));
    EXPECT_CU(cuEventRecord(end, stream));
    EXPECT_CU(cuEventSynchronize(end));
    float milliseconds = 0;
    EXPECT_CU(cuEventElapsedTime(&milliseconds, start, end));
    EXPECT_GE(milliseconds, 80);
  });
}

TEST_F(Gates, CallThatIsNotSimulatedIsRefusedAndNamedOnce) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(cuTexObjectDestroy(0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuTexObjectDestroy(0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "gpumem-sim: cuTexObjectDestroy is not simulated\n");
}

}  // namespace
}  // namespace gpumem::sim::test
