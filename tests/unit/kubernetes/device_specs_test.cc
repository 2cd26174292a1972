#include "daemon/kubernetes/claims/device_specs.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/temporary_folder.h"

namespace gpumem::kubernetes {
namespace {

Json spec_in(const gpumem::test::TemporaryFolder& folder) {
  return Json::parse(gpumem::test::read_file(folder / "cdi/gpumem.dev-slice-u.json"));
}

TEST(DeviceSpecsTest, GiveAContainerTheSocketsAndTheDropInDriver) {
  const gpumem::test::TemporaryFolder folder;
  const DeviceSpecs specs(
      {.folder = folder / "cdi", .runtime_folder = "/srv/broker", .shim_folder = "/srv/shim"});
  ASSERT_TRUE(specs.write("u"));
  const Json spec = spec_in(folder);
  EXPECT_EQ(spec["cdiVersion"], "0.6.0");
  EXPECT_EQ(spec["kind"], "gpumem.dev/slice");
  EXPECT_EQ(spec["devices"].size(), 1u);
  EXPECT_EQ(spec["devices"][0]["name"], "u");
  const Json& edits = spec["devices"][0]["containerEdits"];
  EXPECT_EQ(edits["env"][0], "GPUMEM_RUNTIME_DIR=/run/gpumemd");
  EXPECT_EQ(edits["env"][1],
            "LD_PRELOAD=/usr/lib/gpumem/shim/libcuda.so.1:/usr/lib/gpumem/shim/libnvidia-ml.so.1");
  EXPECT_EQ(edits["mounts"][0]["hostPath"], "/srv/broker");
  EXPECT_EQ(edits["mounts"][0]["containerPath"], "/run/gpumemd");
  EXPECT_EQ(edits["mounts"][1]["hostPath"], "/srv/broker/empty");
  EXPECT_EQ(edits["mounts"][1]["containerPath"], "/run/gpumemd/private");
  EXPECT_EQ(edits["mounts"][2]["hostPath"], "/srv/shim");
  EXPECT_EQ(edits["mounts"][2]["options"], Json({"ro", "nosuid", "nodev", "rbind", "rprivate"}));
  EXPECT_EQ(specs.list(), std::vector<std::string>{"u"});
  ASSERT_TRUE(specs.remove("u"));
  EXPECT_TRUE(specs.remove("u"));
  EXPECT_TRUE(specs.list().empty());
}

TEST(DeviceSpecsTest, LeaveOutUnwantedParts) {
  const gpumem::test::TemporaryFolder folder;
  const DeviceSpecs specs(
      {.folder = folder / "cdi", .injection = Injection::kNone, .framework_settings = false});
  ASSERT_TRUE(specs.write("u"));
  const Json edits = spec_in(folder)["devices"][0]["containerEdits"];
  EXPECT_EQ(edits["env"], Json::array({"GPUMEM_RUNTIME_DIR=/run/gpumemd"}));
  EXPECT_EQ(edits["mounts"].size(), 2u);
}

TEST(DeviceSpecsTest, GiveTheGroupThatMayConnect) {
  const gpumem::test::TemporaryFolder folder;
  gpumem::test::write_file(folder / "lane.sock", "");
  if (::chown((folder / "lane.sock").c_str(), static_cast<uid_t>(-1), 4242) != 0)
    GTEST_SKIP() << "needs root";
  ::chmod((folder / "lane.sock").c_str(), 0660);
  const DeviceSpecs specs({.folder = folder / "cdi", .runtime_folder = folder.path()});
  ASSERT_TRUE(specs.write("u"));
  EXPECT_EQ(spec_in(folder)["cdiVersion"], "0.7.0");
  EXPECT_EQ(spec_in(folder)["devices"][0]["containerEdits"]["additionalGids"], Json::array({4242}));
  ::chmod((folder / "lane.sock").c_str(), 0666);  // everybody may
  ASSERT_TRUE(specs.write("u"));
  EXPECT_FALSE(spec_in(folder)["devices"][0]["containerEdits"].contains("additionalGids"));
}

}  // namespace
}  // namespace gpumem::kubernetes
