// The shim as libnvidia-ml.so.1.
#include <fcntl.h>
#include <nvml.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <optional>

#include "daemon/host/state/device_pages.h"
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
  /// A slice of 1000 bytes.
  void expect_slice(const char* slice, unsigned long long used) const {
    with_figures(slice, [used](const nvmlMemory_t& memory, const nvmlMemory_v2_t& memory_v2) {
      EXPECT_EQ(memory.total, 1000U);
      EXPECT_EQ(memory.used, used);
      EXPECT_EQ(memory.free, 1000 - used);
      EXPECT_EQ(memory_v2.total, 1000U);
      EXPECT_EQ(memory_v2.used, used);
      EXPECT_EQ(memory_v2.free, 1000 - used);
      EXPECT_EQ(memory_v2.reserved, 0U);
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
  expect_slice("1000 300", 300);
}

TEST_F(ShimNvml, WhatOthersOfTheJobHoldIsShownAsUsed) {
  put_libcuda_beside();
  expect_slice("1000 300 500", 500);
}

TEST_F(ShimNvml, MoreThanTheSliceIsNeverUsed) {
  put_libcuda_beside();
  expect_slice("1000 1001", 1000);
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

/// Beside a driver whose device is in use, and a broker, which is the process of the test itself.
class ShimMonitor : public ShimNvml {
 protected:
  static constexpr const char* kUuid = "GPU-00000000-0000-0000-0000-000000000001";
  static constexpr unsigned kBorrower = 4'194'001, kOther = 4'194'002;

  void SetUp() override {
    ShimNvml::SetUp();
    std::filesystem::create_directory(runtime_);
    gpumem::test::write_file(runtime_ / "api.sock", "");
    auto made = host::DevicePages::create(runtime_, {kUuid});
    ASSERT_TRUE(made) << made.error().message;
    pages_.emplace(std::move(*made));
    const auto listing = std::make_unique<DeviceListing>();
    listing->idle = 600;
    listing->process_count = 1;
    listing->processes[0] = {kBorrower, 300};
    pages_->publish(0, *listing);
  }
  void watch(const std::function<void(const Opened& shim, nvmlDevice_t device)>& body) const {
    const auto broker = std::to_string(::getpid());
    in_process([&] {
      const auto words = broker + " " + std::to_string(kBorrower) + " " + std::to_string(kOther) + " " +
                         std::to_string(::getpid());
      ::setenv("SHIM_TEST_PIDS", words.c_str(), 1);
      ::setenv("GPUMEM_RUNTIME_DIR", runtime_.c_str(), 1);
      ::setenv("LD_LIBRARY_PATH", SHIM_TEST_BUSY_NVML, 1);
      const Opened shim(beside_ / "libnvidia-ml.so.1");
      nvmlDevice_t device{};
      shim.get<decltype(::nvmlDeviceGetHandleByIndex_v2)>("nvmlDeviceGetHandleByIndex_v2")(0, &device);
      body(shim, device);
    });
  }
  using Listed = std::map<unsigned, unsigned long long>;
  static nvmlMemory_t memory_of(const Opened& shim, nvmlDevice_t device) {
    nvmlMemory_t memory{};
    shim.get<decltype(::nvmlDeviceGetMemoryInfo)>("nvmlDeviceGetMemoryInfo")(device, &memory);
    EXPECT_EQ(memory.total, memory.used + memory.free);
    return memory;
  }
  /// The list of the shim's call `name`. Asks in two steps, as monitors do.
  template <class Info>
  static Listed listed_by(const Opened& shim, nvmlDevice_t device, const std::string& name) {
    using List = nvmlReturn_t(nvmlDevice_t, unsigned*, Info*);
    auto* const list = shim.get<List>(name.c_str());
    unsigned count = 0;
    EXPECT_EQ(list(device, &count, nullptr), NVML_ERROR_INSUFFICIENT_SIZE);
    std::vector<Info> infos(count);
    EXPECT_EQ(list(device, &count, infos.data()), NVML_SUCCESS);
    EXPECT_EQ(list(device, &count, nullptr), NVML_ERROR_INVALID_ARGUMENT);
    Listed found;
    for (const Info& one : infos) found[one.pid] = one.usedGpuMemory;
    return found;
  }
  static Listed listed(const Opened& shim, nvmlDevice_t device) {
    return listed_by<nvmlProcessInfo_t>(shim, device, "nvmlDeviceGetComputeRunningProcesses_v3");
  }
  static unsigned own() { return static_cast<unsigned>(::getpid()); }

  std::filesystem::path runtime_ = folder_ / "run";
  std::optional<host::DevicePages> pages_;
};

TEST_F(ShimMonitor, SeesTheIdlePoolAsFree) {
  watch([](const Opened& shim, nvmlDevice_t device) {
    const nvmlMemory_t memory = memory_of(shim, device);
    EXPECT_EQ(memory.total, 1000U);
    EXPECT_EQ(memory.used, 310U);
    auto* const info_v2 = shim.get<decltype(::nvmlDeviceGetMemoryInfo_v2)>("nvmlDeviceGetMemoryInfo_v2");
    nvmlMemory_v2_t newer{};
    newer.version = nvmlMemory_v2;
    EXPECT_EQ(info_v2(device, &newer), NVML_SUCCESS);
    EXPECT_EQ(newer.used, 300U);
    EXPECT_EQ(newer.free, 690U);
    EXPECT_EQ(newer.reserved, 10U);
    newer.version = nvmlMemory_v2 + 1;
    EXPECT_EQ(info_v2(device, &newer), NVML_SUCCESS);
    EXPECT_EQ(newer.used, 900U) << "a form that is not known is the driver's";
  });
}

TEST_F(ShimMonitor, ListsEachBorrowerWithItsChargesAndNoBroker) {
  watch([](const Opened& shim, nvmlDevice_t device) {
    const Listed expected{{kBorrower, 300}, {kOther, 7}, {own(), 7}};
    EXPECT_EQ(listed_by<nvmlProcessInfo_v1_t>(shim, device, "nvmlDeviceGetComputeRunningProcesses"),
              expected);
    EXPECT_EQ(listed_by<nvmlProcessInfo_v2_t>(shim, device, "nvmlDeviceGetComputeRunningProcesses_v2"),
              expected);
    for (const std::string kind : {"Compute", "Graphics", "MPSCompute"})
      EXPECT_EQ(listed_by<nvmlProcessInfo_t>(shim, device, "nvmlDeviceGet" + kind + "RunningProcesses_v3"),
                expected);
    std::vector<nvmlProcessDetail_v1_t> all(4);
    nvmlProcessDetailList_t details{
        .version = nvmlProcessDetailList_v1, .mode = 0, .numProcArrayEntries = 4, .procArray = all.data()};
    auto* const list =
        shim.get<decltype(::nvmlDeviceGetRunningProcessDetailList)>("nvmlDeviceGetRunningProcessDetailList");
    EXPECT_EQ(list(device, &details), NVML_SUCCESS);
    ASSERT_EQ(details.numProcArrayEntries, 3U);
    EXPECT_EQ(all[0].usedGpuMemory, 300U);
    details.version = nvmlProcessDetailList_v1 + 1;
    details.numProcArrayEntries = 4;
    EXPECT_EQ(list(device, &details), NVML_SUCCESS);
    EXPECT_EQ(all[1].usedGpuMemory, 7U) << "a form that is not known is the driver's";
  });
}

TEST_F(ShimMonitor, ThatHasASliceSeesIt) {
  put_libcuda_beside();
  watch([](const Opened& shim, nvmlDevice_t device) {
    ::setenv("SHIM_TEST_SLICE", "100 40", 1);
    EXPECT_EQ(memory_of(shim, device).total, 100U);
    EXPECT_EQ(listed(shim, device), (Listed{{kBorrower, 300}, {kOther, 7}, {own(), 40}}));
    ::setenv("GPUMEM_SHOW_DEVICE", "1", 1);
    EXPECT_EQ(memory_of(shim, device).used, 310U);
    EXPECT_EQ(listed(shim, device).at(own()), 7U);
  });
}

TEST_F(ShimMonitor, TakesTheDriversFiguresWhereTheBrokerHasDied) {
  const std::string page = gpumem::test::read_file(runtime_ / device_page_name(kUuid));
  pages_.reset();
  gpumem::test::write_file(runtime_ / device_page_name(kUuid), page);
  watch([](const Opened& shim, nvmlDevice_t device) {
    EXPECT_EQ(memory_of(shim, device).used, 910U);
    EXPECT_EQ(listed(shim, device).size(), 4U);
    EXPECT_EQ(listed(shim, device).at(kBorrower), 7U);
  });
}

TEST_F(ShimMonitor, OfAnotherPidNamespaceTakesTheDriversFiguresOfProcesses) {
  const int file = ::open((runtime_ / device_page_name(kUuid)).c_str(), O_RDWR | O_CLOEXEC);
  const std::uint64_t another = 1;
  EXPECT_EQ(::pwrite(file, &another, sizeof another, offsetof(DevicePage, listing.pid_namespace)), 8);
  ::close(file);
  watch([](const Opened& shim, nvmlDevice_t device) {
    EXPECT_EQ(memory_of(shim, device).used, 310U);
    EXPECT_EQ(listed(shim, device).at(kBorrower), 7U);
  });
}

TEST_F(ShimMonitor, GetsTheDriversTablesThatNvidiaSmiAsksFor) {
  watch([](const Opened& shim, nvmlDevice_t) {
    using GetTable = nvmlReturn_t(const void**, const void*);
    EXPECT_EQ(shim.get<GetTable>("nvmlInternalGetExportTable")(nullptr, nullptr), NVML_ERROR_IN_USE);
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
