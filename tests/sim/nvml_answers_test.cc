// NVML: what a device is, is near to and could report. nvitop, gpustat and cuda.core ask for it.
#include <nvml.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/sim/sim_fixture.h"

#ifdef nvmlDeviceAddressingMode_v1  // headers that know this know all that is asked here
namespace gpumem::sim::test {
namespace {

/// A question about a device, answered in one value or more.
struct Question {
  const char* name;
  std::size_t values;
  /// Asks without room for value `missing`; with room for all where there is none of that number.
  std::function<nvmlReturn_t(nvmlDevice_t device, std::size_t missing)> ask;
};

constexpr std::size_t kNoneMissing = 99;

template <class Value>
Value empty() {
  Value value{};
  if constexpr (requires { value.version; }) {
    value.version = unsigned{sizeof value} | 1U << 24;  // as NVML_STRUCT_VERSION makes it
  }
  return value;
}

template <class... Values, class Call>
Question question_by(const char* name, Call call) {
  const auto ask = [=](nvmlDevice_t device, std::size_t missing) {
    std::tuple<Values...> room{empty<Values>()...};
    return [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
      return call(device, (kIndex == missing ? nullptr : &std::get<kIndex>(room))...);
    }
    (std::index_sequence_for<Values...>());
  };
  return {name, sizeof...(Values), ask};
}

template <class... Values>
Question question(const char* name, nvmlReturn_t (*call)(nvmlDevice_t, Values*...)) {
  return question_by<Values...>(name, call);
}
#define ASK(call) question(#call, call)
/// With other arguments before the value.
#define ASK_WITH(Value, call, ...) \
  question_by<Value>(#call, [](nvmlDevice_t device, Value* out) { return call(device, __VA_ARGS__, out); })

std::vector<Question> answered() {
  return {
      ASK(nvmlDeviceGetAccountingMode),
      ASK(nvmlDeviceGetAddressingMode),
      ASK(nvmlDeviceGetArchitecture),
      ASK(nvmlDeviceGetAttributes_v2),
      ASK(nvmlDeviceGetBoardId),
      ASK(nvmlDeviceGetC2cModeInfoV),
      ASK_WITH(unsigned, nvmlDeviceGetClock, NVML_CLOCK_SM, NVML_CLOCK_ID_CURRENT),
      ASK(nvmlDeviceGetClockOffsets),
      ASK(nvmlDeviceGetCurrPcieLinkGeneration),
      ASK(nvmlDeviceGetCurrPcieLinkWidth),
      ASK(nvmlDeviceGetCurrentClocksEventReasons),
      ASK(nvmlDeviceGetCurrentClocksThrottleReasons),
      ASK(nvmlDeviceGetDecoderUtilization),
      ASK(nvmlDeviceGetDisplayActive),
      ASK(nvmlDeviceGetDisplayMode),
      ASK(nvmlDeviceGetDynamicPstatesInfo),
      ASK(nvmlDeviceGetEccMode),
      ASK(nvmlDeviceGetEncoderUtilization),
      ASK(nvmlDeviceGetGpuMaxPcieLinkGeneration),
      ASK(nvmlDeviceGetInforomConfigurationChecksum),
      ASK(nvmlDeviceGetMarginTemperature),
      ASK_WITH(unsigned, nvmlDeviceGetMaxCustomerBoostClock, NVML_CLOCK_SM),
      ASK(nvmlDeviceGetMaxMigDeviceCount),
      ASK(nvmlDeviceGetMaxPcieLinkGeneration),
      ASK(nvmlDeviceGetMaxPcieLinkWidth),
      ASK(nvmlDeviceGetMemoryBusWidth),
      ASK(nvmlDeviceGetMinorNumber),
      ASK(nvmlDeviceGetModuleId),
      ASK(nvmlDeviceGetNumFans),
      ASK(nvmlDeviceGetNumGpuCores),
      ASK_WITH(unsigned, nvmlDeviceGetPcieThroughput, NVML_PCIE_UTIL_TX_BYTES),
      ASK(nvmlDeviceGetPcieReplayCounter),
      ASK(nvmlDeviceGetPciInfoExt),
      ASK(nvmlDeviceGetPerformanceState),
      ASK(nvmlDeviceGetPowerManagementDefaultLimit),
      ASK(nvmlDeviceGetPowerManagementLimit),
      ASK(nvmlDeviceGetPowerManagementLimitConstraints),
      ASK(nvmlDeviceGetPowerManagementMode),
      ASK(nvmlDeviceGetRemappedRows),
      ASK(nvmlDeviceGetRepairStatus),
      ASK(nvmlDeviceGetSupportedClocksEventReasons),
      ASK(nvmlDeviceGetSupportedClocksThrottleReasons),
      ASK(nvmlDeviceGetSupportedEventTypes),
      ASK_WITH(unsigned, nvmlDeviceGetTemperature, NVML_TEMPERATURE_GPU),
      ASK_WITH(unsigned, nvmlDeviceGetTemperatureThreshold, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
      ASK(nvmlDeviceGetTemperatureV),
      ASK_WITH(nvmlGpuThermalSettings_t, nvmlDeviceGetThermalSettings, NVML_THERMAL_TARGET_ALL),
      ASK_WITH(unsigned long long, nvmlDeviceGetTotalEccErrors, NVML_MEMORY_ERROR_TYPE_CORRECTED,
               NVML_VOLATILE_ECC),
      ASK(nvmlDeviceGetVirtualizationMode),
      ASK(nvmlDeviceIsMigDeviceHandle),
  };
}

class NvmlAnswers : public SimTest {
 protected:
  NvmlAnswers() : SimTest("2x64MiB") {}

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

TEST_F(NvmlAnswers, AreGivenForEveryDeviceThatThereIs) {
  const auto garbage = reinterpret_cast<nvmlDevice_t>(~std::uintptr_t{0} / 3);
  const auto past_the_last = reinterpret_cast<nvmlDevice_t>(reinterpret_cast<std::uintptr_t>(device(1)) + 1);
  for (const Question& one : answered()) {
    SCOPED_TRACE(one.name);
    for (const unsigned index : {0U, 1U}) EXPECT_EQ(one.ask(device(index), kNoneMissing), NVML_SUCCESS);
    for (const nvmlDevice_t bad : {nvmlDevice_t{}, past_the_last, garbage}) {
      EXPECT_EQ(one.ask(bad, kNoneMissing), NVML_ERROR_INVALID_ARGUMENT) << bad;
    }
  }
}

TEST_IN_PROCESS(NvmlAnswers, NeedRoomAndAnInitialisedLibrary) {
  const nvmlDevice_t known = device();
  for (const Question& one : answered()) {
    SCOPED_TRACE(one.name);
    for (std::size_t missing = 0; missing < one.values; ++missing) {
      EXPECT_EQ(one.ask(known, missing), NVML_ERROR_INVALID_ARGUMENT) << missing;
    }
  }
  ASSERT_EQ(nvmlShutdown(), NVML_SUCCESS);
  for (const Question& one : answered()) {
    EXPECT_EQ(one.ask(known, kNoneMissing), NVML_ERROR_UNINITIALIZED) << one.name;
  }
}

TEST_F(NvmlAnswers, AreRefusedForStructuresOfAnotherVersion) {
  nvmlPciInfoExt_t pci{};
  EXPECT_EQ(nvmlDeviceGetPciInfoExt(device(), &pci), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  nvmlDeviceAddressingMode_t mode{};
  EXPECT_EQ(nvmlDeviceGetAddressingMode(device(), &mode), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  nvmlRepairStatus_t repair{};
  EXPECT_EQ(nvmlDeviceGetRepairStatus(device(), &repair), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  nvmlTemperature_t temperature{};
  EXPECT_EQ(nvmlDeviceGetTemperatureV(device(), &temperature), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  nvmlSystemDriverBranchInfo_t branch{};
  EXPECT_EQ(nvmlSystemGetDriverBranch(&branch, sizeof branch.branch), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  branch.version = nvmlSystemDriverBranchInfo_v1;
  EXPECT_EQ(nvmlSystemGetDriverBranch(&branch, 3), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(nvmlSystemGetDriverBranch(&branch, sizeof branch.branch), NVML_SUCCESS);
}

TEST_F(NvmlAnswers, ListsAndTextsAreCutToTheirRoom) {
  char text[80], little[5];
  EXPECT_EQ(serial(0).size(), 13U);
  EXPECT_NE(serial(0), serial(1));
  EXPECT_EQ(nvmlDeviceGetSerial(device(), little, sizeof little), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(nvmlDeviceGetBoardPartNumber(device(), text, sizeof text), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetInforomImageVersion(device(), text, sizeof text), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetInforomVersion(device(), NVML_INFOROM_ECC, text, sizeof text), NVML_SUCCESS);
  std::array<nvmlPstates_t, 16> states{};
  EXPECT_EQ(nvmlDeviceGetSupportedPerformanceStates(device(), states.data(), sizeof states), NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetSupportedPerformanceStates(device(), states.data(), 1),
            NVML_ERROR_INSUFFICIENT_SIZE);
  unsigned least = 0, most = 0, count = 7;
  EXPECT_EQ(nvmlDeviceGetMinMaxClockOfPState(device(), NVML_CLOCK_SM, NVML_PSTATE_0, &least, &most),
            NVML_SUCCESS);
  EXPECT_EQ(nvmlDeviceGetMinMaxClockOfPState(device(), NVML_CLOCK_SM, NVML_PSTATE_5, &least, &most),
            NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlDeviceGetMPSComputeRunningProcesses(device(), &count, nullptr), NVML_SUCCESS);
  EXPECT_EQ(count, 0U);
  EXPECT_EQ(nvmlUnitGetCount(&count), NVML_SUCCESS);
  EXPECT_EQ(count, 0U);
}

TEST_F(NvmlAnswers, WhatSuchDevicesLackIsRefused) {
  unsigned value = 0;
  nvmlEnableState_t now{}, initially{};
  nvmlDriverModel_t model{}, pending{};
  unsigned long long time = 0;
  unsigned long duration = 0;
  EXPECT_EQ(nvmlDeviceGetNumaNodeId(device(), &value), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceGetNvLinkState(device(), 0, &now), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceGetAutoBoostedClocksEnabled(device(), &now, &initially), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceGetDriverModel_v2(device(), &model, &pending), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nvmlDeviceGetLastBBXFlushTime(device(), &time, &duration), NVML_ERROR_NOT_READY);
  EXPECT_EQ(nvmlDeviceValidateInforom(device()), NVML_SUCCESS);
}

TEST_F(NvmlAnswers, EveryProcessorIsAsNearToEveryDevice) {
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

TEST_F(NvmlAnswers, DevicesSitOnOneHostBridgeAndReachEachOther) {
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

TEST_F(NvmlAnswers, CountedFieldsStandAtZeroAndOthersAreNotSupported) {
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

TEST_F(NvmlAnswers, EventsAreWaitedForInVain) {
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

TEST_F(NvmlAnswers, NoDeviceComesOrGoes) {
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
