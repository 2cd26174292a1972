#include "daemon/kubernetes/plugin/plugin_server.h"

#include <gtest/gtest.h>

namespace gpumem::kubernetes {
namespace {

std::string in_words(const v1alpha1::NodeWatchResourcesResponse& response) {
  std::string words;
  for (const v1alpha1::DeviceHealth& one : response.devices())
    words += one.device().device_name() + " " + v1alpha1::HealthStatus_Name(one.health()) + "; ";
  return words;
}

const std::vector<Device> kBothLent{{.uuid = "GPU-A", .name = "gpu-a", .model = {}, .pool = gibibytes(1)},
                                    {.uuid = "GPU-B", .name = "gpu-b", .model = {}, .pool = gibibytes(1)}};

TEST(HealthTest, DevicesThatAreLentAreHealthyWhetherOrNotTheyAreClaimed) {
  EXPECT_EQ(in_words(health_of("node-1", {"gpu-a"}, kBothLent, 7)), "gpu-a HEALTHY; gpu-b HEALTHY; ");
}

TEST(HealthTest, ClaimedDeviceThatIsNotLentIsUnhealthy) {
  const auto response = health_of("node-1", {"gpu-gone"}, kBothLent, 7);
  EXPECT_EQ(in_words(response), "gpu-a HEALTHY; gpu-b HEALTHY; gpu-gone UNHEALTHY; ");
  EXPECT_EQ(response.devices(2).device().pool_name(), "node-1");
  EXPECT_EQ(response.devices(2).last_updated_time(), 7);
  EXPECT_NE(response.devices(2).message().find("does not lend it"), std::string::npos);
}

TEST(HealthTest, NothingIsKnownWhileTheBrokerDoesNotAnswer) {
  const auto response =
      health_of("node-1", {"gpu-a"}, Error{Code::kUnavailable, "the broker does not answer"}, 7);
  EXPECT_EQ(in_words(response), "gpu-a UNKNOWN; ");
  EXPECT_EQ(response.devices(0).message(), "the broker does not answer");
}

}  // namespace
}  // namespace gpumem::kubernetes
