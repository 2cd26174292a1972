// Claims that are prepared for pods: how long they are in force, and what follows when they are withdrawn.
#include <gmock/gmock.h>

#include "tests/pods/fixture.h"

namespace gpumem::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Claims : public PodsBrokerTest {
 protected:
  using PodsBrokerTest::PodsBrokerTest;
};

TEST_F(Claims, AreInForceAndListedUntilTheyAreTakenAway) {
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a")}, mebibytes(32), mebibytes(64))).ok());
  EXPECT_EQ(broker_.device().guaranteed(), mebibytes(32).count);
  ASSERT_EQ(claims().claims_size(), 1);
  EXPECT_EQ(claims().claims(0).name(), "claim-c1");
  EXPECT_EQ(claims().claims(0).pods(0).uid(), kAnna);
  EXPECT_EQ(claims().claims(0).amounts(0).limit_bytes(), mebibytes(64).count);
  ASSERT_TRUE(unprepare("c1").ok());
  EXPECT_EQ(claims().claims_size(), 0);
  EXPECT_EQ(broker_.device().guaranteed(), 0U);
  EXPECT_EQ(broker_.tenant("pod ml/a").tenant(), "");
}

TEST_F(Claims, AreTheSameHoweverOftenTheyAreAskedFor) {
  const v1::Claim same = claim("c1", {pod(kAnna, "a")}, mebibytes(32), mebibytes(64));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(prepare(same).ok());
  EXPECT_EQ(broker_.device().guaranteed(), mebibytes(32).count);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(unprepare("c1").ok());
  ASSERT_TRUE(unprepare("never-seen").ok());
}

TEST_F(Claims, OfOnePodAddUp) {
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a")}, mebibytes(32), mebibytes(64))).ok());
  ASSERT_TRUE(prepare(claim("c2", {pod(kAnna, "a")}, mebibytes(16), mebibytes(16))).ok());
  EXPECT_EQ(broker_.tenant("pod ml/a").guarantee(), mebibytes(48).count);
  EXPECT_EQ(broker_.tenant("pod ml/a").limit(), mebibytes(80).count);
  ASSERT_TRUE(unprepare("c1").ok());
  EXPECT_EQ(broker_.tenant("pod ml/a").limit(), mebibytes(16).count);
}

TEST_F(Claims, AreInForceBeforeTheNextBrokerAdmitsAnybody) {
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a")}, mebibytes(32), mebibytes(64))).ok());
  for (int i = 0; i < 2; ++i) {
    broker_.kill();
    broker_.start_again();
    EXPECT_EQ(broker_.device().guaranteed(), mebibytes(32).count);
    EXPECT_EQ(tenant_of(kAnna), "pod ml/a");
  }
}

TEST_F(Claims, KeepTheirPodsMemoryOverARestart) {
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a")}, {}, mebibytes(64))).ok());
  const auto client = client_of(kAnna);
  ASSERT_TRUE(succeeded(client->grow("a", mebibytes(40))));
  broker_.kill();
  broker_.start_again();
  EXPECT_EQ(broker_.tenant("pod ml/a").charged(), mebibytes(40).count);
  EXPECT_TRUE(succeeded(client->grow("a", mebibytes(64))));
  EXPECT_TRUE(failed_with(client->grow("a", mebibytes(66)), "RESOURCE_EXHAUSTED"));
}

TEST_F(Claims, ThatCannotBeKeptAreRefusedInWords) {
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a")}, mebibytes(200), mebibytes(200))).ok());
  const grpc::Status refused = prepare(claim("c2", {pod(kBert, "b")}, mebibytes(32), mebibytes(64)));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(),
              AllOf(HasSubstr("exceed its pool of 224MiB by 8MiB"), HasSubstr("pod ml/b")));
  EXPECT_EQ(claims().claims_size(), 1);
  v1::Claim elsewhere = claim("c3", {pod(kBert, "b")}, {}, mebibytes(64));
  elsewhere.mutable_amounts(0)->set_device("GPU-none");
  EXPECT_EQ(prepare(elsewhere).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(prepare(claim("c4", {pod(kBert, "b")}, {}, Bytes{100})).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(Claims, ThatAreNoneAreRefused) {
  const auto refused = [&](const v1::Claim& claim, const std::string& words) {
    const grpc::Status status = prepare(claim);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << words;
    EXPECT_THAT(status.error_message(), HasSubstr(words));
  };
  const Bytes some = mebibytes(64);
  refused(claim("", {pod(kAnna, "a")}, {}, some), "its uid is none");
  refused(claim("c1", {}, {}, some), "it has no pods");
  refused(claim("c1", {pod("nobody", "a")}, {}, some), "no uid of a pod");
  refused(claim("c1", {pod(kAnna, "a b")}, {}, some), "has no name");
  refused(claim("c1", {pod(kAnna, "a", "ml/x")}, {}, some), "its namespace is none");
  refused(claim("c1", {pod(kAnna, "a"), pod(kBert, "b", "web")}, {}, some), "are of one namespace");
  refused(claim("c1", {pod(kAnna, "a")}, {}, {}), "lends nothing");
  refused(claim("c1", {pod(kAnna, "a")}, some, mebibytes(32)), "is more than its limit of 32MiB");
  v1::Claim empty = claim("c1", {pod(kAnna, "a")}, {}, some);
  empty.clear_amounts();
  refused(empty, "asks for no device");
  refused(claim("c1", std::vector<v1::Pod>(1025, pod(kAnna, "a")), {}, some), "more than 1024 pods");
  v1::Claim full = claim("c1", {pod(kAnna, "a")}, {}, some);
  for (int i = 0; i < 256; ++i) *full.add_amounts() = full.amounts(0);
  refused(full, "more than 256 amounts");
}

TEST_F(Claims, WithTheLongestNamesAreReadByTheNextBroker) {
  v1::Claim longest =
      claim(std::string(64, 'u'), {pod(kAnna, std::string(253, 'a')), pod(kBert, "b")}, {}, mebibytes(64));
  longest.set_name(std::string(253, 'n'));
  ASSERT_TRUE(prepare(longest).ok());
  longest.set_uid(std::string(65, 'u'));
  EXPECT_EQ(prepare(longest).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  broker_.kill();
  broker_.start_again();
  EXPECT_EQ(claims().claims_size(), 1);
  EXPECT_THAT(tenant_of(kBert), testing::StartsWith("claim ml/nnn"));
}

TEST_F(Claims, PutAPodInOneNamespace) {
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a")}, {}, mebibytes(64))).ok());
  const grpc::Status other = prepare(claim("c2", {pod(kAnna, "a", "web")}, {}, mebibytes(64)));
  EXPECT_EQ(other.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(other.error_message(), HasSubstr("is in namespace 'ml' by claim ml/claim-c1"));
  ASSERT_TRUE(unprepare("c1").ok());
  EXPECT_TRUE(prepare(claim("c2", {pod(kAnna, "a", "web")}, {}, mebibytes(64))).ok());
}

TEST_F(Claims, AreListedByTheCommand) {
  EXPECT_EQ(gpumem({"claims"}).output, "nothing is prepared for pods\n");
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a"), pod(kBert, "b")}, mebibytes(32), mebibytes(64))).ok());
  const Outcome listed = gpumem({"claims"});
  EXPECT_EQ(listed.status, 0);
  EXPECT_THAT(listed.output, AllOf(HasSubstr("ml/claim-c1"), HasSubstr("a, b"), HasSubstr("32MiB")));
  const Json json = Json::parse(gpumem({"claims", "--json"}).output);
  EXPECT_EQ(json.at("claims").at(0).at("amounts").at(0).at("limit"), mebibytes(64).count);
}

TEST_F(Claims, AreNotChangedAsQuotasAre) {
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a")}, {}, mebibytes(64))).ok());
  const Outcome refused = gpumem({"quota", "set", "pod ml/a", "--limit", "128MiB"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.output, HasSubstr("what pods may have is what their claims say"));
  EXPECT_EQ(broker_.tenant("pod ml/a").limit(), mebibytes(64).count);
}

TEST_F(Claims, LeaveADebtWhenTheyAreTakenAway) {
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a")}, {}, mebibytes(64))).ok());
  const auto client = client_of(kAnna);
  ASSERT_TRUE(succeeded(client->grow("a", mebibytes(40))));
  ASSERT_TRUE(unprepare("c1").ok());
  EXPECT_EQ(broker_.tenant("pod ml/a").limit(), 0U);
  EXPECT_EQ(broker_.tenant("pod ml/a").debt(), mebibytes(40).count);
  EXPECT_TRUE(failed_with(client->grow("a", mebibytes(42)), "RESOURCE_EXHAUSTED"));
  Json connected;
  const auto late = client_of(kAnna, &connected);
  EXPECT_TRUE(failed_with(connected, "PERMISSION_DENIED"));
}

// The debt is the former pod's, though the next has its name.
TEST_F(Claims, OfAPodOfTheSameNameAreAnothersTenant) {
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a")}, {}, mebibytes(64))).ok());
  const auto former = client_of(kAnna);
  ASSERT_TRUE(succeeded(former->grow("a", mebibytes(40))));
  ASSERT_TRUE(unprepare("c1").ok());
  ASSERT_TRUE(prepare(claim("c2", {pod(kBert, "a")}, {}, mebibytes(64))).ok());
  const std::string name = std::string("pod ml/a (") + kBert + ")";
  EXPECT_EQ(tenant_of(kBert), name);
  EXPECT_EQ(broker_.tenant(name).charged(), 0U);
  EXPECT_EQ(broker_.tenant("pod ml/a").debt(), mebibytes(40).count);
}

class ClaimsThatEnd : public Claims {
 protected:
  ClaimsThatEnd()
      : Claims(pods_config("escalation = \"end-session\"\nreclaim_deadline_ms = 1\ngrace_seconds = 0\n")) {}
};

TEST_F(ClaimsThatEnd, EndThePodsProcessesThatKeepTheMemory) {
  ASSERT_TRUE(prepare(claim("c1", {pod(kAnna, "a")}, {}, mebibytes(64))).ok());
  const auto client = client_of(kAnna);
  ASSERT_TRUE(succeeded(client->grow("a", mebibytes(40))));
  ASSERT_TRUE(unprepare("c1").ok());
  EXPECT_LT(client->child().wait(), 0) << "by a signal";
  expect_rest();
  EXPECT_EQ(broker_.tenant("pod ml/a").tenant(), "");
}

}  // namespace
}  // namespace gpumem::test
