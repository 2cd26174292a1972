#include "daemon/pods/pod.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

// Which pod a process is in. The paths are those of the kubelet's source (pkg/kubelet/cm) and of the
// runtimes.

namespace gpumem::pods {
namespace {

const std::string kPod = "2f0c4a11-9f5d-4d1e-8a77-0a7f6d4c1b22",
                  kOther = "00000000-1111-2222-3333-444444444444";
const std::string kId(64, 'c');

std::string slice_name(std::string text) {
  std::ranges::replace(text, '-', '_');
  return text;
}

void expect_pod(const std::string& text, const std::string& root = "/") {
  const auto container = container_of(text, root);
  ASSERT_TRUE(container) << text;
  EXPECT_EQ(container->pod, kPod) << text;
  EXPECT_EQ(container->id, kId) << text;
}

void expect_none(const std::string& text, const std::string& root = "/") {
  EXPECT_FALSE(container_of(text, root)) << text;
}

TEST(ContainerOf, IsReadFromTheKubeletsOwnDriver) {
  expect_pod("0::/kubepods/pod" + kPod + "/" + kId + "\n");
  expect_pod("0::/kubepods/burstable/pod" + kPod + "/" + kId + "\n");
  expect_pod("0::/kubepods/besteffort/pod" + kPod + "/" + kId);
}

TEST(ContainerOf, IsReadFromTheSlicesOfSystemd) {
  const std::string uid = slice_name(kPod);
  expect_pod("0::/kubepods.slice/kubepods-pod" + uid + ".slice/cri-containerd-" + kId + ".scope\n");
  expect_pod("0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uid + ".slice/crio-" +
             kId + ".scope\n");
  expect_pod("0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + uid + ".slice/docker-" +
             kId + ".scope/init.scope\n");
}

TEST(ContainerOf, IsReadFromTheHierarchiesOfTheFirstVersion) {
  const std::string path = "/kubepods/burstable/pod" + kPod + "/" + kId;
  expect_pod("12:memory:" + path + "\n11:cpu,cpuacct:" + path + "\n1:name=systemd:" + path + "\n0::/\n");
  expect_none("12:memory:" + path + "\n11:pids:/kubepods/burstable/pod" + kOther + "/" + kId + "\n");
}

TEST(ContainerOf, IsReadBelowTheRootThatIsConfigured) {
  const std::string uid = slice_name(kPod);
  expect_pod("0::/kubelet/kubepods/pod" + kPod + "/" + kId, "/kubelet");
  expect_pod(
      "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
      "kubelet-kubepods-burstable-pod" +
          uid + ".slice/cri-containerd-" + kId + ".scope",
      "/kubelet");
  expect_none("0::/kubepods/pod" + kPod + "/" + kId, "/kubelet");
  expect_none("0::/kubelet/kubepods/pod" + kPod + "/" + kId);
}

TEST(ContainerOf, IsReadFromWithinACgroupNamespace) {
  const std::string uid = slice_name(kPod);
  expect_pod("0::/../../pod" + kPod + "/" + kId);
  expect_pod("0::/../../../burstable/pod" + kPod + "/" + kId);
  expect_pod("0::/../../kubepods-besteffort-pod" + uid + ".slice/cri-containerd-" + kId + ".scope");
  expect_pod("0::/../../../kubepods-burstable.slice/kubepods-burstable-pod" + uid + ".slice/crio-" + kId +
             ".scope");
  expect_pod("0::/../../../../kubepods.slice/kubepods-pod" + uid + ".slice/cri-containerd-" + kId + ".scope");
}

TEST(ContainerOf, MayBeNoneOfThePods) {
  const auto container = container_of("0::/kubepods/pod" + kPod);
  ASSERT_TRUE(container);
  EXPECT_EQ(*container, (Container{kPod, ""}));
}

TEST(ContainerOf, OfAStaticPodHasAUidWithoutDashes) {
  const std::string uid(32, 'a');
  const auto container = container_of("0::/kubepods/pod" + uid + "/" + kId);
  ASSERT_TRUE(container);
  EXPECT_EQ(container->pod, uid);
}

// A container may make cgroups below its own, and a user below the slice that systemd gives him.
TEST(ContainerOf, CannotBePretended) {
  expect_pod("0::/kubepods/pod" + kPod + "/" + kId + "/kubepods/pod" + kOther + "/x");
  expect_none("0::/user.slice/user-1000.slice/user@1000.service/kubepods/pod" + kPod + "/" + kId);
  expect_none("0::/user.slice/user-1000.slice/user@1000.service/app.slice/kubepods.slice/kubepods-pod" +
              slice_name(kPod) + ".slice/x");
  expect_none("0::/../../../user.slice/user-1000.slice/user@1000.service/pod" + kPod + "/" + kId);
  expect_none("0::/pod" + kPod + "/" + kId);
}

// A process that may be in a pod does not count as a user of the machine.
TEST(PodLocation, IsUnclearWhereThePodIsNotUnderstood) {
  const std::string here = "/kubepods/burstable/pod" + kPod + "/" + kId;
  for (const std::string& text :
       {"12:memory:" + here + "\n11:pids:/kubepods/burstable/pod" + kOther + "/" + kId,
        std::string("0::/kubepods/pod2F0C4A11-9F5D-4D1E-8A77-0A7F6D4C1B22/x"),
        std::string("0::/kubepods/podx"), std::string("0::/kubepods/burstable/else"),
        std::string("0::/../../podx/y"),
        "0::/system.slice/containerd.service/kubepods-burstable-pod" + slice_name(kPod) +
            ".slice:cri-containerd:" + kId,
        "0::/../../../system.slice/containerd.service/kubepods-pod" + slice_name(kPod) +
            ".slice:cri-containerd:" + kId,
        "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + slice_name(kPod) + ".slice/x",
        "0::/system.slice/k3s.service/kubepods/pod" + kPod + "/" + kId, "0::/else/pod" + kPod + "/" + kId}) {
    const PodLocation there = location_of(text);
    EXPECT_TRUE(there.is_unclear) << text;
    EXPECT_FALSE(there.container) << text;
  }
  for (const std::string text :
       {"0::/", "0::/kubepods", "0::/kubepods/burstable", "0::/user.slice/x", "0::/../x"})
    EXPECT_FALSE(location_of(text).is_unclear) << text;
}

TEST(PodLocation, IsThePodIfHierarchiesNameOtherContainersOfIt) {
  const std::string pod = "/kubepods/pod" + kPod;
  for (const std::string& text : {"2:cpu:" + pod + "\n1:pids:" + pod + "/" + kId,
                                  "2:cpu:" + pod + "/" + kId + "\n1:pids:" + pod + "/dd"})
    expect_pod(text);
  const auto removed =
      container_of("0::/kubepods.slice/kubepods-pod" + slice_name(kPod) + ".slice (deleted)");
  ASSERT_TRUE(removed);
  EXPECT_EQ(removed->pod, kPod);
}

TEST(ContainerOf, IsNoneWhereNothingSaysOne) {
  for (const std::string text :
       {"", "\n", "0::/", "0::/system.slice/ssh.service", "0::/kubepods",
        "0::/kubepods.slice/kubepods-burstable.slice", "0::/..", "garbage", ":", "::", "0:/kubepods",
        "0::/kubepods/pod", "0::/kubepods/pod-", "0::/kubepods/podx"})
    expect_none(text);
  expect_none("0::/kubepods/pod" + kPod.substr(1) + "/" + kId);
  expect_none("0::/kubepods/pod" + std::string(36, '-') + "/" + kId);
  expect_none("0::/kubepods/pod" + std::string(32, 'g') + "/" + kId);
  expect_none("0::/kubepods.slice/other-pod" + slice_name(kPod) + ".slice/" + kId);
}

}  // namespace
}  // namespace gpumem::pods
