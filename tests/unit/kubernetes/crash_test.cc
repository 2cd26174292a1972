// gpumem-dra dies at each of its crash points while a kubelet has a claim prepared or unprepared, and is
// started again: what the kubelet asks for next is done, and in the end nothing of the claim is left.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "base/crash_points.h"
#include "tests/support/child.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/kubernetes/claim_objects.h"
#include "tests/unit/kubernetes/fake_api_server.h"
#include "tests/unit/kubernetes/fake_broker.h"
#include "tests/unit/kubernetes/kubelet.h"

namespace gpumem::kubernetes::test {
namespace {

using gpumem::test::Child;
using gpumem::test::eventually;
using gpumem::test::read_file;

const std::string kLentUuid = "GPU-4bd35415-0b0d-4c5e-9f66-0123456789ab";
const ClaimReference kAsked{.space = "team", .name = "train", .uid = "11111111-2222-3333-4444-555555555555"};

// Files that a Prepare brings to the disk: the checkpoint with the claim, then with its amounts, and the
// specification. An Unprepare brings one, the checkpoint.
constexpr int kFilesOfPrepare = 3;

std::vector<std::string> points_of(std::string_view call, int files) {
  std::vector<std::string> plans;
  for (const CrashPointEntry& entry : kCrashPoints) {
    if (entry.name.starts_with(call)) plans.emplace_back(entry.name);
    if (!entry.name.starts_with("dra.file.")) continue;
    for (int file = 1; file <= files; ++file)
      plans.push_back(std::string(entry.name) + ":" + std::to_string(file));
  }
  return plans;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return c == '.' || c == ':'; }, '_');
  return name;
}

class DriverCrashTest : public testing::TestWithParam<std::string> {
 protected:
  DriverCrashTest() {
    std::filesystem::create_directories(registry());
    broker_.set_devices({lent_device(kLentUuid, 24 << 10)});
    server_.put("/api/v1/nodes/node-1", {{"metadata", {{"name", "node-1"}, {"uid", "the-node"}}}});
    server_.put_claim(claim_object(kAsked.name, kAsked.uid, "gpu-" + kLentUuid.substr(4), "8Gi"));
  }

  std::filesystem::path registry() const { return folder_ / "kubelet/plugins_registry"; }
  std::filesystem::path plugin() const { return folder_ / "kubelet/plugins/gpumem.dev"; }

  void launch(const std::string& plan) {
    const ApiServer::Options server = server_.options();
    child_ = std::make_unique<Child>(gpumem::test::ChildOptions{
        .program = GPUMEM_TEST_DRA,
        .arguments = {"--node-name", "node-1", "--kubelet-dir", folder_ / "kubelet", "--cdi-dir",
                      folder_ / "cdi", "--runtime-dir", folder_.path(), "--api-server",
                      "https://" + server.endpoint.host + ":" + server.endpoint.port, "--token-file",
                      server.token_file, "--ca-file", server.ca_file, "--log-level", "off"},
        .environment = {{"GPUMEM_CRASH_POINT", plan}}});
  }
  // Returns when the kubelet knows it. The sockets of the one before may still be there.
  void start(const std::string& plan = {}) {
    const std::filesystem::path socket = registry() / "gpumem.dev-reg.sock";
    std::error_code none;
    const auto before = std::filesystem::last_write_time(socket, none);
    launch(plan);
    ASSERT_TRUE(eventually([&] {
      const auto now = std::filesystem::last_write_time(socket, none);
      return !none && now != before && (kubelet_ = Kubelet::register_driver(registry())) != nullptr;
    }));
  }
  void start_again(const std::string& plan = {}) {
    kubelet_.reset();
    child_->kill();
    start(plan);
  }

  // The kubelet's calls; what it is told. A driver that dies tells it nothing.
  std::string prepare() {
    const auto answer = kubelet_->prepare({kAsked});
    return answer.claims_size() == 1 ? answer.claims().at(kAsked.uid).error() : "no answer";
  }
  std::string unprepare() {
    const auto answer = kubelet_->unprepare({kAsked});
    return answer.claims_size() == 1 ? answer.claims().at(kAsked.uid).error() : "no answer";
  }
  void expect_death() { EXPECT_EQ(child_->wait(), -SIGKILL) << GetParam() << " was not come by"; }

  std::vector<std::string> files(const std::filesystem::path& folder) const {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder, none))
      names.push_back(entry.path().filename());
    return names;
  }
  void expect_prepared() {
    const auto claims = broker_.claims();
    ASSERT_EQ(claims.size(), 1U);
    EXPECT_EQ(claims.at(kAsked.uid).amounts(0).guarantee_bytes(), gibibytes(8).count);
    EXPECT_EQ(files(folder_ / "cdi"), std::vector<std::string>{"gpumem.dev-slice-" + kAsked.uid + ".json"});
    EXPECT_NE(read_file(plugin() / "checkpoint.json").find(kLentUuid), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(plugin() / "checkpoint.json.new"));
  }
  void expect_nothing_left() {
    EXPECT_TRUE(broker_.claims().empty());
    EXPECT_EQ(files(folder_ / "cdi"), std::vector<std::string>());
    EXPECT_EQ(read_file(plugin() / "checkpoint.json").find(kAsked.uid), std::string::npos);
  }

  gpumem::test::TemporaryFolder folder_;
  FakeBroker broker_{folder_.path()};
  FakeApiServer server_{folder_.path()};
  std::unique_ptr<Child> child_;
  std::unique_ptr<Kubelet> kubelet_;
};

using KilledInPrepare = DriverCrashTest;
INSTANTIATE_TEST_SUITE_P(Points, KilledInPrepare,
                         testing::ValuesIn(points_of("dra.prepare.", kFilesOfPrepare)), test_name);

TEST_P(KilledInPrepare, PreparesWhenItIsAskedAgain) {
  start();  // makes the checkpoint
  start_again(GetParam());
  EXPECT_EQ(prepare(), "no answer");
  expect_death();
  start_again();
  EXPECT_EQ(prepare(), "");
  expect_prepared();
  EXPECT_EQ(unprepare(), "");
  expect_nothing_left();
}

// The pod was deleted meanwhile.
TEST_P(KilledInPrepare, LeavesNothingWhenItIsAskedToUnprepare) {
  start();
  start_again(GetParam());
  EXPECT_EQ(prepare(), "no answer");
  expect_death();
  server_.remove("/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/train");
  start_again();
  EXPECT_EQ(unprepare(), "");
  expect_nothing_left();
}

using KilledInUnprepare = DriverCrashTest;
INSTANTIATE_TEST_SUITE_P(Points, KilledInUnprepare, testing::ValuesIn(points_of("dra.unprepare.", 1)),
                         test_name);

TEST_P(KilledInUnprepare, UnpreparesWhenItIsAskedAgain) {
  start();
  EXPECT_EQ(prepare(), "");
  start_again(GetParam());
  expect_prepared();
  EXPECT_EQ(unprepare(), "no answer");
  expect_death();
  server_.set_away(true);  // unprepare does not need the API server
  start_again();
  EXPECT_EQ(unprepare(), "");
  expect_nothing_left();
}

using KilledInItsFirstStart = DriverCrashTest;
INSTANTIATE_TEST_SUITE_P(Points, KilledInItsFirstStart,
                         testing::Values("dra.file.write", "dra.file.written", "dra.file.renamed"),
                         test_name);

TEST_P(KilledInItsFirstStart, StartsAgain) {
  launch(GetParam());
  expect_death();
  start();
  EXPECT_EQ(prepare(), "");
  expect_prepared();
}

using DiskThatIsFull = DriverCrashTest;
INSTANTIATE_TEST_SUITE_P(Files, DiskThatIsFull, testing::Values("1", "2", "3"), test_name);

TEST_P(DiskThatIsFull, IsTheClaimsErrorAndTheNextPrepareMendsIt) {
  start();
  start_again("dra.file.write:" + GetParam() + "=fail");
  const std::string refused = prepare();
  EXPECT_NE(refused.find("No space left on device"), std::string::npos) << refused;
  EXPECT_NE(refused.find("ResourceClaim team/train"), std::string::npos) << refused;
  EXPECT_TRUE(broker_.claims().empty());
  EXPECT_EQ(files(folder_ / "cdi"), std::vector<std::string>());
  EXPECT_EQ(prepare(), "");
  expect_prepared();
}

TEST_F(DriverCrashTest, DiskThatIsFullKeepsTheClaimUntilItCanBeForgotten) {
  start();
  EXPECT_EQ(prepare(), "");
  start_again("dra.file.write=fail");
  EXPECT_NE(unprepare().find("No space left on device"), std::string::npos);
  start_again();
  EXPECT_EQ(unprepare(), "");
  expect_nothing_left();
}

}  // namespace
}  // namespace gpumem::kubernetes::test
