#include "daemon/kubernetes/plugin/slice_publisher.h"

#include <gtest/gtest.h>

namespace gpumem::kubernetes {
namespace {

const Publisher kPublisher{.driver = "gpumem.dev", .node = "node-1"};

Device device_of(Bytes pool) {
  return {.uuid = "GPU-4BD3", .name = device_name("GPU-4BD3"), .model = "Some GPU", .pool = pool};
}

TEST(ResourceSliceTest, ADeviceIsForManyClaimsInSteps) {
  EXPECT_EQ(device_entry(device_of(gibibytes(24))), Json::parse(R"({
    "name": "gpu-4bd3",
    "attributes": {"uuid": {"string": "GPU-4BD3"}, "productName": {"string": "Some GPU"}},
    "allowMultipleAllocations": true,
    "capacity": {"memory": {"value": "24Gi", "requestPolicy": {
      "default": "24Gi", "validRange": {"min": "2Mi", "max": "24Gi", "step": "2Mi"}}}}
  })"));
}

TEST(ResourceSliceTest, DevicesTooSmallToLendAreLeftOut) {
  EXPECT_FALSE(slice_spec(kPublisher, {device_of(mebibytes(2))}, 1).contains("devices"));
  EXPECT_EQ(slice_spec(kPublisher, {device_of(mebibytes(4))}, 1)["devices"].size(), 1u);
}

TEST(ResourceSliceTest, OnlyTheGenerationMayDiffer) {
  const Json one = slice_spec(kPublisher, {device_of(gibibytes(24))}, 1);
  EXPECT_TRUE(is_same_pool(one, slice_spec(kPublisher, {device_of(gibibytes(24))}, 7)));
  EXPECT_FALSE(is_same_pool(one, slice_spec(kPublisher, {device_of(gibibytes(23))}, 1)));
  EXPECT_FALSE(is_same_pool(one, Json()));
}

TEST(ResourceSliceTest, DroppedFieldsAreNamed) {
  const Json sent = slice_spec(kPublisher, {device_of(gibibytes(24))}, 1);
  Json stored = sent;
  EXPECT_EQ(dropped_fields(sent, stored), "");
  stored["devices"][0].erase("allowMultipleAllocations");
  EXPECT_EQ(dropped_fields(sent, stored), "allowMultipleAllocations");
}

}  // namespace
}  // namespace gpumem::kubernetes
