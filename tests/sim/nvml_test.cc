// NVML's figures, and which devices a process sees.
#include <nvml.h>

#include <cstdlib>

#include "tests/sim/sim_fixture.h"

namespace gpumem::sim::test {
namespace {

class TwoDevices : public SimTest {
 protected:
  TwoDevices() : SimTest("1x64MiB,1x32MiB") {}

  static nvmlDevice_t device(unsigned index) {
    nvmlDevice_t handle{};
    EXPECT_EQ(nvmlDeviceGetHandleByIndex_v2(index, &handle), NVML_SUCCESS);
    return handle;
  }
  static std::string uuid(unsigned index) {
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    EXPECT_EQ(nvmlDeviceGetUUID(device(index), text, sizeof text), NVML_SUCCESS);
    return text;
  }
};

TEST_F(TwoDevices, HiddenDeviceIsHiddenFromCudaOnly) {
  ::setenv("CUDA_VISIBLE_DEVICES", uuid(1).c_str(), 1);
  in_process([] {
    ASSERT_CU(cuInit(0));
    int count = 0;
    std::size_t total = 0;
    EXPECT_CU(cuDeviceGetCount(&count));
    EXPECT_EQ(count, 1);
    EXPECT_CU(cuDeviceTotalMem(&total, 0));
    EXPECT_EQ(total, 32 * kMiB);
    create(kPage);
    EXPECT_EQ(used(1), kPage);
    unsigned all = 0;
    EXPECT_EQ(nvmlDeviceGetCount_v2(&all), NVML_SUCCESS);
    EXPECT_EQ(all, 2U);
  });
}

TEST_F(TwoDevices, VisibleListEndsAtTheFirstUnknownDevice) {
  const auto count_of = [](const char* list, int expected) {
    ::setenv("CUDA_VISIBLE_DEVICES", list, 1);
    in_process([&] {
      int count = 0;
      EXPECT_EQ(cuInit(0), expected > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE);
      if (expected > 0) {
        EXPECT_CU(cuDeviceGetCount(&count));
      }
      EXPECT_EQ(count, expected);
    });
  };
  count_of("1,0", 2);
  count_of("1,7,0", 1);
  count_of("0,0", 0);
  count_of("-1", 0);
  count_of("", 0);
  count_of(uuid(0).substr(0, 12).c_str(), 1);
}

TEST_IN_PROCESS(TwoDevices, CallsOutsideInitAndShutdownAreRefused) {
  EXPECT_EQ(nvmlInitWithFlags(NVML_INIT_FLAG_NO_GPUS), NVML_SUCCESS);  // beside the fixture's
  unsigned count = 0;
  EXPECT_EQ(nvmlShutdown(), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
  EXPECT_EQ(nvmlShutdown(), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  nvmlUtilization_t utilization{};
  EXPECT_EQ(nvmlDeviceGetUtilizationRates(nullptr, &utilization), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlDeviceGetUtilizationRates(device(0), &utilization), NVML_SUCCESS);
  char tiny[4];
  EXPECT_EQ(nvmlDeviceGetUUID(device(0), tiny, sizeof tiny), NVML_ERROR_INSUFFICIENT_SIZE);
}

}  // namespace
}  // namespace gpumem::sim::test
