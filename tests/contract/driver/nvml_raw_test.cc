// The management library past the port: devices by index and UUID, memory in both forms, states.
#include <cstring>

#include "tests/contract/driver/management.h"

namespace gpumem::contract {
namespace {

class NvmlDevices : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    management_.emplace();
    first_ = management().device(uuid_);
  }
  const Management& management() const { return *management_; }
  nvmlDevice_t first_ = nullptr;

 private:
  std::optional<Management> management_;
};

TEST_F(NvmlDevices, AreCountedAndFoundByIndexAndByUuid) {
  const Management& nvml = management();
  unsigned count = 0;
  ASSERT_EQ(nvml.count(&count), NVML_SUCCESS);
  EXPECT_GE(count, static_cast<unsigned>(devices_)) << "it sees hidden ones as well";
  for (unsigned i = 0; i < count; ++i) {
    nvmlDevice_t by_index{}, by_uuid{};
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE]{};
    unsigned index = 99;
    ASSERT_EQ(nvml.by_index(i, &by_index), NVML_SUCCESS);
    ASSERT_EQ(nvml.uuid(by_index, uuid, sizeof uuid), NVML_SUCCESS);
    EXPECT_TRUE(cuda::parse_device_uuid(uuid)) << uuid;
    ASSERT_EQ(nvml.by_uuid(uuid, &by_uuid), NVML_SUCCESS);
    EXPECT_EQ(nvml.index(by_uuid, &index), NVML_SUCCESS);
    EXPECT_EQ(index, i);
  }
  nvmlDevice_t none{};
  EXPECT_EQ(nvml.by_index(count, &none), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlDevices, HaveTheUuidsOfTheDriver) {
  char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE]{};
  ASSERT_EQ(management().uuid(first_, uuid, sizeof uuid), NVML_SUCCESS);
  EXPECT_EQ(uuid, to_string(uuid_));
}

TEST_F(NvmlDevices, HaveNames) {
  char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE]{};
  EXPECT_EQ(management().name(first_, name, sizeof name), NVML_SUCCESS);
  EXPECT_GT(std::strlen(name), 0U);
  char small[1];
  EXPECT_EQ(management().name(first_, small, sizeof small), NVML_ERROR_INSUFFICIENT_SIZE);
}

TEST_F(NvmlDevices, TellTheirMemoryInBothForms) {
  nvmlMemory_t first{};
  nvmlMemory_v2_t second{};
  second.version = nvmlMemory_v2;
  ASSERT_EQ(management().memory(first_, &first), NVML_SUCCESS);
  ASSERT_EQ(management().memory_v2(first_, &second), NVML_SUCCESS);
  EXPECT_EQ(first.total, second.total);
  EXPECT_LE(second.used + second.free, second.total);
  EXPECT_NEAR(static_cast<double>(first.free), static_cast<double>(second.free),
              static_cast<double>(slack_.count));
  second.version = 0;
  EXPECT_NE(management().memory_v2(first_, &second), NVML_SUCCESS) << "the form must be said";
}

TEST_F(NvmlDevices, ListTheProcessesWithAContext) {
  Process process([](Channel& channel) {
    const cuda::CurrentContext entered = context();
    channel.signal_and_await();
  });
  process.channel().await();
  unsigned count = 0;
  const nvmlReturn_t sized = management().processes(first_, &count, nullptr);
  EXPECT_EQ(sized, NVML_ERROR_INSUFFICIENT_SIZE) << "none fit into no room";
  EXPECT_GE(count, 1U);
  const auto listed = management().processes_of(first_);
  EXPECT_EQ(std::ranges::count(listed, static_cast<unsigned>(process.pid()), &nvmlProcessInfo_t::pid), 1);
  process.signal_and_join();
}

TEST_F(NvmlDevices, TellTheirUseAndPersistence) {
  nvmlUtilization_t use{999, 999};
  const nvmlReturn_t asked = management().utilization(first_, &use);
  EXPECT_TRUE(asked == NVML_SUCCESS || asked == NVML_ERROR_NOT_SUPPORTED) << asked;
  if (asked == NVML_SUCCESS) {
    EXPECT_LE(use.gpu, 100U);
    EXPECT_LE(use.memory, 100U);
  }
  nvmlEnableState_t persistence{};
  ASSERT_EQ(management().persistence(first_, &persistence), NVML_SUCCESS);
  EXPECT_TRUE(persistence == NVML_FEATURE_ENABLED || persistence == NVML_FEATURE_DISABLED);
}

TEST_F(NvmlDevices, AreNotAskedForNothing) {
  EXPECT_EQ(management().count(nullptr), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(management().memory(first_, nullptr), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(management().by_uuid(nullptr, nullptr), NVML_ERROR_INVALID_ARGUMENT);
  nvmlDevice_t none{};
  EXPECT_NE(management().by_uuid("GPU-no-such-device", &none), NVML_SUCCESS);
}

}  // namespace
}  // namespace gpumem::contract
