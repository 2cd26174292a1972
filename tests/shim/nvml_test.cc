// The shim as libnvidia-ml.so.1.
#include <nvml.h>

#include <cstdlib>

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
  /// Runs `body` with the memory figures that the shim shows; `slice`: "TOTAL USED".
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
