// NVML's figures, and which devices a process sees.
#include <nvml.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "sim/machine/machine.h"
#include "tests/sim/sim_fixture.h"

namespace gpumem::sim::test {
namespace {

class TwoDevices : public SimTest {
 protected:
  TwoDevices() : SimTest("1x64MiB,1x32MiB") {}

  static nvmlDevice_t device(unsigned index) {
    nvmlDevice_t handle{};
    EXPECT_EQ(nvmlDeviceGetHandleByIndex(index, &handle), NVML_SUCCESS);
    return handle;
  }
  static std::string uuid(unsigned index) {
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    EXPECT_EQ(nvmlDeviceGetUUID(device(index), text, sizeof text), NVML_SUCCESS);
    return text;
  }
};

TEST_F(TwoDevices, BothLibrariesTellTheSameDevices) {
  in_process([] {
    ASSERT_CU(cuInit(0));
    int count = 0;
    EXPECT_CU(cuDeviceGetCount(&count));
    EXPECT_EQ(count, 2);
    for (unsigned i = 0; i < 2; ++i) {
      CUuuid bytes{};
      EXPECT_CU(cuDeviceGetUuid(&bytes, static_cast<int>(i)));
      Uuid expected;
      std::memcpy(expected.data(), bytes.bytes, expected.size());
      EXPECT_EQ(uuid(i), to_string(expected));
      std::size_t total = 0;
      nvmlMemory_v2_t memory{};
      memory.version = nvmlMemory_v2;
      EXPECT_CU(cuDeviceTotalMem(&total, static_cast<int>(i)));
      EXPECT_EQ(nvmlDeviceGetMemoryInfo_v2(device(i), &memory), NVML_SUCCESS);
      EXPECT_EQ(memory.total, total);
    }
    EXPECT_NE(uuid(0), uuid(1));
    nvmlDevice_t found = nullptr;
    for (const std::string& name : {uuid(1), uuid(1).substr(4)}) {
      EXPECT_EQ(nvmlDeviceGetHandleByUUID(name.c_str(), &found), NVML_SUCCESS) << name;
      EXPECT_EQ(found, device(1));
    }
    EXPECT_EQ(nvmlDeviceGetHandleByUUID("", &found), NVML_ERROR_NOT_FOUND);
  });
}

TEST_F(TwoDevices, ProcessesAreListedWithWhatTheyCreated) {
  Process process([](Peer& peer) {
    ASSERT_CU(cuInit(0));
    create(6 * kMiB, 1);
    CUcontext context{};
    EXPECT_CU(cuDevicePrimaryCtxRetain(&context, 1));
    peer.signal();
    peer.await();
  });
  process.peer().await();
  unsigned count = 0;
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses(device(1), &count, nullptr), NVML_ERROR_INSUFFICIENT_SIZE);
  ASSERT_EQ(count, 1U);
  std::vector<nvmlProcessInfo_t> infos(count);
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses(device(1), &count, infos.data()), NVML_SUCCESS);
  EXPECT_EQ(infos[0].pid, static_cast<unsigned>(process.pid()));
  EXPECT_EQ(infos[0].usedGpuMemory, 8 * kMiB);
  EXPECT_EQ(used(1), 8 * kMiB);
  EXPECT_EQ(used(0), 0U);
  process.kill();
  count = 0;
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses(device(1), &count, nullptr), NVML_SUCCESS);
  EXPECT_EQ(count, 0U);
}

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
    EXPECT_EQ(nvmlDeviceGetCount(&all), NVML_SUCCESS);
    EXPECT_EQ(all, 2U);
  });
}

TEST_F(TwoDevices, MemoryOfAHiddenDeviceCannotBeImported) {
  Process exporter([](Peer& peer) {
    ASSERT_CU(cuInit(0));
    peer.send(exported(create(kPage, 0)).get());
    peer.await();
  });
  const UniqueFd fd = exporter.peer().receive();
  ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  in_process([&] {
    ASSERT_CU(cuInit(0));
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(import(fd.get(), &handle), CUDA_ERROR_INVALID_DEVICE);
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

TEST_F(TwoDevices, CallsOutsideInitAndShutdownAreRefused) {
  in_process([] {
    nvmlShutdown();
    unsigned count = 0;
    EXPECT_EQ(nvmlDeviceGetCount(&count), NVML_ERROR_UNINITIALIZED);
    EXPECT_EQ(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
    EXPECT_EQ(nvmlInit(), NVML_SUCCESS);
    nvmlUtilization_t utilization{};
    EXPECT_EQ(nvmlDeviceGetUtilizationRates(nullptr, &utilization), NVML_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(nvmlDeviceGetUtilizationRates(device(0), &utilization), NVML_SUCCESS);
    char tiny[4];
    EXPECT_EQ(nvmlDeviceGetUUID(device(0), tiny, sizeof tiny), NVML_ERROR_INSUFFICIENT_SIZE);
  });
}

}  // namespace
}  // namespace gpumem::sim::test
