// NVML: what monitoring tools ask, old forms of calls, faults.
#include <nvml.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "sim/control/faults.h"
#include "sim/machine/machine.h"
#include "tests/sim/sim_fixture.h"
#include "tests/sim/work_support.h"

namespace gpumem::sim::test {
namespace {

class NvmlState : public SimTest {
 protected:
  static nvmlDevice_t device() {
    nvmlDevice_t handle{};
    EXPECT_EQ(nvmlDeviceGetHandleByIndex_v2(0, &handle), NVML_SUCCESS);
    return handle;
  }
  void add(const char* fault) {
    const auto machine = load_machine(folder_);
    ASSERT_TRUE(machine.has_value());
    const auto added = add_fault(*machine, fault);
    ASSERT_TRUE(added.has_value()) << added.error().message;
  }
};

TEST_F(NvmlState, WhatToolsAskFirstIsAnswered) {
  unsigned value = 0, other = 0;
  nvmlEnableState_t mode{};
  nvmlComputeMode_t compute{};
  nvmlBrandType_t brand{};
  nvmlBAR1Memory_t bar1{};
  EXPECT_EQ(nvmlDeviceGetMigMode(device(), &value, &other), NVML_SUCCESS);
  EXPECT_EQ(value, unsigned{NVML_DEVICE_MIG_DISABLE});
  EXPECT_EQ(nvmlDeviceGetTemperature(device(), NVML_TEMPERATURE_GPU, &value), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetPowerUsage(device(), &value), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetEnforcedPowerLimit(device(), &other), NVML_SUCCESS);
  EXPECT_LE(value, other);
  EXPECT_EQ(nvmlDeviceGetClockInfo(device(), NVML_CLOCK_SM, &value), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetMaxClockInfo(device(), NVML_CLOCK_SM, &other), NVML_SUCCESS);
  EXPECT_LE(value, other);
  EXPECT_EQ(nvmlDeviceGetPersistenceMode(device(), &mode), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetComputeMode(device(), &compute), NVML_SUCCESS);
  EXPECT_EQ(compute, NVML_COMPUTEMODE_DEFAULT);
  EXPECT_EQ(nvmlDeviceGetBrand(device(), &brand), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetBAR1MemoryInfo(device(), &bar1), NVML_SUCCESS);
  EXPECT_EQ(bar1.bar1Free + bar1.bar1Used, bar1.bar1Total);
  EXPECT_EQ(nvmlDeviceGetFanSpeed(device(), &value), NVML_ERROR_NOT_SUPPORTED);
  char version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
  EXPECT_EQ(nvmlSystemGetDriverVersion(version, sizeof version), NVML_SUCCESS);
  EXPECT_EQ(std::string(version).find_first_not_of("0123456789."), std::string::npos) << version;
}

TEST_F(NvmlState, NothingCanBeSet) {
  nvmlEnableState_t mode{};
  EXPECT_EQ(nvmlDeviceSetPersistenceMode(device(), NVML_FEATURE_DISABLED), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceGetPersistenceMode(device(), &mode), NVML_SUCCESS);
  EXPECT_EQ(mode, NVML_FEATURE_ENABLED);
}

TEST_F(NvmlState, OlderPciInfoWritesNothingPastItsEnd) {
  nvmlPciInfo_t old{}, now{};
  std::memset(&old, 0x55, sizeof old);
  const nvmlPciInfo_t before = old;
  EXPECT_EQ(nvmlDeviceGetPciInfo_v2(device(), &old), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetPciInfo_v3(device(), &now), NVML_SUCCESS);
  EXPECT_STREQ(old.busIdLegacy, now.busIdLegacy);
  EXPECT_EQ(std::memcmp(old.busId, before.busId, sizeof old.busId), 0);
}

TEST_F(NvmlState, EveryFormOfTheProcessListIsSizedFirst) {
  Process process([](Channel& channel) {
    enter_primary();
    create(kPage);
    channel.signal_and_await();
  });
  process.channel().await();
  unsigned first = 0, second = 0, third = 0;
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses(device(), &first, nullptr), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses_v2(device(), &second, nullptr),
            NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(device(), &third, nullptr), NVML_ERROR_INSUFFICIENT_SIZE);
  ASSERT_EQ(first, 1U);
  EXPECT_EQ(second, 1U);
  EXPECT_EQ(third, 1U);
  nvmlProcessInfo_v1_t info{};
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses(device(), &first, &info), NVML_SUCCESS);
  EXPECT_EQ(info.pid, static_cast<unsigned>(process.pid()));
  EXPECT_GT(info.usedGpuMemory, kPage) << "and its context";
  EXPECT_EQ(nvmlDeviceGetGraphicsRunningProcesses_v2(device(), &second, nullptr), NVML_SUCCESS);
  EXPECT_EQ(second, 0U);
  EXPECT_EQ(nvmlDeviceGetProcessUtilization(device(), nullptr, &third, 0), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(third, 0U);
  process.kill();
}

TEST_F(NvmlState, ProcessesHaveTheirRealNames) {
  char name[4096], cropped[4];
  const auto pid = static_cast<unsigned>(::getpid());
  EXPECT_EQ(nvmlSystemGetProcessName(pid, name, sizeof name), NVML_SUCCESS);
  EXPECT_NE(std::string(name).find("sim_test"), std::string::npos) << name;
  EXPECT_EQ(nvmlSystemGetProcessName(pid, cropped, sizeof cropped), NVML_SUCCESS);
  EXPECT_EQ(std::string(name).substr(0, 3), cropped);
  EXPECT_EQ(nvmlSystemGetProcessName(0x7ffffff0, name, sizeof name), NVML_ERROR_NOT_FOUND);
}

TEST_F(NvmlState, EveryErrorHasAText) {
  EXPECT_STREQ(nvmlErrorString(NVML_SUCCESS), "Success");
  EXPECT_STREQ(nvmlErrorString(NVML_ERROR_NOT_SUPPORTED), "Not Supported");
  EXPECT_STREQ(nvmlErrorString(static_cast<nvmlReturn_t>(500)), "Unknown Error");
}

TEST_F(NvmlState, CallsFailAsFaultsSay) {
  nvmlMemory_t memory{};
  add("nvmlDeviceGetMemoryInfo fail 999 times 1");
  EXPECT_EQ(nvmlDeviceGetMemoryInfo(device(), &memory), NVML_ERROR_UNKNOWN);
  EXPECT_EQ(nvmlDeviceGetMemoryInfo(device(), &memory), NVML_SUCCESS);
  add("nvmlDeviceGetCount fail GPU_IS_LOST");
  unsigned count = 0;
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), NVML_ERROR_GPU_IS_LOST);
}

TEST_F(NvmlState, LibraryThatStartsAnewHasTheFaultsOfItsNewMachine) {
  add("nvmlDeviceGetCount fail GPU_IS_LOST");
  unsigned count = 0;
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), NVML_ERROR_GPU_IS_LOST);
  const std::filesystem::path other = folder_.string() + "-other";
  ASSERT_TRUE(create_machine(other, "1x32MiB", SIM_LIBRARIES).has_value());
  EXPECT_EQ(nvmlShutdown(), NVML_SUCCESS);
  ::setenv("GPUMEM_SIM_MACHINE", other.c_str(), 1);
  ASSERT_EQ(nvmlInit_v2(), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
  EXPECT_TRUE(remove_machine(other).has_value());
}

}  // namespace
}  // namespace gpumem::sim::test
