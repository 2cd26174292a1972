// NVML: what a device is built of and near to, what its sensors could say, events. Asked by nvitop, gpustat
// and cuda.core.
#define NVML_NO_UNVERSIONED_FUNC_DEFS  // names mean themselves
#include <nvml.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <string>

#include "tests/sim/sim_fixture.h"

#ifdef nvmlDeviceAddressingMode_v1  // headers that know this know all that is asked here
namespace gpumem::sim::test {
namespace {

class NvmlBoard : public SimTest {
 protected:
  NvmlBoard() : SimTest("2x64MiB") {}

  static nvmlDevice_t device(unsigned index = 0) {
    nvmlDevice_t handle{};
    EXPECT_EQ(nvmlDeviceGetHandleByIndex_v2(index, &handle), NVML_SUCCESS);
    return handle;
  }
  static std::string serial(unsigned index) {
    char text[30];
    EXPECT_EQ(nvmlDeviceGetSerial(device(index), text, sizeof text), NVML_SUCCESS);
    return text;
  }
};

TEST_F(NvmlBoard, EveryDeviceHasASerialNumberOfItsOwn) {
  EXPECT_EQ(serial(0).size(), 13U);
  EXPECT_EQ(serial(0).find_first_not_of("0123456789"), std::string::npos);
  EXPECT_NE(serial(0), serial(1));
  EXPECT_EQ(serial(0), serial(0));
  char little[5];
  EXPECT_EQ(nvmlDeviceGetSerial(device(), little, sizeof little), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(nvmlDeviceGetSerial(nullptr, little, sizeof little), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlBoard, BoardAndItsRecordsAreTold) {
  char text[80];
  EXPECT_EQ(nvmlDeviceGetBoardPartNumber(device(), text, sizeof text), NVML_SUCCESS);
  EXPECT_STREQ(text, "900-00000-0000-000");
  EXPECT_EQ(nvmlDeviceGetInforomImageVersion(device(), text, sizeof text), NVML_SUCCESS);
  EXPECT_STREQ(text, "G520.0000.00.00");
  EXPECT_EQ(nvmlDeviceGetInforomVersion(device(), NVML_INFOROM_OEM, text, sizeof text), NVML_SUCCESS);
  EXPECT_STREQ(text, "2.1");
  EXPECT_EQ(nvmlDeviceGetInforomVersion(device(), NVML_INFOROM_ECC, text, sizeof text), NVML_SUCCESS);
  EXPECT_STREQ(text, "7.16");
  EXPECT_EQ(nvmlDeviceGetInforomVersion(device(), NVML_INFOROM_POWER, text, sizeof text),
            NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceValidateInforom(device()), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceValidateInforom(nullptr), NVML_ERROR_INVALID_ARGUMENT);
  unsigned long long time = 0;
  unsigned long duration = 0;
  EXPECT_EQ(nvmlDeviceGetLastBBXFlushTime(device(), &time, &duration), NVML_ERROR_NOT_READY);
  unsigned module = 7;
  EXPECT_EQ(nvmlDeviceGetModuleId(device(1), &module), NVML_SUCCESS);
  EXPECT_EQ(module, 1U);
}

TEST_F(NvmlBoard, BothFormsOfPciInformationAgree) {
  nvmlPciInfo_t info{};
  nvmlPciInfoExt_t more{};
  EXPECT_EQ(nvmlDeviceGetPciInfoExt(device(1), &more), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  more.version = nvmlPciInfoExt_v1;
  ASSERT_EQ(nvmlDeviceGetPciInfoExt(device(1), &more), NVML_SUCCESS);
  ASSERT_EQ(nvmlDeviceGetPciInfo_v3(device(1), &info), NVML_SUCCESS);
  EXPECT_STREQ(more.busId, info.busId);
  EXPECT_EQ(more.bus, info.bus);
  EXPECT_EQ(more.pciDeviceId, info.pciDeviceId);
  EXPECT_EQ(more.pciSubSystemId, info.pciSubSystemId);
  EXPECT_EQ(more.baseClass, 3U);  // of displays
  unsigned generation = 0;
  EXPECT_EQ(nvmlDeviceGetGpuMaxPcieLinkGeneration(device(1), &generation), NVML_SUCCESS);
  EXPECT_EQ(generation, 5U);
}

TEST_F(NvmlBoard, PartsOfTheWholeDeviceAreTold) {
  nvmlDeviceAttributes_t parts{};
  ASSERT_EQ(nvmlDeviceGetAttributes_v2(device(), &parts), NVML_SUCCESS);
  EXPECT_EQ(parts.multiprocessorCount, 132U);
  EXPECT_EQ(parts.memorySizeMB, 64U);
  EXPECT_EQ(parts.gpuInstanceSliceCount, 0U);
  nvmlC2cModeInfo_v1_t link{7};
  EXPECT_EQ(nvmlDeviceGetC2cModeInfoV(device(), &link), NVML_SUCCESS);
  EXPECT_EQ(link.isC2cEnabled, 0U);
  nvmlDeviceAddressingMode_t mode{nvmlDeviceAddressingMode_v1, 7};
  EXPECT_EQ(nvmlDeviceGetAddressingMode(device(), &mode), NVML_SUCCESS);
  EXPECT_EQ(mode.value, unsigned{NVML_DEVICE_ADDRESSING_MODE_NONE});
  nvmlRepairStatus_t repair{nvmlRepairStatus_v1, 7, 7};
  EXPECT_EQ(nvmlDeviceGetRepairStatus(device(), &repair), NVML_SUCCESS);
  EXPECT_EQ(repair.bChannelRepairPending + repair.bTpcRepairPending, 0U);
  mode.version = repair.version = 0;
  EXPECT_EQ(nvmlDeviceGetAddressingMode(device(), &mode), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  EXPECT_EQ(nvmlDeviceGetRepairStatus(device(), &repair), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
}

TEST_F(NvmlBoard, WhatSuchDevicesLackIsNotSupported) {
  unsigned value = 0;
  nvmlEnableState_t now{}, initially{};
  nvmlDriverModel_t model{}, pending{};
  EXPECT_EQ(nvmlDeviceGetNumaNodeId(device(), &value), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceGetNvLinkState(device(), 0, &now), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceGetAutoBoostedClocksEnabled(device(), &now, &initially), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceGetDriverModel_v2(device(), &model, &pending), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceGetDriverModel(device(), &model, &pending), NVML_ERROR_NOT_SUPPORTED);
}

TEST_F(NvmlBoard, DriverBranchIsTold) {
  nvmlSystemDriverBranchInfo_t branch{};
  EXPECT_EQ(nvmlSystemGetDriverBranch(&branch, sizeof branch.branch), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  branch.version = nvmlSystemDriverBranchInfo_v1;
  EXPECT_EQ(nvmlSystemGetDriverBranch(&branch, 3), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(nvmlSystemGetDriverBranch(nullptr, 80), NVML_ERROR_INVALID_ARGUMENT);
  ASSERT_EQ(nvmlSystemGetDriverBranch(&branch, sizeof branch.branch), NVML_SUCCESS);
  EXPECT_STREQ(branch.branch, "r580_00");
}

TEST_F(NvmlBoard, EveryProcessorIsAsNearToEveryDevice) {
  const auto online = static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_ONLN));
  std::array<unsigned long, 64> set;
  set.fill(~0UL);
  ASSERT_EQ(nvmlDeviceGetCpuAffinity(device(), set.size(), set.data()), NVML_SUCCESS);
  int bits = 0;
  for (const unsigned long word : set) bits += std::popcount(word);
  EXPECT_EQ(bits, static_cast<int>(online));
  EXPECT_EQ(set[0] & 1, 1U);
  EXPECT_EQ(nvmlDeviceGetCpuAffinityWithinScope(device(), 64, set.data(), NVML_AFFINITY_SCOPE_SOCKET),
            NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetCpuAffinityWithinScope(device(), 64, set.data(), 7), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlDeviceGetMemoryAffinity(device(), 64, set.data(), NVML_AFFINITY_SCOPE_NODE), NVML_SUCCESS);
  EXPECT_EQ(set[0], 1U);
  EXPECT_EQ(nvmlDeviceGetCpuAffinity(device(), 0, set.data()), NVML_ERROR_INVALID_ARGUMENT);
  std::array<nvmlDevice_t, 4> near{};
  unsigned count = 0;
  ASSERT_EQ(nvmlSystemGetTopologyGpuSet(online - 1, &count, nullptr), NVML_SUCCESS);
  EXPECT_EQ(count, 2U);
  count = 1;
  ASSERT_EQ(nvmlSystemGetTopologyGpuSet(0, &count, near.data()), NVML_SUCCESS);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(near[0], device(0));
  EXPECT_EQ(near[1], nullptr);
  EXPECT_EQ(nvmlSystemGetTopologyGpuSet(online, &count, nullptr), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlBoard, DevicesSitOnOneHostBridgeAndReachEachOther) {
  nvmlGpuTopologyLevel_t level{};
  ASSERT_EQ(nvmlDeviceGetTopologyCommonAncestor(device(0), device(1), &level), NVML_SUCCESS);
  EXPECT_EQ(level, NVML_TOPOLOGY_HOSTBRIDGE);
  unsigned count = 0;
  ASSERT_EQ(nvmlDeviceGetTopologyNearestGpus(device(0), level, &count, nullptr), NVML_SUCCESS);
  ASSERT_EQ(count, 1U);
  nvmlDevice_t nearest{};
  ASSERT_EQ(nvmlDeviceGetTopologyNearestGpus(device(0), level, &count, &nearest), NVML_SUCCESS);
  EXPECT_EQ(nearest, device(1));
  ASSERT_EQ(nvmlDeviceGetTopologyNearestGpus(device(0), NVML_TOPOLOGY_SINGLE, &count, nullptr), NVML_SUCCESS);
  EXPECT_EQ(count, 0U);
  int same = 7;
  EXPECT_EQ(nvmlDeviceOnSameBoard(device(0), device(1), &same), NVML_SUCCESS);
  EXPECT_EQ(same, 0);
  const auto status = [&](nvmlGpuP2PCapsIndex_t what) {
    nvmlGpuP2PStatus_t answer{};
    EXPECT_EQ(nvmlDeviceGetP2PStatus(device(0), device(1), what, &answer), NVML_SUCCESS);
    return answer;
  };
  EXPECT_EQ(status(NVML_P2P_CAPS_INDEX_READ), NVML_P2P_STATUS_OK);
  EXPECT_EQ(status(NVML_P2P_CAPS_INDEX_ATOMICS), NVML_P2P_STATUS_OK);
  EXPECT_EQ(status(NVML_P2P_CAPS_INDEX_NVLINK), NVML_P2P_STATUS_NOT_SUPPORTED);
  nvmlGpuP2PStatus_t answer{};
  EXPECT_EQ(nvmlDeviceGetP2PStatus(device(0), nullptr, NVML_P2P_CAPS_INDEX_READ, &answer),
            NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlBoard, NewFormsOfTheTemperatureAgreeWithTheOld) {
  unsigned old = 0, slow = 0;
  ASSERT_EQ(nvmlDeviceGetTemperature(device(), NVML_TEMPERATURE_GPU, &old), NVML_SUCCESS);
  ASSERT_EQ(nvmlDeviceGetTemperatureThreshold(device(), NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, &slow),
            NVML_SUCCESS);
  nvmlTemperature_t now{nvmlTemperature_v1, NVML_TEMPERATURE_GPU, 0};
  EXPECT_EQ(nvmlDeviceGetTemperatureV(device(), &now), NVML_SUCCESS);
  EXPECT_EQ(now.temperature, static_cast<int>(old));
  now.version = 0;
  EXPECT_EQ(nvmlDeviceGetTemperatureV(device(), &now), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  EXPECT_EQ(nvmlDeviceGetTemperatureV(device(), nullptr), NVML_ERROR_INVALID_ARGUMENT);
  nvmlMarginTemperature_t margin{nvmlMarginTemperature_v1, 0};
  EXPECT_EQ(nvmlDeviceGetMarginTemperature(device(), &margin), NVML_SUCCESS);
  EXPECT_EQ(margin.marginTemperature, static_cast<int>(slow - old));
  nvmlGpuThermalSettings_t sensors{};
  EXPECT_EQ(nvmlDeviceGetThermalSettings(device(), NVML_THERMAL_TARGET_ALL, &sensors), NVML_SUCCESS);
  EXPECT_EQ(sensors.count, 1U);
  EXPECT_EQ(sensors.sensor[0].currentTemp, static_cast<int>(old));
  EXPECT_EQ(nvmlDeviceGetThermalSettings(device(), 1, &sensors), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlBoard, ClocksStandStillInTheOnlyPerformanceState) {
  std::array<nvmlPstates_t, 16> states{};
  ASSERT_EQ(nvmlDeviceGetSupportedPerformanceStates(device(), states.data(), sizeof states), NVML_SUCCESS);
  EXPECT_EQ(states[0], NVML_PSTATE_0);
  EXPECT_EQ(states[1], NVML_PSTATE_UNKNOWN);
  EXPECT_EQ(nvmlDeviceGetSupportedPerformanceStates(device(), states.data(), 1),
            NVML_ERROR_INSUFFICIENT_SIZE);
  nvmlGpuDynamicPstatesInfo_t busy{};
  ASSERT_EQ(nvmlDeviceGetDynamicPstatesInfo(device(), &busy), NVML_SUCCESS);
  EXPECT_EQ(busy.utilization[0].bIsPresent, 1U);
  EXPECT_EQ(busy.utilization[0].percentage, 0U);
  unsigned least = 0, most = 0, boost = 0;
  EXPECT_EQ(nvmlDeviceGetMinMaxClockOfPState(device(), NVML_CLOCK_SM, NVML_PSTATE_0, &least, &most),
            NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetMaxCustomerBoostClock(device(), NVML_CLOCK_SM, &boost), NVML_SUCCESS);
  EXPECT_EQ(least, 1980U);
  EXPECT_EQ(most, least);
  EXPECT_EQ(boost, most);
  EXPECT_EQ(nvmlDeviceGetMinMaxClockOfPState(device(), NVML_CLOCK_SM, NVML_PSTATE_5, &least, &most),
            NVML_ERROR_INVALID_ARGUMENT);
  nvmlClockOffset_t offset{nvmlClockOffset_v1, NVML_CLOCK_SM, NVML_PSTATE_0, 7, 7, 7};
  EXPECT_EQ(nvmlDeviceGetClockOffsets(device(), &offset), NVML_SUCCESS);
  EXPECT_EQ(offset.clockOffsetMHz, 0);
  unsigned long long current = 0, supported = 0;
  EXPECT_EQ(nvmlDeviceGetCurrentClocksEventReasons(device(), &current), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetSupportedClocksEventReasons(device(), &supported), NVML_SUCCESS);
  EXPECT_EQ(supported & current, current);
  EXPECT_EQ(nvmlDeviceGetSupportedClocksThrottleReasons(device(), &current), NVML_SUCCESS);
  EXPECT_EQ(supported, current);
}

TEST_F(NvmlBoard, CountedFieldsStandAtZeroAndOthersAreNotSupported) {
  std::array<nvmlFieldValue_t, 2> fields{};
  fields[0].fieldId = NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION;
  fields[0].value.ullVal = 7;
  fields[1].fieldId = NVML_FI_DEV_NVLINK_LINK_COUNT;
  ASSERT_EQ(nvmlDeviceGetFieldValues(device(), 2, fields.data()), NVML_SUCCESS);
  EXPECT_EQ(fields[0].nvmlReturn, NVML_SUCCESS);
  EXPECT_EQ(fields[0].value.ullVal, 0U);
  EXPECT_GT(fields[0].timestamp, 0);
  EXPECT_EQ(fields[1].nvmlReturn, NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceClearFieldValues(device(), 1, fields.data()), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetFieldValues(device(), 2, nullptr), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlBoard, EventsAreWaitedForInVain) {
  unsigned long long types = 0;
  ASSERT_EQ(nvmlDeviceGetSupportedEventTypes(device(), &types), NVML_SUCCESS);
  EXPECT_NE(types & nvmlEventTypeXidCriticalError, 0U);
  nvmlEventSet_t set{};
  ASSERT_EQ(nvmlEventSetCreate(&set), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceRegisterEvents(device(), nvmlEventTypeXidCriticalError, set), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceRegisterEvents(device(), ~0ULL, set), NVML_ERROR_NOT_SUPPORTED);
  nvmlEventData_t data{};
  EXPECT_EQ(nvmlEventSetWait_v2(set, &data, 0), NVML_ERROR_TIMEOUT);
  EXPECT_EQ(nvmlEventSetWait(set, &data, 1), NVML_ERROR_TIMEOUT);
  EXPECT_EQ(nvmlEventSetFree(set), NVML_SUCCESS);
  EXPECT_EQ(nvmlEventSetFree(set), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlEventSetWait_v2(set, &data, 0), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlDeviceRegisterEvents(device(), nvmlEventTypeXidCriticalError, set),
            NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlBoard, NoDeviceComesOrGoes) {
  nvmlSystemEventSetCreateRequest_t made{};
  EXPECT_EQ(nvmlSystemEventSetCreate(&made), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  made.version = nvmlSystemEventSetCreateRequest_v1;
  ASSERT_EQ(nvmlSystemEventSetCreate(&made), NVML_SUCCESS);
  nvmlSystemRegisterEventRequest_t asked{nvmlSystemRegisterEventRequest_v1,
                                         nvmlSystemEventTypeGpuDriverUnbind, made.set};
  EXPECT_EQ(nvmlSystemRegisterEvents(&asked), NVML_SUCCESS);
  asked.eventTypes = ~0ULL;
  EXPECT_EQ(nvmlSystemRegisterEvents(&asked), NVML_ERROR_INVALID_ARGUMENT);
  nvmlSystemEventData_v1_t event{};
  nvmlSystemEventSetWaitRequest_t wait{nvmlSystemEventSetWaitRequest_v1, 0, made.set, &event, 1, 7};
  EXPECT_EQ(nvmlSystemEventSetWait(&wait), NVML_ERROR_TIMEOUT);
  EXPECT_EQ(wait.numEvent, 0U);
  nvmlSystemEventSetFreeRequest_t freed{nvmlSystemEventSetFreeRequest_v1, made.set};
  EXPECT_EQ(nvmlSystemEventSetFree(&freed), NVML_SUCCESS);
  EXPECT_EQ(nvmlSystemEventSetFree(&freed), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlSystemEventSetWait(&wait), NVML_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace gpumem::sim::test
#endif
