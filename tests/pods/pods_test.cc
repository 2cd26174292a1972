// Processes of pods: which tenant is charged, which are refused, and which may administer.
#include <gmock/gmock.h>

#include "daemon/kubernetes/claims/device_specs.h"
#include "tests/pods/fixture.h"
#include "tests/support/http_client.h"

namespace gpumem::test {
namespace {

using testing::AllOf, testing::HasSubstr, testing::Not;

class Pods : public PodsBrokerTest {};

TEST_F(Pods, AreTenantsWhoseContainersShareTheirClaim) {
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "train-0")}, mebibytes(32), mebibytes(64))).ok());
  Json connected;
  const auto one = client_of(kAnna, &connected);
  ASSERT_TRUE(succeeded(connected));
  EXPECT_EQ(connected.at("tenant"), "pod ml/train-0");
  EXPECT_TRUE(succeeded(one->grow("a", mebibytes(48))));
  const auto other = client_of(kAnna);
  EXPECT_TRUE(succeeded(other->grow("a", mebibytes(16))));
  EXPECT_TRUE(failed_with(other->grow("a", mebibytes(18)), "RESOURCE_EXHAUSTED"));
  const v1::TenantUsage usage = broker_.tenant("pod ml/train-0");
  EXPECT_EQ(usage.charged(), mebibytes(64).count);
  EXPECT_EQ(usage.guarantee(), mebibytes(32).count);
  EXPECT_EQ(usage.sessions(), 2U);
}

TEST_F(Pods, AreNotTheUsersThatTheyRunAs) {
  const auto user = client_with(mebibytes(2));
  const std::string own = "uid:" + std::to_string(::geteuid());
  EXPECT_EQ(broker_.tenant(own).charged(), mebibytes(2).count);
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "train-0")}, {}, mebibytes(64))).ok());
  EXPECT_EQ(tenant_of(kAnna), "pod ml/train-0");
  EXPECT_EQ(broker_.tenant(own).charged(), mebibytes(2).count);
}

TEST_F(Pods, ThatNothingWasPreparedForAreRefused) {
  Json connected;
  const auto refused = client_of(kAnna, &connected);
  EXPECT_TRUE(failed_with(connected, "PERMISSION_DENIED"));
  EXPECT_THAT(connected.at("message").get<std::string>(), HasSubstr("give the pod a ResourceClaim"));
  EXPECT_TRUE(broker_.sessions().empty());
}

TEST_F(Pods, MayHaveTheDefaultIfItIsConfiguredSo) {
  broker_.reload(pods_config("[kubernetes]\nunprepared = \"default\"\n[default]\nlimit = \"32MiB\"\n"));
  const auto client = client_of(kAnna);
  EXPECT_EQ(broker_.sessions().at(0).tenant(), std::string("pod ") + kAnna);
  EXPECT_TRUE(failed_with(client->grow("a", mebibytes(34)), "RESOURCE_EXHAUSTED"));
  EXPECT_TRUE(succeeded(client->grow("a", mebibytes(32))));
  broker_.reload(pods_config());
  EXPECT_EQ(broker_.tenant(std::string("pod ") + kAnna).limit(), 0U) << "it keeps its tenant, and is in debt";
}

TEST_F(Pods, ThatTheKernelDoesNotShowAreRefusedWhereThereArePods) {
  broker_.reload(pods_config("[kubernetes]\n"));
  ClientProcess unknown(broker_.folder());
  const Json connected = unknown.connect();
  EXPECT_TRUE(failed_with(connected, "PERMISSION_DENIED"));
  EXPECT_THAT(connected.at("message").get<std::string>(), HasSubstr("hostPID"));
}

TEST_F(Pods, ThatShareAClaimAreOneTenant) {
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a"), pod(kBert, "b")}, mebibytes(32), mebibytes(64))).ok());
  const auto one = client_of(kAnna);
  const auto other = client_of(kBert);
  EXPECT_TRUE(succeeded(one->grow("a", mebibytes(40))));
  EXPECT_TRUE(failed_with(other->grow("a", mebibytes(26)), "RESOURCE_EXHAUSTED"));
  EXPECT_EQ(broker_.tenant("claim ml/claim-c1").sessions(), 2U);
}

TEST_F(Pods, BecomeOneTenantWithTheirMemoryWhenTheyComeToShare) {
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a")}, {}, mebibytes(64))).ok());
  const auto one = client_of(kAnna);
  EXPECT_TRUE(succeeded(one->grow("a", mebibytes(40))));
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a"), pod(kBert, "b")}, {}, mebibytes(64))).ok());
  EXPECT_EQ(broker_.tenant("claim ml/claim-c1").charged(), mebibytes(40).count);
  EXPECT_EQ(broker_.tenant("pod ml/a").tenant(), "") << "nothing is left of it";
  EXPECT_EQ(tenant_of(kBert), "claim ml/claim-c1");
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a")}, {}, mebibytes(64))).ok());
  EXPECT_EQ(broker_.tenant("claim ml/claim-c1").charged(), mebibytes(40).count) << "and it stays so";
}

class PodsOfNamespaces : public PodsBrokerTest {
 protected:
  PodsOfNamespaces()
      : PodsBrokerTest(pods_config(R"(
[[tenant]]
name = "cluster"
limit = "128MiB"
[kubernetes]
parent = "cluster"
[[kubernetes.namespace]]
name = "ml"
limit = "64MiB"
)")) {}
};

TEST_F(PodsOfNamespaces, HaveTheLimitOfThatTogether) {
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a")}, {}, mebibytes(200))).ok());
  ASSERT_TRUE(prepare(claim("c2", {pod(kBert, "b")}, {}, mebibytes(200))).ok());
  const auto one = client_of(kAnna);
  const auto other = client_of(kBert);
  EXPECT_TRUE(succeeded(one->grow("a", mebibytes(40))));
  EXPECT_TRUE(failed_with(other->grow("a", mebibytes(26)), "RESOURCE_EXHAUSTED"));
  EXPECT_TRUE(succeeded(other->grow("a", mebibytes(24))));
  EXPECT_EQ(broker_.tenant("namespace ml").charged(), mebibytes(64).count);
  EXPECT_EQ(broker_.tenant("cluster").charged(), mebibytes(64).count);
  EXPECT_EQ(broker_.tenant("pod ml/a").parent(), "namespace ml");
}

TEST_F(PodsOfNamespaces, ThatAreNotNamedBelongToThePodsParent) {
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a", "web")}, {}, mebibytes(200))).ok());
  EXPECT_EQ(broker_.tenant("pod web/a").parent(), "cluster");
}

TEST_F(PodsOfNamespaces, AreNotPromisedMoreThanThatMayHave) {
  const grpc::Status refused = prepare(claim("c1", {pod(kAnna, "a")}, mebibytes(72), mebibytes(100)));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("exceed its limit of 64MiB by 8MiB"));
}

class PodsThatNobodyLooksFor : public PodsBrokerTest {
 protected:
  PodsThatNobodyLooksFor() : PodsBrokerTest(pods_config("[kubernetes]\nlook_for_pods = false\n")) {}
};

TEST_F(PodsThatNobodyLooksFor, AreTheUsersThatTheyRunAs) {
  EXPECT_EQ(tenant_of(kAnna), "uid:" + std::to_string(::geteuid()));
  ClientProcess unknown(broker_.folder());  // the kernel's files do not show it
  EXPECT_TRUE(succeeded(unknown.connect()));
}

TEST_F(PodsThatNobodyLooksFor, GetNoClaims) {
  const grpc::Status refused = prepare(claim("c1", {pod(kAnna, "a")}, {}, mebibytes(64)));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("look_for_pods = false"));
  EXPECT_EQ(claims().claims_size(), 0);
}

TEST_F(Pods, RunAsRootWithoutAdministering) {
  put(::getpid(), kAnna);
  EXPECT_EQ(unprepare("c1").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  const grpc::Status refused = prepare(claim("c1", {pod(kAnna, "a")}, {}, mebibytes(64)));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("hostPID"));
}

// The folder of the sockets is mounted into pods, and root there may connect to all of them.
TEST_F(Pods, ReadNoMetricsOfOthers) {
  const auto scrape = [&] {
    const UniqueFd connection = connect_to(broker_.folder() + "/metrics.sock");
    EXPECT_TRUE(send_all(connection.get(), kLastScrape));
    return read_to_end(connection.get());
  };
  EXPECT_THAT(scrape(), HasSubstr("gpumem_device"));
  put(::getpid(), kAnna);
  EXPECT_THAT(scrape(), AllOf(HasSubstr(" 403 "), Not(HasSubstr("gpumem_device"))));
}

// The journal has all tenants' secrets, and the next broker does not start while another process has the
// lock. Root in a container may open any file that it finds.
TEST_F(Pods, FindTheSocketsAndNothingOfTheBrokersOwn) {
  GPUMEM_NEEDS_ROOT();
  const kubernetes::DeviceSpecs specs(
      {.runtime_folder = broker_.folder(), .injection = kubernetes::Injection::kNone});
  std::string script = "mount -t tmpfs none /run && mkdir /run/gpumemd\n";
  for (const auto& mount : specs.edits().mounts)
    script += "mount --bind " + mount.host.string() + " " + mount.inside + "\n";
  script += "ls /run/gpumemd/*.sock && find /run/gpumemd -type f ! -path '*/driver/*'";
  const Outcome seen = run({.program = "/usr/bin/unshare",
                            .arguments = {"--mount", "sh", "-ec", script},
                            .environment = {},
                            .user = {}});
  EXPECT_EQ(seen.status, 0) << seen.output;
  EXPECT_THAT(seen.output, AllOf(HasSubstr("/run/gpumemd/lane.sock"), HasSubstr("/run/gpumemd/api.sock")));
  EXPECT_THAT(seen.output, AllOf(Not(HasSubstr("journal")), Not(HasSubstr("lock"))));
}

TEST_F(Pods, AdministerIfTheyShareTheMachinesPids) {
  put(::getpid(), kAnna);
  write_file(processes / std::to_string(::getpid()) / "status", "Name:\tx\nNSpid:\t7\nNSpgid:\t1\n");
  EXPECT_TRUE(prepare(claim("c1", {pod(kBert, "b")}, {}, mebibytes(64))).ok());
}

}  // namespace
}  // namespace gpumem::test
