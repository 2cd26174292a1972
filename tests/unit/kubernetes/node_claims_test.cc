#include "daemon/kubernetes/claims/node_claims.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <future>
#include <thread>

#include "daemon/kubernetes/claims/checkpoint.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/kubernetes/claim_objects.h"
#include "tests/unit/kubernetes/fake_api_server.h"
#include "tests/unit/kubernetes/fake_broker.h"

namespace gpumem::kubernetes::test {
namespace {

using gpumem::test::eventually;
using gpumem::test::read_file;
using gpumem::test::write_file;

const std::string kLent = "GPU-4bd35415-0b0d-4c5e-9f66-0123456789ab";
const ClaimReference kClaim{.space = "team", .name = "train", .uid = "11111111-2222-3333-4444-555555555555"};

// Whether somebody waits for the flock(2) of `file`.
bool is_waited_for(const std::filesystem::path& file) {
  struct stat found = {};
  if (::stat(file.c_str(), &found) != 0) return false;
  std::istringstream locks(read_file("/proc/locks"));
  for (std::string line; std::getline(locks, line);) {
    if (line.find("-> FLOCK") != std::string::npos &&
        line.find(":" + std::to_string(found.st_ino) + " ") != std::string::npos)
      return true;
  }
  return false;
}

// Two processes of the driver on one node, as during a rolling update.
class NodeClaimsTest : public testing::Test {
 protected:
  NodeClaimsTest() {
    broker_.set_devices({lent_device(kLent, 24 << 10)});
    server_.put_claim(object());
  }

  static Json object() { return claim_object("train", kClaim.uid, device_name(kLent), "8Gi"); }
  static bool never() { return false; }
  NodeClaims::Options options() const {
    return {.driver = "gpumem.dev", .node = "node-1", .folder = folder_.path()};
  }
  std::filesystem::path spec() const { return folder_ / ("cdi/gpumem.dev-slice-" + kClaim.uid + ".json"); }
  std::filesystem::path checkpoint() const { return folder_ / "checkpoint.json"; }

  void expect_nothing_left() {
    EXPECT_TRUE(broker_.claims().empty());
    EXPECT_FALSE(std::filesystem::exists(spec()));
    EXPECT_EQ(read_file(checkpoint()).find(kClaim.uid), std::string::npos);
  }
  // The claim is shared. It is prepared for its first pod; the API server knows of another one since.
  void let_a_second_pod_join() {
    Json shared = object();
    shared["metadata"].erase("ownerReferences");
    server_.put_claim(shared);
    ASSERT_TRUE(old_.prepare(kClaim, never));
    shared["status"]["reservedFor"].push_back(
        {{"resource", "pods"}, {"name", "second"}, {"uid", "second-pod"}});
    server_.put_claim(shared);
  }
  // `unprepares` does it while `old_` waits for the API server.
  void expect_unprepare_has_the_last_word(NodeClaims& unprepares) {
    server_.hold("/resourceclaims/train");
    auto late = std::async(std::launch::async, [&] { return old_.prepare(kClaim, never); });
    ASSERT_TRUE(eventually([&] { return server_.is_holding(); }));
    EXPECT_TRUE(unprepares.unprepare(kClaim));
    server_.let_go();
    const auto answer = late.get();
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Code::kAborted) << answer.error().message;
    EXPECT_EQ(broker_.prepared(), 0);
    expect_nothing_left();
  }

  gpumem::test::TemporaryFolder folder_;
  FakeBroker broker_{folder_.path()};
  FakeApiServer server_{folder_.path()};
  ApiServer api_{server_.options()};
  BrokerClient client_{folder_ / "api.sock"};
  DeviceSpecs specs_{{.folder = folder_ / "cdi", .runtime_folder = folder_.path()}};
  NodeClaims old_{options(), api_, client_, specs_};
  NodeClaims new_{options(), api_, client_, specs_};
};

TEST_F(NodeClaimsTest, UnprepareMeanwhileHasTheLastWord) { expect_unprepare_has_the_last_word(old_); }

TEST_F(NodeClaimsTest, UnprepareOfAnotherProcessMeanwhileHasTheLastWord) {
  expect_unprepare_has_the_last_word(new_);
}

TEST_F(NodeClaimsTest, PrepareOfACallerThatHasGoneChangesNothing) {
  const auto answer = old_.prepare(kClaim, [] { return true; });
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kCancelled);
  EXPECT_EQ(broker_.prepared(), 0);
  EXPECT_FALSE(std::filesystem::exists(spec()));
  EXPECT_TRUE(new_.prepare(kClaim, never)) << "the next kubelet asks again";
  EXPECT_TRUE(new_.unprepare(kClaim));
  expect_nothing_left();
}

TEST_F(NodeClaimsTest, FailedPrepareLeavesNothing) {
  server_.fail(403, 1);
  EXPECT_FALSE(old_.prepare(kClaim, never));
  expect_nothing_left();
}

TEST_F(NodeClaimsTest, PodsThatJoinWhileTheBrokerIsAwayAreToldToItLater) {
  let_a_second_pod_join();
  broker_.refuse({grpc::StatusCode::UNAVAILABLE, "is being started anew"});
  EXPECT_FALSE(old_.refresh_pods());
  broker_.refuse(grpc::Status::OK);
  EXPECT_TRUE(old_.refresh_pods());
  EXPECT_TRUE(old_.refresh_broker());
  EXPECT_EQ(broker_.claims().at(kClaim.uid).pods_size(), 2);
  const auto calls = broker_.prepared();
  EXPECT_TRUE(old_.refresh_broker());
  EXPECT_EQ(broker_.prepared(), calls) << "nothing has changed since";
}

TEST_F(NodeClaimsTest, PodsBroughtUpToDateBringNoClaimBack) {
  let_a_second_pod_join();
  server_.hold("/resourceclaims/train");
  auto refresh = std::async(std::launch::async, [&] { return old_.refresh_pods(); });
  ASSERT_TRUE(eventually([&] { return server_.is_holding(); }));
  {
    // Another process is unpreparing the claim, and is done when it gives the lock back.
    const auto others = StateLock::take(folder_.path());
    ASSERT_TRUE(others);
    server_.let_go();
    ASSERT_TRUE(eventually([&] { return is_waited_for(folder_ / "serialize.lock"); }));
    ASSERT_TRUE(specs_.remove(kClaim.uid));
    broker_.forget();
    ASSERT_TRUE(Checkpoint(folder_.path()).save({}));
  }
  EXPECT_TRUE(refresh.get());
  expect_nothing_left();
}

TEST_F(NodeClaimsTest, CheckpointDamagedMeanwhileIsPutAsideAndNothingIsLost) {
  ASSERT_TRUE(old_.prepare(kClaim, never));
  write_file(checkpoint(), "{damaged");
  EXPECT_TRUE(old_.refresh_broker());
  EXPECT_EQ(read_file(checkpoint().string() + ".damaged"), "{damaged");
  EXPECT_EQ(broker_.claims().count(kClaim.uid), 1u);
  EXPECT_TRUE(std::filesystem::exists(spec()));
  const auto again = old_.prepare(kClaim, never);
  EXPECT_TRUE(again) << again.error().message;
  write_file(checkpoint(), "{damaged");
  EXPECT_TRUE(old_.unprepare(kClaim));
  expect_nothing_left();
}

TEST_F(NodeClaimsTest, CheckpointThatIsGoneMeanwhileTakesNoClaimAway) {
  ASSERT_TRUE(old_.prepare(kClaim, never));
  std::filesystem::remove(checkpoint());
  EXPECT_TRUE(old_.refresh_broker());
  EXPECT_EQ(broker_.claims().count(kClaim.uid), 1u);
}

TEST_F(NodeClaimsTest, PrepareWithoutASpecificationGivesTheGuaranteeBack) {
  write_file(folder_ / "cdi", "no folder");
  const auto answer = old_.prepare(kClaim, never);
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().message.find((folder_ / "cdi").string()), std::string::npos);
  EXPECT_EQ(broker_.prepared(), 1);
  expect_nothing_left();
  EXPECT_TRUE(old_.unprepare(kClaim));
}

// Whether `work` was done while `folder` could only be read, as far as that thread sees.
bool run_read_only(const std::filesystem::path& folder, const std::function<void()>& work) {
  bool done = false;
  std::thread alone([&] {  // the mounts are its own, and end with it
    constexpr unsigned long kReadOnly = MS_REMOUNT | MS_BIND | MS_RDONLY;
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(folder.c_str(), folder.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount("none", folder.c_str(), nullptr, kReadOnly, nullptr) != 0)
      return;
    work();
    done = true;
  });
  alone.join();
  return done;
}

TEST_F(NodeClaimsTest, FolderThatIsReadOnlyIsNamedAndNothingIsLost) {
  const std::filesystem::path state = folder_ / "state";
  std::filesystem::create_directory(state);
  NodeClaims claims({.driver = "gpumem.dev", .node = "node-1", .folder = state}, api_, client_, specs_);
  ASSERT_TRUE(claims.prepare(kClaim, never));
  const std::string before = read_file(state / "checkpoint.json");
  ClaimReference another = kClaim;
  another.uid.back() = '6';
  std::vector<Result<void>> said;
  const bool done = run_read_only(state, [&] {
    const auto prepared = claims.prepare(another, never);
    said.push_back(prepared ? Result<void>() : Result<void>(prepared.error()));
    said.push_back(claims.unprepare(kClaim));
  });
  if (!done) GTEST_SKIP() << "needs root, to mount";
  for (const Result<void>& one : said) {
    ASSERT_FALSE(one);
    for (const char* word : {"ResourceClaim team/train", state.c_str(), "Read-only file system"})
      EXPECT_NE(one.error().message.find(word), std::string::npos) << one.error().message;
  }
  EXPECT_EQ(read_file(state / "checkpoint.json"), before);
  EXPECT_EQ(broker_.claims().size(), 1U);
  EXPECT_TRUE(std::filesystem::exists(spec()));
  EXPECT_TRUE(claims.unprepare(kClaim));
  EXPECT_TRUE(broker_.claims().empty());
  EXPECT_FALSE(std::filesystem::exists(spec()));
}

TEST_F(NodeClaimsTest, FailingAgainTakesNothingFromThePodsThatHaveIt) {
  ASSERT_TRUE(old_.prepare(kClaim, never));
  std::filesystem::remove_all(folder_ / "cdi");
  write_file(folder_ / "cdi", "no folder");
  EXPECT_FALSE(old_.prepare(kClaim, never));
  EXPECT_EQ(broker_.claims().count(kClaim.uid), 1u);
  EXPECT_NE(read_file(checkpoint()).find(kClaim.uid), std::string::npos);
}

}  // namespace
}  // namespace gpumem::kubernetes::test
