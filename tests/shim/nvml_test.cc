// The shim as libnvidia-ml.so.1.
#include <cuda.h>
#include <fcntl.h>
#include <nvml.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "tests/shim/fixture.h"

namespace gpumem::shim::test {
namespace {

constexpr unsigned long long kDevice = 64 << 20;

class ShimNvml : public ShimTest {
 protected:
  void SetUp() override {
    ShimTest::SetUp();
    copy_shim("libnvidia-ml.so.1", beside_);
  }
  /// Puts a libcuda.so.1 beside the shim that tells of a slice.
  void put_libcuda_beside() const {
    std::filesystem::create_symlink(SHIM_TEST_LENT_FIGURES, beside_ / "libcuda.so.1");
  }
  /// Runs `body` with the memory figures that the shim shows; `slice`: "TOTAL USED FREE".
  void with_figures(const char* slice,
                    const std::function<void(const nvmlMemory_t&, const nvmlMemory_v2_t&)>& body,
                    const char* show_device = "") const {
    in_process([&] {
      ::setenv("SHIM_TEST_SLICE", slice, 1);
      ::setenv("GPUMEM_SHOW_DEVICE", show_device, 1);
      const Opened shim(beside_ / "libnvidia-ml.so.1");
      nvmlDevice_t device{};
      nvmlMemory_t memory{};
      nvmlMemory_v2_t memory_v2{};
      memory_v2.version = nvmlMemory_v2;
      ASSERT_EQ(shim.get<decltype(::nvmlInit_v2)>("nvmlInit_v2")(), NVML_SUCCESS);
      auto* const by_index =
          shim.get<decltype(::nvmlDeviceGetHandleByIndex_v2)>("nvmlDeviceGetHandleByIndex_v2");
      ASSERT_EQ(by_index(0, &device), NVML_SUCCESS);
      auto* const info = shim.get<decltype(::nvmlDeviceGetMemoryInfo)>("nvmlDeviceGetMemoryInfo");
      EXPECT_EQ(info(device, &memory), NVML_SUCCESS);
      auto* const info_v2 = shim.get<decltype(::nvmlDeviceGetMemoryInfo_v2)>("nvmlDeviceGetMemoryInfo_v2");
      EXPECT_EQ(info_v2(device, &memory_v2), NVML_SUCCESS);
      body(memory, memory_v2);
    });
  }
  void expect_device(const char* slice, const char* show_device = "") const {
    with_figures(
        slice,
        [](const nvmlMemory_t& memory, const nvmlMemory_v2_t& memory_v2) {
          EXPECT_EQ(memory.total, kDevice);
          EXPECT_EQ(memory_v2.total, kDevice);
          EXPECT_EQ(memory.used + memory.free, kDevice);
        },
        show_device);
  }

  std::filesystem::path beside_ = folder_ / "shim";
};

TEST_F(ShimNvml, ASliceIsShownInPlaceOfTheDevice) {
  put_libcuda_beside();
  with_figures("1000 300", [](const nvmlMemory_t& memory, const nvmlMemory_v2_t& memory_v2) {
    EXPECT_EQ(memory.total, 1000U);
    EXPECT_EQ(memory.used, 300U);
    EXPECT_EQ(memory.free, 700U);
    EXPECT_EQ(memory_v2.total, 1000U);
    EXPECT_EQ(memory_v2.used, 300U);
    EXPECT_EQ(memory_v2.free, 700U);
    EXPECT_EQ(memory_v2.reserved, 0U);
  });
}

TEST_F(ShimNvml, WhatOthersOfTheJobHoldIsShownAsUsed) {
  put_libcuda_beside();
  with_figures("1000 300 500", [](const nvmlMemory_t& memory, const nvmlMemory_v2_t& memory_v2) {
    EXPECT_EQ(memory.used, 500U);
    EXPECT_EQ(memory.free, 500U);
    EXPECT_EQ(memory_v2.used, 500U);
    EXPECT_EQ(memory_v2.free, 500U);
  });
}

TEST_F(ShimNvml, MoreThanTheSliceIsNeverUsed) {
  put_libcuda_beside();
  with_figures("1000 1001", [](const nvmlMemory_t& memory, const nvmlMemory_v2_t& memory_v2) {
    EXPECT_EQ(memory.used, 1000U);
    EXPECT_EQ(memory.free, 0U);
    EXPECT_EQ(memory_v2.used, 1000U);
    EXPECT_EQ(memory_v2.free, 0U);
  });
}

TEST_F(ShimNvml, TheDeviceIsShownWhereNothingIsLent) {
  expect_device("1000 300");  // no libcuda.so.1 beside it
  put_libcuda_beside();
  expect_device("nothing");
  expect_device("0 0");
}

TEST_F(ShimNvml, TheDeviceIsShownIfTheEnvironmentSaysSo) {
  put_libcuda_beside();
  expect_device("1000 300", "1");
}

TEST_F(ShimNvml, TheDeviceIsShownWhereTheNeighbourIsADriver) {
  std::filesystem::create_symlink(std::filesystem::path(SIM_LIBRARIES) / "libcuda.so.1",
                                  beside_ / "libcuda.so.1");
  expect_device("1000 300");
}

/// A process that has a context of its own, until this object's end.
class DeviceUser {
 public:
  DeviceUser(const std::filesystem::path& driver, const char* name) {
    int ready[2] = {-1, -1}, stop[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(stop, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(stop[1]);
      ::_exit(use(driver, name, ready[1], stop[0]));
    }
    ::close(ready[1]);
    ::close(stop[0]);
    stop_ = stop[1];
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
  }
  ~DeviceUser() {
    ::close(stop_);
    ::waitpid(pid_, nullptr, 0);
  }
  DeviceUser(const DeviceUser&) = delete;
  DeviceUser& operator=(const DeviceUser&) = delete;
  unsigned pid() const { return static_cast<unsigned>(pid_); }

  static void make_context(const Opened& driver) {
    CUcontext context = nullptr;
    EXPECT_EQ(driver.get<decltype(::cuInit)>("cuInit")(0), CUDA_SUCCESS);
    EXPECT_EQ(driver.get<decltype(::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 0),
              CUDA_SUCCESS);
  }

 private:
  static int use(const std::filesystem::path& driver, const char* name, int ready, int stop) {
    ::prctl(PR_SET_NAME, name);
    make_context(Opened(driver));
    char byte = 0;
    const bool told = ::write(ready, &byte, 1) == 1;
    return told && ::read(stop, &byte, 1) == 0 ? 0 : 1;
  }
  pid_t pid_ = -1;
  int stop_ = -1;
};

/// The list of the shim's call `name`, by process. Asks in two steps, as monitors do.
template <class Info>
std::map<unsigned, unsigned long long> listed_by(const Opened& shim, const char* name) {
  using List = nvmlReturn_t(nvmlDevice_t, unsigned*, Info*);
  nvmlDevice_t device{};
  EXPECT_EQ(shim.get<decltype(::nvmlInit_v2)>("nvmlInit_v2")(), NVML_SUCCESS);
  EXPECT_EQ(shim.get<decltype(::nvmlDeviceGetHandleByIndex_v2)>("nvmlDeviceGetHandleByIndex_v2")(0, &device),
            NVML_SUCCESS);
  auto* const list = shim.get<List>(name);
  unsigned count = 0;
  EXPECT_EQ(list(device, &count, nullptr), NVML_ERROR_INSUFFICIENT_SIZE);
  std::vector<Info> infos(count);
  EXPECT_EQ(list(device, &count, infos.data()), NVML_SUCCESS);
  EXPECT_EQ(list(device, &count, nullptr), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(list(device, nullptr, infos.data()), NVML_ERROR_INVALID_ARGUMENT);
  std::map<unsigned, unsigned long long> found;
  for (const Info& one : infos) found[one.pid] = one.usedGpuMemory;
  return found;
}

TEST_F(ShimNvml, ProcessesAreListedWithoutTheBrokerAndTheOwnOneWithWhatItUses) {
  put_libcuda_beside();
  in_process([&] {
    const DeviceUser broker(machine_ / "libcuda.so.1", "gpumemd"), other(machine_ / "libcuda.so.1", "other");
    ::setenv("SHIM_TEST_SLICE", "1000 300", 1);
    DeviceUser::make_context(Opened(machine_ / "libcuda.so.1"));
    const Opened shim(beside_ / "libnvidia-ml.so.1");
    const auto first = listed_by<nvmlProcessInfo_v1_t>(shim, "nvmlDeviceGetComputeRunningProcesses");
    EXPECT_EQ(listed_by<nvmlProcessInfo_v2_t>(shim, "nvmlDeviceGetComputeRunningProcesses_v2"), first);
    EXPECT_EQ(listed_by<nvmlProcessInfo_t>(shim, "nvmlDeviceGetComputeRunningProcesses_v3"), first);
    EXPECT_EQ(first.size(), 2U);
    EXPECT_EQ(first.at(static_cast<unsigned>(::getpid())), 300U);
    EXPECT_GT(first.at(other.pid()), 1000U) << "as the driver says";
    ::setenv("GPUMEM_SHOW_DEVICE", "1", 1);
    const auto all = listed_by<nvmlProcessInfo_t>(shim, "nvmlDeviceGetComputeRunningProcesses_v3");
    EXPECT_TRUE(all.contains(broker.pid()));
    EXPECT_GT(all.at(static_cast<unsigned>(::getpid())), 1000U);
  });
}

TEST_F(ShimNvml, OtherCallsAreTheDriversOwn) {
  in_process([&] {
    const Opened shim(shim_folder() / "libnvidia-ml.so.1"), driver(machine_ / "libnvidia-ml.so.1");
    std::vector<std::string> answers;
    for (const Opened* library : {&shim, &driver}) {
      char text[128] = {};
      nvmlDevice_t device{};
      EXPECT_EQ(library->get<decltype(::nvmlInit_v2)>("nvmlInit_v2")(), NVML_SUCCESS);
      EXPECT_EQ(library->get<decltype(::nvmlDeviceGetHandleByIndex_v2)>("nvmlDeviceGetHandleByIndex_v2")(
                    0, &device),
                NVML_SUCCESS);
      EXPECT_EQ(library->get<decltype(::nvmlDeviceGetUUID)>("nvmlDeviceGetUUID")(device, text, sizeof text),
                NVML_SUCCESS);
      answers.emplace_back(text);
      answers.emplace_back(
          library->get<decltype(::nvmlErrorString)>("nvmlErrorString")(NVML_ERROR_NOT_FOUND));
    }
    EXPECT_EQ(answers[0], answers[2]);
    EXPECT_EQ(answers[1], answers[3]);
  });
}

}  // namespace
}  // namespace gpumem::shim::test
