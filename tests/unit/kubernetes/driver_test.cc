#include "daemon/kubernetes/plugin/driver.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <sstream>
#include <thread>

#include "base/log.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/kubernetes/claim_objects.h"
#include "tests/unit/kubernetes/fake_api_server.h"
#include "tests/unit/kubernetes/fake_broker.h"
#include "tests/unit/kubernetes/kubelet.h"

namespace gpumem::kubernetes::test {
namespace {

using gpumem::test::eventually;
using gpumem::test::read_file;
using gpumem::test::write_file;

const std::string kUuid = "GPU-4bd35415-0b0d-4c5e-9f66-0123456789ab";
const std::string kDevice = "gpu-4bd35415-0b0d-4c5e-9f66-0123456789ab";
const ClaimReference kTrain{.space = "team", .name = "train", .uid = "11111111-2222-3333-4444-555555555555"};
const ClaimReference kServe{.space = "team", .name = "serve", .uid = "66666666-7777-8888-9999-000000000000"};

class DriverTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ / "kubelet/plugins_registry");
    broker_.set_devices({lent_device(kUuid, 24 << 10)});
    server_.put("/api/v1/nodes/node-1", {{"metadata", {{"name", "node-1"}, {"uid", "the-node"}}}});
    server_.put_claim(claim_object("train", kTrain.uid, kDevice, "8Gi"));
    server_.put_claim(claim_object("serve", kServe.uid, kDevice, "12Gi"));
    options_.node = "node-1";
    options_.kubelet_folder = folder_ / "kubelet";
    options_.specs.folder = folder_ / "cdi";
    options_.specs.runtime_folder = folder_.path();
    options_.server = server_.options();
    options_.refresh_period = std::chrono::milliseconds(20);
    options_.publish_period = std::chrono::milliseconds(20);
  }

  void start() {
    auto started = Driver::start(options_);
    ASSERT_TRUE(started) << started.error().message;
    driver_ = std::move(*started);
    kubelet_ = Kubelet::register_driver(folder_ / "kubelet/plugins_registry");
    ASSERT_NE(kubelet_, nullptr);
  }
  void stop() {
    kubelet_.reset();
    driver_.reset();
  }
  std::string error_of(const ClaimReference& claim) {
    return kubelet_->prepare({claim}).claims().at(claim.uid).error();
  }
  std::filesystem::path spec_of(const ClaimReference& claim) const {
    return folder_ / ("cdi/gpumem.dev-slice-" + claim.uid + ".json");
  }
  std::filesystem::path checkpoint() const { return folder_ / "kubelet/plugins/gpumem.dev/checkpoint.json"; }

  gpumem::test::TemporaryFolder folder_;
  FakeBroker broker_{folder_.path()};
  FakeApiServer server_{folder_.path()};
  Driver::Options options_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Kubelet> kubelet_;
};

TEST_F(DriverTest, IsKnownToTheKubeletByItsServices) {
  start();
  EXPECT_EQ(kubelet_->info().type(), "DRAPlugin");
  EXPECT_EQ(kubelet_->info().name(), "gpumem.dev");
  EXPECT_EQ(kubelet_->info().endpoint(), (folder_ / "kubelet/plugins/gpumem.dev/dra.sock").string());
  ASSERT_EQ(kubelet_->info().supported_versions_size(), 3);
  EXPECT_EQ(kubelet_->info().supported_versions(0), "v1.DRAPlugin");
  EXPECT_EQ(kubelet_->info().supported_versions(1), "v1beta1.DRAPlugin");
  EXPECT_EQ(kubelet_->info().supported_versions(2), "v1alpha1.DRAResourceHealth");
}

TEST_F(DriverTest, ServesOnWhenTheKubeletRefusesIt) {
  start();
  const auto refused =
      Kubelet::register_driver(folder_ / "kubelet/plugins_registry", "no such driver wanted");
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(error_of(kTrain), "");
}

TEST_F(DriverTest, PreparedClaimIsTheBrokersAndTheRuntimes) {
  start();
  const auto response = kubelet_->prepare({kTrain, kServe});
  ASSERT_EQ(response.claims_size(), 2);
  const auto& answer = response.claims().at(kTrain.uid);
  EXPECT_EQ(answer.error(), "");
  ASSERT_EQ(answer.devices_size(), 1);
  EXPECT_EQ(answer.devices(0).request_names(0), "gpu");
  EXPECT_EQ(answer.devices(0).pool_name(), "node-1");
  EXPECT_EQ(answer.devices(0).device_name(), kDevice);
  EXPECT_EQ(answer.devices(0).share_id(), "a671734a-e8e5-11e4-8fde-42010af09327");
  ASSERT_EQ(answer.devices(0).cdi_device_ids_size(), 2);
  EXPECT_EQ(answer.devices(0).cdi_device_ids(0), "gpumem.dev/slice=" + kTrain.uid);
  EXPECT_EQ(answer.devices(0).cdi_device_ids(1), "nvidia.com/gpu=" + kUuid);
  const v1::Claim claim = broker_.claims().at(kTrain.uid);
  EXPECT_EQ(claim.namespace_(), "team");
  ASSERT_EQ(claim.pods_size(), 1);
  EXPECT_EQ(claim.pods(0).uid(), "pod-of-" + kTrain.uid);
  ASSERT_EQ(claim.amounts_size(), 1);
  EXPECT_EQ(claim.amounts(0).device(), kUuid);
  EXPECT_EQ(claim.amounts(0).guarantee_bytes(), gibibytes(8).count);
  EXPECT_EQ(claim.amounts(0).limit_bytes(), gibibytes(8).count);
  EXPECT_EQ(broker_.claims().at(kServe.uid).amounts(0).guarantee_bytes(), gibibytes(12).count);
  EXPECT_TRUE(std::filesystem::exists(spec_of(kTrain)));
}

TEST_F(DriverTest, PreparesTheSameTwiceAndAfterARestartWithoutTheApiServer) {
  start();
  const auto first = kubelet_->prepare({kTrain});
  EXPECT_EQ(kubelet_->prepare({kTrain}).SerializeAsString(), first.SerializeAsString());
  stop();
  server_.set_away(true);
  std::filesystem::remove(spec_of(kTrain));  // the machine was started anew
  broker_.forget();
  start();
  EXPECT_EQ(kubelet_->prepare({kTrain}).SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(broker_.claims().count(kTrain.uid), 1u);
  EXPECT_TRUE(std::filesystem::exists(spec_of(kTrain)));
}

TEST_F(DriverTest, UnpreparesAClaimThatIsGoneAfterARestart) {
  start();
  ASSERT_EQ(error_of(kTrain), "");
  stop();
  server_.remove("/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/train");
  start();
  for (int i = 0; i < 2; ++i) {
    const auto response = kubelet_->unprepare({kTrain, kServe});
    ASSERT_EQ(response.claims_size(), 2);
    EXPECT_EQ(response.claims().at(kTrain.uid).error(), "");
    EXPECT_EQ(response.claims().at(kServe.uid).error(), "");  // was never prepared
  }
  EXPECT_TRUE(broker_.claims().empty());
  EXPECT_FALSE(std::filesystem::exists(spec_of(kTrain)));
  EXPECT_EQ(read_file(checkpoint()).find(kTrain.uid), std::string::npos);
}

TEST_F(DriverTest, TheOlderServiceAnswersToo) {
  start();
  dra::v1beta1::NodePrepareResourcesRequest request;
  auto* claim = request.add_claims();
  claim->set_namespace_(kTrain.space);
  claim->set_name(kTrain.name);
  claim->set_uid(kTrain.uid);
  std::string answer;
  ASSERT_TRUE(kubelet_
                  ->call("/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
                         request.SerializeAsString(), answer)
                  .ok());
  dra::v1beta1::NodePrepareResourcesResponse response;
  ASSERT_TRUE(response.ParseFromString(answer));
  EXPECT_EQ(response.claims().at(kTrain.uid).devices(0).device_name(), kDevice);
}

TEST_F(DriverTest, EachClaimFailsForItself) {
  Json wrong = claim_object("serve", kServe.uid, kDevice, "12Gi");
  wrong["status"]["allocation"]["devices"]["config"] = {
      opaque_config("gpumem.dev", limit_parameters("much"))};
  server_.put_claim(wrong);
  start();
  const auto response = kubelet_->prepare({kTrain, kServe});
  EXPECT_EQ(response.claims().at(kTrain.uid).error(), "");
  EXPECT_NE(response.claims()
                .at(kServe.uid)
                .error()
                .find("ResourceClaim team/serve: request gpu: parameters of "
                      "SliceParameters: limit: \"much\""),
            std::string::npos);
  EXPECT_EQ(response.claims().at(kServe.uid).devices_size(), 0);
  EXPECT_EQ(broker_.claims().count(kServe.uid), 0u);
}

TEST_F(DriverTest, NamesTheFaultOfTheDevice) {
  server_.put_claim(claim_object("train", kTrain.uid, kDevice, "25Gi"));
  server_.put_claim(claim_object("serve", kServe.uid, "gpu-gone", "1Gi"));
  start();
  EXPECT_NE(error_of(kTrain).find("it is given 25Gi of " + kDevice + ", of which the broker lends 24Gi"),
            std::string::npos);
  EXPECT_NE(error_of(kServe).find("does not lend gpu-gone"), std::string::npos);
}

TEST_F(DriverTest, TheBrokersRefusalIsThePodsEventAndLeavesNothing) {
  broker_.refuse({grpc::StatusCode::FAILED_PRECONDITION, "4GiB too much is guaranteed"});
  start();
  EXPECT_EQ(error_of(kTrain), "ResourceClaim team/train: the broker refuses: 4GiB too much is guaranteed");
  EXPECT_FALSE(std::filesystem::exists(spec_of(kTrain)));
  EXPECT_EQ(read_file(checkpoint()).find(kTrain.uid), std::string::npos);
}

TEST_F(DriverTest, SaysThatTheApiServerIsAway) {
  start();
  server_.set_away(true);
  EXPECT_NE(error_of(kTrain).find("ResourceClaim team/train: the API server 127.0.0.1:"), std::string::npos);
  server_.set_away(false);
  EXPECT_EQ(error_of(kTrain), "");
}

TEST_F(DriverTest, TruncatedCheckpointIsPutAsideAndNothingIsLost) {
  start();
  ASSERT_EQ(error_of(kTrain), "");
  stop();
  const std::string whole = read_file(checkpoint());
  write_file(checkpoint(), whole.substr(0, whole.size() / 2));
  start();
  EXPECT_EQ(read_file(checkpoint().string() + ".damaged"), whole.substr(0, whole.size() / 2));
  EXPECT_TRUE(std::filesystem::exists(spec_of(kTrain)));  // its pod's containers may start again
  EXPECT_EQ(broker_.claims().count(kTrain.uid), 1u);
  EXPECT_EQ(kubelet_->unprepare({kTrain}).claims().at(kTrain.uid).error(), "");
  EXPECT_FALSE(std::filesystem::exists(spec_of(kTrain)));
  EXPECT_TRUE(broker_.claims().empty());
}

TEST_F(DriverTest, DoesNotStartOnTheCheckpointOfANewerVersion) {
  std::filesystem::create_directories(checkpoint().parent_path());
  write_file(checkpoint(), R"({"version": 2, "claims": []})");
  const auto started = Driver::start(options_);
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message.find("newer gpumem-dra"), std::string::npos);
}

TEST_F(DriverTest, RemovesSpecificationsOfNothingPrepared) {
  start();
  ASSERT_EQ(error_of(kTrain), "");
  stop();
  write_file(spec_of(kServe), "{}");
  start();
  EXPECT_FALSE(std::filesystem::exists(spec_of(kServe)));
  EXPECT_TRUE(std::filesystem::exists(spec_of(kTrain)));
}

TEST_F(DriverTest, PreparesItsClaimsAgainAtABrokerThatForgotThem) {
  start();
  ASSERT_EQ(error_of(kTrain), "");
  server_.set_away(true);  // the driver restores claims without the API server
  broker_.forget();
  EXPECT_TRUE(eventually([&] { return broker_.claims().count(kTrain.uid) == 1; }));
}

TEST_F(DriverTest, PodsThatJoinASharedClaimAreToldToTheBroker) {
  Json shared = claim_object("train", kTrain.uid, kDevice, "8Gi");
  shared["metadata"].erase("ownerReferences");
  server_.put_claim(shared);
  start();
  ASSERT_EQ(error_of(kTrain), "");
  shared["status"]["reservedFor"].push_back(
      {{"resource", "pods"}, {"name", "second"}, {"uid", "second-pod"}});
  server_.put_claim(shared);
  EXPECT_TRUE(eventually([&] { return broker_.claims().at(kTrain.uid).pods_size() == 2; }));
}

TEST_F(DriverTest, PrepareThatTheKubeletHasGivenUpChangesNothing) {
  start();
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  server_.hold("/resourceclaims/train");
  kubelet_->give_up(kTrain, [&] { return server_.is_holding(); });
  server_.let_go();
  stop();  // waits for the call
  spdlog::set_default_logger(before);
  EXPECT_NE(log.str().find("ResourceClaim team/train: the call was given up"), std::string::npos)
      << log.str();
  EXPECT_EQ(broker_.prepared(), 0);
  EXPECT_FALSE(std::filesystem::exists(spec_of(kTrain)));
}

TEST_F(DriverTest, ResourceSliceIsPublishedAndMadeAgain) {
  start();
  ASSERT_TRUE(eventually([&] { return server_.slices().size() == 1; }));
  const Json slice = server_.slices()[0];
  EXPECT_EQ(text_field(slice, {"metadata", "name"}), "node-1-gpumem.dev");
  EXPECT_EQ(slice["metadata"]["ownerReferences"][0]["uid"], "the-node");
  EXPECT_EQ(slice["spec"]["pool"], Json({{"name", "node-1"}, {"generation", 1}, {"resourceSliceCount", 1}}));
  EXPECT_EQ(slice["spec"]["devices"][0]["capacity"]["memory"]["value"], "24Gi");
  server_.remove("node-1-gpumem.dev");  // as the kubelet does when it starts
  EXPECT_TRUE(eventually([&] { return server_.slices().size() == 1; }));
}

TEST_F(DriverTest, OffersNothingToAKubeletThatRefusesIt) {
  auto started = Driver::start(options_);
  ASSERT_TRUE(started) << started.error().message;
  const auto registry = folder_ / "kubelet/plugins_registry";
  // A kubelet of Kubernetes 1.33 says so: it would start pods without their claims.
  ASSERT_NE(Kubelet::register_driver(registry, "no handler registered for plugin type: DRAPlugin"), nullptr);
  const auto offered = [&] {
    return server_.slices().empty() ? -1 : static_cast<int>(server_.slices()[0]["spec"]["devices"].size());
  };
  EXPECT_TRUE(eventually([&] { return offered() == 0; }));
  EXPECT_EQ(server_.slices().at(0)["spec"]["pool"]["generation"], 1);  // and nothing before
  ASSERT_NE(Kubelet::register_driver(registry), nullptr);              // of a newer version
  EXPECT_TRUE(eventually([&] { return offered() == 1; }));
  ASSERT_NE(Kubelet::register_driver(registry, "no handler registered"), nullptr);
  EXPECT_TRUE(eventually([&] { return offered() == 0; }));
}

TEST_F(DriverTest, ResourceSliceOfOtherDevicesHasTheNextGeneration) {
  start();
  ASSERT_TRUE(eventually([&] { return server_.slices().size() == 1; }));
  broker_.set_devices({lent_device(kUuid, 16 << 10)});
  EXPECT_TRUE(eventually([&] {
    const Json spec = server_.slices().at(0)["spec"];
    return spec["pool"]["generation"] == 2 && spec["devices"][0]["capacity"]["memory"]["value"] == "16Gi";
  }));
}

TEST_F(DriverTest, AServerThatDropsFieldsIsNotWrittenToForEver) {
  server_.drop({"allowMultipleAllocations", "requestPolicy"});
  start();
  const auto lists = [&] {
    int count = 0;
    for (const std::string& one : server_.requests())
      count += one.starts_with("GET /apis/resource.k8s.io/v1/resourceslices");
    return count;
  };
  ASSERT_TRUE(eventually([&] { return lists() > 5; }));
  EXPECT_EQ(server_.slices().at(0)["spec"]["pool"]["generation"], 1);
}

// The device's health, as the kubelet hears it until it is `awaited`.
std::string heard(Kubelet& kubelet, const std::string& awaited) {
  std::string last = "nothing";
  kubelet.watch_health([&](const v1alpha1::NodeWatchResourcesResponse& response) {
    if (response.devices_size() != 1) return true;
    const v1alpha1::DeviceHealth& one = response.devices(0);
    EXPECT_EQ(one.device().pool_name(), "node-1");
    EXPECT_EQ(one.device().device_name(), kDevice);
    EXPECT_GT(one.last_updated_time(), 0);
    EXPECT_EQ(one.message().empty(), one.health() == v1alpha1::HEALTHY);
    last = v1alpha1::HealthStatus_Name(one.health());
    return last != awaited;
  });
  return last;
}

TEST_F(DriverTest, TellsTheKubeletHowTheDevicesOfPodsAre) {
  start();
  ASSERT_EQ(error_of(kTrain), "");
  EXPECT_EQ(heard(*kubelet_, "HEALTHY"), "HEALTHY");
  broker_.set_devices({});
  EXPECT_EQ(heard(*kubelet_, "UNHEALTHY"), "UNHEALTHY");
  broker_.set_devices({lent_device(kUuid, 24 << 10)});
  EXPECT_EQ(heard(*kubelet_, "HEALTHY"), "HEALTHY");
}

TEST_F(DriverTest, EndsThoughTheKubeletListens) {
  start();
  std::thread ends;
  const grpc::Status ended = kubelet_->watch_health([&](const v1alpha1::NodeWatchResourcesResponse&) {
    if (!ends.joinable()) ends = std::thread([&] { driver_.reset(); });
    return true;
  });
  ASSERT_TRUE(ends.joinable());
  ends.join();
  EXPECT_TRUE(ended.ok()) << ended.error_message();
}

TEST_F(DriverTest, RemovesItsSocketsAtTheEnd) {
  start();
  stop();
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "kubelet/plugins_registry"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "kubelet/plugins/gpumem.dev/dra.sock"));
}

TEST_F(DriverTest, MakesSocketsThatAreGoneAnew) {
  start();
  for (const char* socket :
       {"kubelet/plugins/gpumem.dev/dra.sock", "kubelet/plugins_registry/gpumem.dev-reg.sock"}) {
    std::filesystem::remove(folder_ / socket);
    kubelet_.reset();
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(folder_ / socket); }));
    EXPECT_TRUE(eventually([&] {
      kubelet_ = Kubelet::register_driver(folder_ / "kubelet/plugins_registry");
      return kubelet_ != nullptr;
    }));
    EXPECT_EQ(error_of(kTrain), "");
  }
}

TEST_F(DriverTest, TwoInstancesServeDuringARollingUpdate) {
  options_.instance = "old";
  start();
  options_.instance = "new";
  auto second = Driver::start(options_);
  ASSERT_TRUE(second) << second.error().message;
  ASSERT_EQ(error_of(kTrain), "");
  stop();
  auto kubelet = Kubelet::register_driver(folder_ / "kubelet/plugins_registry");
  ASSERT_NE(kubelet, nullptr);
  EXPECT_EQ(kubelet->unprepare({kTrain}).claims().at(kTrain.uid).error(), "");
  EXPECT_TRUE(broker_.claims().empty());
}

TEST_F(DriverTest, SaysThatASocketsPathIsTooLong) {
  options_.instance = std::string(100, 'x');
  const auto started = Driver::start(options_);
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message.find("at most 107 bytes"), std::string::npos);
}

TEST_F(DriverTest, NoUidBecomesAPath) {
  start();
  EXPECT_NE(error_of({.space = "team", .name = "train", .uid = "../../x"}).find("is no UID"),
            std::string::npos);
}

}  // namespace
}  // namespace gpumem::kubernetes::test
