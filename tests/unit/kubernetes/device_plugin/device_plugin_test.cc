#include "daemon/kubernetes/device_plugin/device_plugin.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/system/unique_fd.h"
#include "base/system/unix_socket.h"
#include "daemon/kubernetes/http/api_values.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/kubernetes/device_plugin/plugin_kubelet.h"
#include "tests/unit/kubernetes/fake_broker.h"

namespace gpumem::kubernetes::test {
namespace {

using gpumem::test::eventually;

const std::string kFirst = "GPU-4bd35415-0b0d-4c5e-9f66-0123456789ab";
const std::string kSecond = "GPU-99935415-0b0d-4c5e-9f66-0123456789ab";
const PodName kTrain{.uid = "11111111-2222-3333-4444-555555555555", .space = "team", .name = "train"};
const PodName kServe{.uid = "66666666-7777-8888-9999-000000000000", .space = "team", .name = "serve"};
const std::string kEmptyCheckpoint =
    R"({"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1})";

class DevicePluginTest : public testing::Test {
 protected:
  void SetUp() override {
    broker_ = std::make_unique<FakeBroker>(folder_.path());
    broker_->set_devices({lent_device(kFirst, 24 << 10)});
    options_.kubelet_folder = folder_ / "kubelet";
    options_.specs.folder = folder_ / "cdi";
    options_.specs.runtime_folder = folder_.path();
    options_.refresh_period = std::chrono::milliseconds(20);
    options_.patience = std::chrono::seconds(20);
    kubelet_.start();
  }
  void TearDown() override { plugin_.reset(); }

  void start() {
    auto started = DevicePlugin::start(options_);
    ASSERT_TRUE(started) << started.error().message;
    plugin_ = std::move(*started);
    ASSERT_TRUE(eventually([&] { return kubelet_.healthy() > 0; }));
  }
  void stop() {
    plugin_.reset();
    ASSERT_TRUE(eventually([&] { return kubelet_.healthy() == 0; }));
  }
  // Admits a pod with one container and starts it.
  void run(const PodName& pod, int units) {
    const auto admitted = kubelet_.admit(pod, "main", units);
    ASSERT_TRUE(admitted.ok()) << admitted.error_message();
    const auto started = kubelet_.start_container(pod, "main");
    ASSERT_TRUE(started.ok()) << started.error_message();
  }
  std::uint64_t guaranteed_to(const PodName& pod) {
    const auto claims = broker_->claims();
    const auto found = claims.find(pod.uid);
    return found == claims.end() ? 0 : found->second.amounts(0).guarantee_bytes();
  }
  std::filesystem::path specification() const { return folder_ / "cdi/gpumem.dev-slice-node.json"; }

  gpumem::test::TemporaryFolder folder_;
  std::unique_ptr<FakeBroker> broker_;
  PluginKubelet kubelet_{folder_ / "kubelet"};
  DevicePlugin::Options options_;
  std::unique_ptr<DevicePlugin> plugin_;
};

TEST_F(DevicePluginTest, RegistersItsResourceAndOffersUnits) {
  start();
  EXPECT_EQ(kubelet_.registration().version(), "v1beta1");
  EXPECT_EQ(kubelet_.registration().endpoint(), "gpumem.dev_memory-256Mi.sock");
  EXPECT_EQ(kubelet_.registration().resource_name(), "gpumem.dev/memory-256Mi");
  EXPECT_TRUE(kubelet_.registration().options().pre_start_required());
  EXPECT_TRUE(kubelet_.options().pre_start_required());
  EXPECT_TRUE(kubelet_.options().get_preferred_allocation_available());
  const auto units = kubelet_.units();
  EXPECT_EQ(units.size(), 96u);
  EXPECT_EQ(units.at(kFirst + "::0"), "Healthy");
  EXPECT_EQ(units.count(kFirst + "::95"), 1u);
}

// The kubelet's own bytes: names and numbers that changed on both sides of these tests would agree with each
// other.
TEST(DevicePluginWireTest, MessagesAndServicesAreTheKubelets) {
  ::v1beta1::RegisterRequest request;
  request.set_version("v");
  request.set_endpoint("e");
  request.set_resource_name("r");
  request.mutable_options()->set_pre_start_required(true);
  request.mutable_options()->set_get_preferred_allocation_available(true);
  EXPECT_EQ(request.SerializeAsString(),
            "\x0a\x01v\x12\x01"
            "e\x1a\x01r\x22\x04\x08\x01\x10\x01");
  ::v1beta1::ContainerAllocateResponse answer;
  answer.add_cdi_devices()->set_name("n");
  auto* mount = answer.add_mounts();
  mount->set_container_path("c");
  mount->set_host_path("h");
  mount->set_read_only(true);
  EXPECT_EQ(answer.SerializeAsString(),
            "\x12\x08\x0a\x01"
            "c\x12\x01h\x18\x01\x2a\x03\x0a\x01n");
  ::v1beta1::ListAndWatchResponse list;
  list.add_devices()->set_id("i");
  list.mutable_devices(0)->set_health("h");
  EXPECT_EQ(list.SerializeAsString(), "\x0a\x06\x0a\x01i\x12\x01h");
  ::v1::ListPodResourcesResponse pods;
  EXPECT_TRUE(
      pods.ParseFromString("\x0a\x13\x0a\x01p\x12\x01s\x1a\x0b\x0a\x01"
                           "c\x12\x06\x0a\x01r\x12\x01"
                           "d"));
  EXPECT_EQ(pods.pod_resources(0).namespace_(), "s");
  EXPECT_EQ(pods.pod_resources(0).containers(0).devices(0).device_ids(0), "d");
  EXPECT_STREQ(::v1beta1::DevicePlugin::service_full_name(), "v1beta1.DevicePlugin");
  EXPECT_STREQ(::v1beta1::Registration::service_full_name(), "v1beta1.Registration");
  EXPECT_STREQ(::v1::PodResourcesLister::service_full_name(), "v1.PodResourcesLister");
}

TEST_F(DevicePluginTest, RegistersWithAKubeletThatComesLater) {
  kubelet_.stop();
  auto started = DevicePlugin::start(options_);
  ASSERT_TRUE(started) << started.error().message;
  plugin_ = std::move(*started);
  kubelet_.start();
  EXPECT_TRUE(eventually([&] { return kubelet_.healthy() == 96; }));
}

TEST_F(DevicePluginTest, RegistersAgainWithAKubeletThatWasStartedAnew) {
  options_.refresh_period = std::chrono::hours(1);  // so that it has to see the sockets go and come
  start();
  run(kTrain, 4);
  kubelet_.stop();
  kubelet_.start();  // removes the plugin's socket
  ASSERT_TRUE(eventually([&] { return kubelet_.healthy() == 96; }));
  EXPECT_EQ(kubelet_.registrations(), 2);
  EXPECT_TRUE(kubelet_.start_container(kTrain, "main").ok());
  EXPECT_EQ(guaranteed_to(kTrain), gibibytes(1).count);
}

TEST_F(DevicePluginTest, ContainerGetsTheSpecificationAndItsGpu) {
  start();
  run(kTrain, 4);
  const auto answer = kubelet_.answer(kTrain, "main");
  ASSERT_EQ(answer.cdi_devices_size(), 2);
  EXPECT_EQ(answer.cdi_devices(0).name(), "gpumem.dev/slice=node");
  EXPECT_EQ(answer.cdi_devices(1).name(), "nvidia.com/gpu=" + kFirst);
  EXPECT_EQ(answer.envs_size(), 0);
  EXPECT_EQ(answer.mounts_size(), 0);
  const Json spec = parse_json(gpumem::test::read_file(specification()));
  EXPECT_EQ(spec["devices"][0]["name"], "node");
  EXPECT_EQ(spec["devices"][0]["containerEdits"]["mounts"][0]["containerPath"], "/run/gpumemd");
}

TEST_F(DevicePluginTest, SpecificationIsThereAgainBeforeAContainerStarts) {
  start();
  run(kTrain, 4);
  std::filesystem::remove(specification());  // the machine was started anew
  ASSERT_TRUE(kubelet_.start_container(kTrain, "main").ok());
  EXPECT_TRUE(std::filesystem::exists(specification()));
}

TEST_F(DevicePluginTest, KubeletHandsOverForARuntimeWithoutCdi) {
  options_.service.hand_over = HandOver::kKubelet;
  start();
  run(kTrain, 4);
  const auto answer = kubelet_.answer(kTrain, "main");
  EXPECT_EQ(answer.cdi_devices_size(), 0);
  EXPECT_EQ(answer.envs().at("GPUMEM_RUNTIME_DIR"), "/run/gpumemd");
  EXPECT_EQ(answer.envs().at("LD_PRELOAD"),
            "/usr/lib/gpumem/shim/libcuda.so.1:/usr/lib/gpumem/shim/libnvidia-ml.so.1");
  EXPECT_EQ(answer.envs().at("NVIDIA_VISIBLE_DEVICES"), kFirst);
  ASSERT_EQ(answer.mounts_size(), 3);
  EXPECT_EQ(answer.mounts(0).host_path(), folder_.path().string());
  EXPECT_EQ(answer.mounts(0).container_path(), "/run/gpumemd");
  EXPECT_TRUE(answer.mounts(0).read_only());
  EXPECT_FALSE(std::filesystem::exists(specification()));
}

TEST_F(DevicePluginTest, ContainerStartsWithItsPodsClaimPrepared) {
  start();
  ASSERT_TRUE(kubelet_.admit(kTrain, "main", 32).ok());
  const auto started = kubelet_.start_container(kTrain, "main");
  ASSERT_TRUE(started.ok()) << started.error_message();
  const v1::Claim claim = broker_->claims().at(kTrain.uid);
  EXPECT_EQ(claim.namespace_(), "team");
  EXPECT_EQ(claim.name(), "train");
  ASSERT_EQ(claim.pods_size(), 1);
  EXPECT_EQ(claim.pods(0).uid(), kTrain.uid);
  EXPECT_EQ(claim.pods(0).name(), "train");
  ASSERT_EQ(claim.amounts_size(), 1);
  EXPECT_EQ(claim.amounts(0).device(), kFirst);
  EXPECT_EQ(claim.amounts(0).guarantee_bytes(), gibibytes(8).count);
  EXPECT_EQ(claim.amounts(0).limit_bytes(), gibibytes(8).count);
}

TEST_F(DevicePluginTest, ContainersOfAPodAddUpBeforeTheFirstStarts) {
  start();
  ASSERT_TRUE(kubelet_.admit(kTrain, "one", 4).ok());
  ASSERT_TRUE(kubelet_.admit(kTrain, "two", 8).ok());
  ASSERT_TRUE(kubelet_.start_container(kTrain, "one").ok());
  EXPECT_EQ(guaranteed_to(kTrain), gibibytes(3).count);
  ASSERT_TRUE(kubelet_.start_container(kTrain, "two").ok());
  EXPECT_EQ(guaranteed_to(kTrain), gibibytes(3).count);
  EXPECT_EQ(broker_->claims().size(), 1u);
}

TEST_F(DevicePluginTest, UnitsOfAnInitContainerAreCountedOnce) {
  start();
  ASSERT_TRUE(kubelet_.admit(kTrain, "load", 4, ContainerKind::kInit).ok());
  ASSERT_TRUE(kubelet_.admit(kTrain, "main", 8).ok());
  const auto started = kubelet_.start_container(kTrain, "load");
  ASSERT_TRUE(started.ok()) << started.error_message();
  EXPECT_EQ(guaranteed_to(kTrain), gibibytes(2).count);
}

TEST_F(DevicePluginTest, PodWithUnitsInAnInitContainerAloneIsRefusedWithAdvice) {
  start();
  ASSERT_TRUE(kubelet_.admit(kTrain, "load", 4, ContainerKind::kInit).ok());
  const auto refused = kubelet_.start_container(kTrain, "load");
  EXPECT_NE(refused.error_message().find("have another container of the pod ask, too"), std::string::npos)
      << refused.error_message();
  EXPECT_TRUE(broker_->claims().empty());
}

TEST_F(DevicePluginTest, PodThatHasEndedLosesItsClaim) {
  start();
  run(kTrain, 4);
  run(kServe, 8);
  kubelet_.end(kTrain);
  EXPECT_TRUE(eventually([&] { return broker_->claims().count(kTrain.uid) == 0; }));
  EXPECT_EQ(guaranteed_to(kServe), gibibytes(2).count);
}

TEST_F(DevicePluginTest, UnitsOfAnEndedPodAreFreeWhenTheNextOneStarts) {
  options_.refresh_period = std::chrono::hours(1);  // so that only the start of a container can
  start();
  run(kTrain, 96);
  kubelet_.end(kTrain);
  run(kServe, 96);
  EXPECT_EQ(broker_->claims().count(kTrain.uid), 0u);
  EXPECT_EQ(guaranteed_to(kServe), gibibytes(24).count);
}

TEST_F(DevicePluginTest, PodOfTheSameNameIsAnotherPod) {
  start();
  run(kTrain, 4);
  kubelet_.end(kTrain);
  PodName next = kTrain;
  next.uid = kServe.uid;
  run(next, 4);
  EXPECT_TRUE(eventually([&] { return broker_->claims().size() == 1; }));
  EXPECT_EQ(guaranteed_to(next), gibibytes(1).count);
}

TEST_F(DevicePluginTest, RestartLosesNothingAndLeaksNothing) {
  start();
  run(kTrain, 4);
  run(kServe, 8);
  stop();
  kubelet_.end(kTrain);
  v1::Claim lost = broker_->claims().at(kServe.uid);
  broker_->forget();
  start();
  EXPECT_TRUE(eventually([&] { return guaranteed_to(kServe) == gibibytes(2).count; }));
  EXPECT_EQ(broker_->claims().count(kTrain.uid), 0u);
  EXPECT_EQ(broker_->claims().at(kServe.uid).SerializeAsString(), lost.SerializeAsString());
}

TEST_F(DevicePluginTest, OtherUnitTakesNothingFromPodsThatRun) {
  start();
  run(kTrain, 4);
  stop();
  options_.unit = gibibytes(1);
  start();
  run(kServe, 2);
  const int rounds = broker_->listed();
  ASSERT_TRUE(eventually([&] { return broker_->listed() >= rounds + 3; }));
  EXPECT_EQ(guaranteed_to(kTrain), gibibytes(1).count);
  EXPECT_EQ(guaranteed_to(kServe), gibibytes(2).count);
  kubelet_.end(kTrain);
  EXPECT_TRUE(eventually([&] { return broker_->claims().count(kTrain.uid) == 0; }));
}

TEST_F(DevicePluginTest, SocketOfAPluginThatWasKilledIsReplaced) {
  const std::filesystem::path socket = folder_ / "kubelet/device-plugins/gpumem.dev_memory-256Mi.sock";
  const UniqueFd left(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(bind_unix(left.get(), socket), 0);
  start();
  stop();
  EXPECT_FALSE(std::filesystem::exists(socket));
}

TEST_F(DevicePluginTest, UnitsHaveNoHealthWhileTheBrokerIsAway) {
  start();
  broker_.reset();
  EXPECT_TRUE(eventually([&] { return kubelet_.healthy() == 0; }));
  EXPECT_EQ(kubelet_.units().size(), 96u);
  broker_ = std::make_unique<FakeBroker>(folder_.path());
  broker_->set_devices({lent_device(kFirst, 24 << 10)});
  EXPECT_TRUE(eventually([&] { return kubelet_.healthy() == 96; }));
}

TEST_F(DevicePluginTest, UnitsOfADeviceThatHasFailedHaveNoHealth) {
  broker_->set_devices({lent_device(kFirst, 1024), lent_device(kSecond, 1024)});
  start();
  ASSERT_EQ(kubelet_.healthy(), 8);
  broker_->set_devices({lent_device(kSecond, 1024)});
  EXPECT_TRUE(eventually([&] { return kubelet_.healthy() == 4; }));
  EXPECT_EQ(kubelet_.units().at(kFirst + "::0"), "Unhealthy");
}

TEST_F(DevicePluginTest, ContainerDoesNotStartWhileTheBrokerIsAway) {
  start();
  ASSERT_TRUE(kubelet_.admit(kTrain, "main", 4).ok());
  broker_.reset();
  const auto refused = kubelet_.start_container(kTrain, "main");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(refused.error_message().find("is gpumemd running?"), std::string::npos)
      << refused.error_message();
}

TEST_F(DevicePluginTest, TheBrokersRefusalIsThePodsEvent) {
  start();
  broker_->refuse({grpc::StatusCode::FAILED_PRECONDITION, "4GiB too much is guaranteed"});
  ASSERT_TRUE(kubelet_.admit(kTrain, "main", 4).ok());
  EXPECT_EQ(kubelet_.start_container(kTrain, "main").error_message(),
            "pod team/train (" + kTrain.uid + "): the broker refuses: 4GiB too much is guaranteed");
}

TEST_F(DevicePluginTest, ClaimsThatTheBrokerHasLostAreMadeAgain) {
  start();
  run(kTrain, 4);
  broker_->forget();
  EXPECT_TRUE(eventually([&] { return guaranteed_to(kTrain) == gibibytes(1).count; }));
}

TEST_F(DevicePluginTest, KubeletIsLeftAloneWhileNothingChanges) {
  start();
  run(kTrain, 4);
  ASSERT_TRUE(eventually([&] { return broker_->claims().size() == 1; }));
  const int rounds = broker_->listed();
  const int written = kubelet_.checkpoints();
  ASSERT_TRUE(eventually([&] { return broker_->listed() >= rounds + 10; }));
  EXPECT_LE(kubelet_.checkpoints(), written + 2);  // what was asked for before may still have been on its way
}

TEST_F(DevicePluginTest, ContainerStaysOnOneGpu) {
  broker_->set_devices({lent_device(kFirst, 2048), lent_device(kSecond, 2048)});
  start();
  run(kTrain, 5);
  const auto taken = units_by_device(kubelet_.units_of(kTrain, "main"));
  ASSERT_EQ(taken->size(), 1u);
  run(kServe, 6);  // has room on the other one alone
  EXPECT_NE(units_by_device(kubelet_.units_of(kServe, "main"))->begin()->first, taken->begin()->first);
  const auto refused = kubelet_.admit({"u", "team", "third"}, "main", 4);  // three here, two there
  EXPECT_NE(refused.error_message().find("no GPU of this node has 4 units free"), std::string::npos)
      << refused.error_message();
}

TEST_F(DevicePluginTest, ContainerThatAsksForMoreThanAGpuGetsSeveral) {
  broker_->set_devices({lent_device(kFirst, 1024), lent_device(kSecond, 1024)});
  start();
  run(kTrain, 6);
  EXPECT_EQ(kubelet_.answer(kTrain, "main").cdi_devices_size(), 3);
  EXPECT_EQ(broker_->claims().at(kTrain.uid).amounts_size(), 2);
}

TEST_F(DevicePluginTest, UnitsThatAreNotOfferedAreRefused) {
  start();
  for (const std::string& id : {std::string("nonsense"), kFirst + "::96", std::string("GPU-other::0")}) {
    ::v1beta1::AllocateResponse response;
    EXPECT_EQ(kubelet_.allocate({id}, response).error_code(), grpc::StatusCode::INVALID_ARGUMENT) << id;
  }
  ::v1beta1::AllocateResponse response;
  EXPECT_FALSE(kubelet_.allocate({}, response).ok());
  EXPECT_FALSE(kubelet_.pre_start({}).ok());
  EXPECT_NE(kubelet_.pre_start({kFirst + "::0"}).error_message().find("does not say which pod has"),
            std::string::npos);  // nobody was given it
  EXPECT_TRUE(broker_->claims().empty());
}

TEST_F(DevicePluginTest, DamagedCheckpointPreparesNothingAndTakesNothingAway) {
  start();
  run(kTrain, 4);
  ASSERT_TRUE(kubelet_.admit(kServe, "main", 4).ok());
  ASSERT_TRUE(eventually([&] { return broker_->claims().size() == 2; }));
  const auto before = broker_->claims();
  for (const std::string& text : {std::string(R"({"Data":{"PodDevice)"), std::string("{}"), std::string()}) {
    kubelet_.write_instead(text, -1);
    const auto refused = kubelet_.start_container(kServe, "main");
    EXPECT_NE(refused.error_message().find("kubelet_internal_checkpoint: it is damaged"), std::string::npos)
        << refused.error_message();
  }
  EXPECT_EQ(broker_->claims().size(), before.size());
}

TEST_F(DevicePluginTest, OlderCheckpointWrittenOverANewerOneIsSeen) {
  options_.refresh_period = std::chrono::hours(1);  // so that the start of the container is what sees it
  start();
  run(kTrain, 4);
  ASSERT_TRUE(kubelet_.admit(kServe, "main", 4).ok());
  kubelet_.write_instead(kEmptyCheckpoint, 1);
  const auto started = kubelet_.start_container(kServe, "main");
  EXPECT_TRUE(started.ok()) << started.error_message();
  EXPECT_EQ(guaranteed_to(kTrain), gibibytes(1).count);
}

TEST_F(DevicePluginTest, CheckpointThatLacksListedPodsTakesNothingAway) {
  start();
  run(kTrain, 4);
  kubelet_.write_instead(kEmptyCheckpoint, -1);
  broker_->set_devices({lent_device(kFirst, 12 << 10)});  // has the kubelet write
  ASSERT_TRUE(eventually([&] { return kubelet_.units().size() == 48; }));
  const int rounds = broker_->listed();
  ASSERT_TRUE(eventually([&] { return broker_->listed() >= rounds + 2; }));  // so one has ended
  EXPECT_EQ(guaranteed_to(kTrain), gibibytes(1).count);
}

TEST_F(DevicePluginTest, NothingIsTakenAwayWhileTheKubeletListsNoPods) {
  start();
  run(kTrain, 4);
  kubelet_.set_listing(false);
  kubelet_.end(kTrain);
  const auto refused = kubelet_.start_container(kTrain, "main");
  EXPECT_NE(refused.error_message().find("the kubelet does not list its pods"), std::string::npos)
      << refused.error_message();
  EXPECT_EQ(guaranteed_to(kTrain), gibibytes(1).count);
  kubelet_.set_listing(true);
  EXPECT_TRUE(eventually([&] { return broker_->claims().empty(); }));
}

TEST_F(DevicePluginTest, KubeletThatCannotWriteIsNamed) {
  start();
  ASSERT_TRUE(kubelet_.admit(kTrain, "main", 4).ok());
  ASSERT_TRUE(eventually([&] { return guaranteed_to(kTrain) != 0; }));
  stop();
  options_.patience = std::chrono::milliseconds(50);
  start();
  kubelet_.set_disk_full(true);
  const auto refused = kubelet_.start_container(kTrain, "main");
  EXPECT_NE(refused.error_message().find("the kubelet has not written its checkpoint"), std::string::npos)
      << refused.error_message();
  EXPECT_EQ(guaranteed_to(kTrain), gibibytes(1).count);
}

TEST_F(DevicePluginTest, UnitsThatTheKubeletListsForTwoPodsAreRefused) {
  options_.refresh_period = std::chrono::hours(1);
  start();
  run(kTrain, 4);
  kubelet_.list_all_for(kTrain);
  ASSERT_TRUE(kubelet_.admit(kServe, "main", 4).ok());
  const auto refused = kubelet_.start_container(kServe, "main");
  EXPECT_NE(refused.error_message().find("lists its units for the pods"), std::string::npos)
      << refused.error_message();
  EXPECT_EQ(broker_->claims().count(kServe.uid), 0u);
}

TEST_F(DevicePluginTest, DoesNotStartWithAUnitThatCannotBeLent) {
  options_.unit = mebibytes(3);
  const auto started = DevicePlugin::start(options_);
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message.find("use a multiple of 2Mi"), std::string::npos);
}

TEST_F(DevicePluginTest, SaysThatItsSocketsPathIsTooLong) {
  options_.domain = std::string(100, 'x');
  const auto started = DevicePlugin::start(options_);
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message.find("at most 107 bytes"), std::string::npos);
}

}  // namespace
}  // namespace gpumem::kubernetes::test
