// NVML's constants: each call's answer, and what it says to bad input.
#include <nvml.h>

#include <cstdlib>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/sim/sim_fixture.h"

namespace gpumem::sim::test {
namespace {

/// A call that answers always the same, in one value or more.
struct Constant {
  const char* name;
  std::size_t values;
  /// Calls it without room for value `missing`; with room for all if there is no such one. What a success
  /// answers is held against what is expected.
  std::function<nvmlReturn_t(nvmlDevice_t device, std::size_t missing)> ask;
};

constexpr std::size_t kNoneMissing = 99;

template <class Call, class... Values>
Constant constant_of(const char* name, Call call, Values... expected) {
  const auto ask = [=](nvmlDevice_t device, std::size_t missing) {
    std::tuple<Values...> got{static_cast<Values>(expected == Values{} ? 1 : 0)...};  // all wrong
    const auto result = [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
      return call(device, (kIndex == missing ? nullptr : &std::get<kIndex>(got))...);
    }
    (std::index_sequence_for<Values...>());
    if (result == NVML_SUCCESS && missing == kNoneMissing) {
      EXPECT_EQ(got, std::tuple<Values...>(expected...));
    }
    return result;
  };
  return {name, sizeof...(Values), ask};
}

template <class... Values>
Constant constant(const char* name, nvmlReturn_t (*call)(nvmlDevice_t, Values*...),
                  std::type_identity_t<Values>... expected) {
  return constant_of(name, call, expected...);
}
#define CONSTANT(call, ...) constant(#call, call, __VA_ARGS__)

// Calls with other arguments before the value.
Constant threshold(nvmlTemperatureThresholds_t type, unsigned expected) {
  const auto ask = [=](nvmlDevice_t device, unsigned* out) {
    return nvmlDeviceGetTemperatureThreshold(device, type, out);
  };
  return constant_of("nvmlDeviceGetTemperatureThreshold", ask, expected);
}
Constant clock_of(nvmlClockType_t type, nvmlClockId_t id, unsigned expected) {
  const auto ask = [=](nvmlDevice_t device, unsigned* out) {
    return nvmlDeviceGetClock(device, type, id, out);
  };
  return constant_of("nvmlDeviceGetClock", ask, expected);
}
Constant throughput(nvmlPcieUtilCounter_t counter, unsigned expected) {
  const auto ask = [=](nvmlDevice_t device, unsigned* out) {
    return nvmlDeviceGetPcieThroughput(device, counter, out);
  };
  return constant_of("nvmlDeviceGetPcieThroughput", ask, expected);
}
Constant ecc_errors(nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter, unsigned long long expected) {
  const auto ask = [=](nvmlDevice_t device, unsigned long long* out) {
    return nvmlDeviceGetTotalEccErrors(device, type, counter, out);
  };
  return constant_of("nvmlDeviceGetTotalEccErrors", ask, expected);
}
Constant mps_processes() {
  const auto ask = [](nvmlDevice_t device, unsigned* count) {
    return nvmlDeviceGetMPSComputeRunningProcesses(device, count, nullptr);
  };
  return constant_of("nvmlDeviceGetMPSComputeRunningProcesses", ask, 0U);
}

std::vector<Constant> modes() {
  return {
      CONSTANT(nvmlDeviceGetAccountingMode, NVML_FEATURE_DISABLED),
      CONSTANT(nvmlDeviceGetDisplayActive, NVML_FEATURE_DISABLED),
      CONSTANT(nvmlDeviceGetDisplayMode, NVML_FEATURE_DISABLED),
      CONSTANT(nvmlDeviceGetEccMode, NVML_FEATURE_ENABLED, NVML_FEATURE_ENABLED),
      CONSTANT(nvmlDeviceGetMaxMigDeviceCount, 0),
      CONSTANT(nvmlDeviceGetPerformanceState, NVML_PSTATE_0),
      CONSTANT(nvmlDeviceGetPowerManagementMode, NVML_FEATURE_ENABLED),
      CONSTANT(nvmlDeviceGetVirtualizationMode, NVML_GPU_VIRTUALIZATION_MODE_NONE),
      CONSTANT(nvmlDeviceIsMigDeviceHandle, 0),
  };
}

std::vector<Constant> figures() {
  return {
      CONSTANT(nvmlDeviceGetArchitecture, 9),  // Hopper
      CONSTANT(nvmlDeviceGetCurrPcieLinkGeneration, 5),
      CONSTANT(nvmlDeviceGetCurrPcieLinkWidth, 16),
      CONSTANT(nvmlDeviceGetInforomConfigurationChecksum, 0x47504d53),
      CONSTANT(nvmlDeviceGetMaxPcieLinkGeneration, 5),
      CONSTANT(nvmlDeviceGetMaxPcieLinkWidth, 16),
      CONSTANT(nvmlDeviceGetMemoryBusWidth, 6144),
      CONSTANT(nvmlDeviceGetNumFans, 0),
      CONSTANT(nvmlDeviceGetNumGpuCores, 132 * 128),
      CONSTANT(nvmlDeviceGetPowerManagementDefaultLimit, 700'000),
      CONSTANT(nvmlDeviceGetPowerManagementLimit, 700'000),
      CONSTANT(nvmlDeviceGetPowerManagementLimitConstraints, 200'000, 700'000),
      threshold(NVML_TEMPERATURE_THRESHOLD_SHUTDOWN, 95),
      threshold(NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, 92),
      threshold(NVML_TEMPERATURE_THRESHOLD_MEM_MAX, 95),
      threshold(NVML_TEMPERATURE_THRESHOLD_GPU_MAX, 87),
  };
}

std::vector<Constant> activity() {
  return {
#ifdef nvmlClocksEventReasonGpuIdle
      CONSTANT(nvmlDeviceGetCurrentClocksEventReasons, nvmlClocksEventReasonGpuIdle),
#endif
      CONSTANT(nvmlDeviceGetCurrentClocksThrottleReasons, nvmlClocksThrottleReasonGpuIdle),
      CONSTANT(nvmlDeviceGetDecoderUtilization, 0, 100'000),
      CONSTANT(nvmlDeviceGetEncoderUtilization, 0, 100'000),
      CONSTANT(nvmlDeviceGetPcieReplayCounter, 0),
      CONSTANT(nvmlDeviceGetRemappedRows, 0, 0, 0, 0),
      mps_processes(),
      clock_of(NVML_CLOCK_GRAPHICS, NVML_CLOCK_ID_CURRENT, 1980),
      clock_of(NVML_CLOCK_SM, NVML_CLOCK_ID_APP_CLOCK_TARGET, 1980),
      clock_of(NVML_CLOCK_MEM, NVML_CLOCK_ID_CURRENT, 3201),
      clock_of(NVML_CLOCK_VIDEO, NVML_CLOCK_ID_CURRENT, 1545),
      throughput(NVML_PCIE_UTIL_TX_BYTES, 0),
      throughput(NVML_PCIE_UTIL_RX_BYTES, 0),
      ecc_errors(NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC, 0),
      ecc_errors(NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC, 0),
  };
}

std::vector<Constant> all() {
  std::vector<Constant> constants = modes();
  for (const auto& more : {figures(), activity()}) {
    constants.insert(constants.end(), more.begin(), more.end());
  }
  return constants;
}

class NvmlConstants : public SimTest {
 protected:
  NvmlConstants() : SimTest("2x64MiB") {}

  static nvmlDevice_t device(unsigned index = 0) {
    nvmlDevice_t handle{};
    EXPECT_EQ(nvmlDeviceGetHandleByIndex(index, &handle), NVML_SUCCESS);
    return handle;
  }
};

TEST_F(NvmlConstants, EveryDeviceTellsTheSame) {
  for (const Constant& one : all()) {
    SCOPED_TRACE(one.name);
    EXPECT_EQ(one.ask(device(0), kNoneMissing), NVML_SUCCESS);
    EXPECT_EQ(one.ask(device(1), kNoneMissing), NVML_SUCCESS);
  }
}

TEST_F(NvmlConstants, AnswerWithoutRoomIsRefused) {
  for (const Constant& one : all()) {
    SCOPED_TRACE(one.name);
    for (std::size_t missing = 0; missing < one.values; ++missing) {
      EXPECT_EQ(one.ask(device(), missing), NVML_ERROR_INVALID_ARGUMENT) << missing;
    }
  }
}

TEST_F(NvmlConstants, HandleThatIsNoneIsRefused) {
  const auto garbage = reinterpret_cast<nvmlDevice_t>(~std::uintptr_t{0} / 3);
  const auto past_the_last = reinterpret_cast<nvmlDevice_t>(reinterpret_cast<std::uintptr_t>(device(1)) + 1);
  for (const Constant& one : all()) {
    SCOPED_TRACE(one.name);
    for (const nvmlDevice_t bad : {nvmlDevice_t{}, past_the_last, garbage}) {
      EXPECT_EQ(one.ask(bad, kNoneMissing), NVML_ERROR_INVALID_ARGUMENT) << bad;
    }
  }
}

TEST_F(NvmlConstants, NothingIsToldBeforeTheLibraryIsInitialised) {
  in_process([] {
    const nvmlDevice_t known = device();
    ASSERT_EQ(nvmlShutdown(), NVML_SUCCESS);
    for (const Constant& one : all()) {
      SCOPED_TRACE(one.name);
      EXPECT_EQ(one.ask(known, kNoneMissing), NVML_ERROR_UNINITIALIZED);
    }
    unsigned value = 0;
    EXPECT_EQ(nvmlUnitGetCount(&value), NVML_ERROR_UNINITIALIZED);
    EXPECT_EQ(nvmlDeviceGetMinorNumber(known, &value), NVML_ERROR_UNINITIALIZED);
    EXPECT_EQ(nvmlDeviceGetBoardId(known, &value), NVML_ERROR_UNINITIALIZED);
  });
}

TEST_F(NvmlConstants, ArgumentsThatNameNothingAreRefused) {
  unsigned value = 7;
  EXPECT_EQ(nvmlDeviceGetClock(device(), NVML_CLOCK_COUNT, NVML_CLOCK_ID_CURRENT, &value),
            NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlDeviceGetClock(device(), NVML_CLOCK_SM, NVML_CLOCK_ID_COUNT, &value),
            NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlDeviceGetTemperatureThreshold(device(), NVML_TEMPERATURE_THRESHOLD_COUNT, &value),
            NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(value, 7U);
}

TEST_F(NvmlConstants, EachDeviceHasItsOwnNumbers) {
  for (unsigned i = 0; i < 2; ++i) {
    unsigned minor = 99, board = 99;
    EXPECT_EQ(nvmlDeviceGetMinorNumber(device(i), &minor), NVML_SUCCESS);
    EXPECT_EQ(minor, i);
    EXPECT_EQ(nvmlDeviceGetBoardId(device(i), &board), NVML_SUCCESS);
    nvmlPciInfo_t pci{};
    EXPECT_EQ(nvmlDeviceGetPciInfo(device(i), &pci), NVML_SUCCESS);
    EXPECT_EQ(board, pci.bus << 8);
  }
  unsigned value = 0;
  EXPECT_EQ(nvmlDeviceGetMinorNumber(nullptr, &value), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlDeviceGetMinorNumber(device(), nullptr), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlDeviceGetBoardId(nullptr, &value), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(nvmlDeviceGetBoardId(device(), nullptr), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlConstants, ThereAreNoUnits) {
  unsigned count = 99;
  EXPECT_EQ(nvmlUnitGetCount(&count), NVML_SUCCESS);
  EXPECT_EQ(count, 0U);
  EXPECT_EQ(nvmlUnitGetCount(nullptr), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlConstants, EveryInitialisationIsEndedByAShutdownOfItsOwn) {
  in_process([] {
    EXPECT_EQ(nvmlInitWithFlags(0), NVML_SUCCESS);  // beside the fixture's
    EXPECT_EQ(nvmlInitWithFlags(NVML_INIT_FLAG_NO_GPUS), NVML_SUCCESS);
    unsigned count = 0;
    EXPECT_EQ(nvmlShutdown(), NVML_SUCCESS);
    EXPECT_EQ(nvmlShutdown(), NVML_SUCCESS);
    EXPECT_EQ(nvmlDeviceGetCount(&count), NVML_SUCCESS);
    EXPECT_EQ(count, 2U);
    EXPECT_EQ(nvmlShutdown(), NVML_SUCCESS);
    EXPECT_EQ(nvmlDeviceGetCount(&count), NVML_ERROR_UNINITIALIZED);
    ::setenv("GPUMEM_SIM_MACHINE", "/nowhere", 1);
    EXPECT_EQ(nvmlInitWithFlags(0), NVML_ERROR_DRIVER_NOT_LOADED);
  });
}

}  // namespace
}  // namespace gpumem::sim::test
