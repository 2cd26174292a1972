#include "daemon/kubernetes/device_plugin/kubelet_allocations.h"

#include <gtest/gtest.h>

namespace gpumem::kubernetes {
namespace {

const std::string kResource = "gpumem.dev/memory-256Mi";

// As the kubelet of Kubernetes 1.36 writes it.
const std::string kCheckpoint =
    R"({"Data":{"PodDeviceEntries":[)"
    R"({"PodUID":"p1","ContainerName":"a","ResourceName":"gpumem.dev/memory-256Mi",)"
    R"("DeviceIDs":{"-1":["GPU-a::0","GPU-a::1"],"0":["GPU-b::0"]},"AllocResp":"EgA="},)"
    R"({"PodUID":"p1","ContainerName":"b","ResourceName":"gpumem.dev/memory-256Mi",)"
    R"("DeviceIDs":{"-1":["GPU-a::2"]},"AllocResp":"EgA="},)"
    R"({"PodUID":"p2","ContainerName":"a","ResourceName":"example.com/other",)"
    R"("DeviceIDs":{"-1":["GPU-a::0"]},"AllocResp":"EgA="}],)"
    R"("RegisteredDevices":{"gpumem.dev/memory-256Mi":["GPU-a::0"]}},"Checksum":3518264186})";

TEST(KubeletCheckpointTest, ContainersOfAPodAreTakenTogether) {
  const auto record = read_kubelet_checkpoint(kCheckpoint, kResource);
  ASSERT_TRUE(record) << record.error().message;
  ASSERT_EQ(record->held.size(), 1u);  // p2 has units of something else
  EXPECT_TRUE(record->of_other_size.empty());
  EXPECT_EQ(record->held.at("p1"), (UnitSet{"GPU-a::0", "GPU-a::1", "GPU-a::2", "GPU-b::0"}));
}

TEST(KubeletCheckpointTest, NothingIsAllocatedInAnEmptyOne) {
  for (const char* entries : {"null", "[]"}) {
    const auto held = read_kubelet_checkpoint(std::string(R"({"Data":{"PodDeviceEntries":)") + entries +
                                                  R"(,"RegisteredDevices":{}},"Checksum":1})",
                                              kResource);
    ASSERT_TRUE(held) << entries;
    EXPECT_TRUE(held->held.empty());
  }
}

TEST(KubeletCheckpointTest, PodsWithUnitsOfAnotherSizeAreKnown) {
  const auto record = read_kubelet_checkpoint(kCheckpoint, "gpumem.dev/memory-1Gi");
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_TRUE(record->held.empty());
  EXPECT_EQ(record->of_other_size, std::set<std::string>{"p1"});
}

TEST(KubeletCheckpointTest, EveryTruncationIsRefused) {
  for (std::size_t length = 0; length < kCheckpoint.size(); ++length) {
    const auto held = read_kubelet_checkpoint(kCheckpoint.substr(0, length), kResource);
    ASSERT_FALSE(held) << length;
    EXPECT_EQ(held.error().code, Code::kInvalidArgument);
  }
}

TEST(KubeletCheckpointTest, OtherFormsAreRefused) {
  const std::string before = R"({"Data":{"PodDeviceEntries":[)";
  const std::string behind = R"(],"RegisteredDevices":{}},"Checksum":1})";
  const std::string mine = R"("ResourceName":"gpumem.dev/memory-256Mi")";
  for (const std::string& entry :
       {std::string("1"), std::string("{}"), "{" + mine + "}", R"({"PodUID":7,)" + mine + "}",
        R"({"PodUID":"p","DeviceIDs":["GPU-a::0"],)" + mine + "}",
        R"({"PodUID":"p","DeviceIDs":{"-1":"GPU-a::0"},)" + mine + "}",
        R"({"PodUID":"p","DeviceIDs":{"-1":[0]},)" + mine + "}"}) {
    EXPECT_FALSE(read_kubelet_checkpoint(before + entry + behind, kResource)) << entry;
  }
  EXPECT_FALSE(
      read_kubelet_checkpoint(R"({"Data":{"PodDeviceEntries":7,"RegisteredDevices":{}}})", kResource));
  EXPECT_FALSE(read_kubelet_checkpoint(R"({"Data":{"PodDeviceEntries":[]}})", kResource));
  EXPECT_FALSE(read_kubelet_checkpoint(std::string(100'000, '['), kResource));
}

TEST(KubeletCheckpointTest, UnitOfTwoPodsIsRefused) {
  std::string both = kCheckpoint;
  both.replace(both.find("example.com/other"), 17, kResource);
  const auto held = read_kubelet_checkpoint(both, kResource);
  ASSERT_FALSE(held);
  EXPECT_NE(held.error().message.find("GPU-a::0 is given to the pods p1 and p2"), std::string::npos);
}

}  // namespace
}  // namespace gpumem::kubernetes
