// Which pods are one tenant, what it is called, and what is prepared for it.
#include "daemon/pods/prepared_claims.h"

#include <gtest/gtest.h>

#include "tests/unit/pods/claims.h"

namespace gpumem::pods {
namespace {

TEST(PreparedClaims, MakeAPodAloneATenantOfItsOwn) {
  const auto claims = with(with({}, claim("1", {pod(kAnna, "a")})), claim("2", {pod(kBert, "b")}));
  EXPECT_EQ(claims.tenants.at(kAnna), "pod ml/a");
  EXPECT_EQ(claims.tenants.at(kBert), "pod ml/b");
  ASSERT_EQ(tenants_of(claims).size(), 2U);
  EXPECT_EQ(tenants_of(claims)[0].space, "ml");
}

TEST(PreparedClaims, OfOnePodAddUpOnEachDevice) {
  auto claims = with({}, claim("1", {pod(kAnna, "a")}));
  claims = with(claims, claim("2", {pod(kAnna, "a")},
                              {{"GPU-0", mebibytes(6), mebibytes(8)}, {"GPU-1", {}, mebibytes(2)}}));
  const auto tenants = tenants_of(claims);
  ASSERT_EQ(tenants.size(), 1U);
  EXPECT_EQ(tenants[0].name, "pod ml/a");
  const std::vector<core::ClaimAmount> sums{{"GPU-0", mebibytes(8), mebibytes(12)},
                                            {"GPU-1", {}, mebibytes(2)}};
  EXPECT_EQ(tenants[0].amounts, sums);
}

TEST(PreparedClaims, ThatAddUpToMoreThanNumbersHoldAreTheMost) {
  const Bytes most{~std::uint64_t{0}};
  const auto claims = with({}, claim("1", {pod(kAnna, "a")}, {{"GPU-0", {}, most}, {"GPU-0", {}, most}}));
  EXPECT_EQ(tenants_of(claims)[0].amounts[0].limit, most);
}

TEST(PreparedClaims, JoinPodsThatShareOneOrAreConnectedBySeveral) {
  auto claims = with({}, claim("1", {pod(kAnna, "a"), pod(kBert, "b")}));
  EXPECT_EQ(claims.tenants.at(kAnna), "claim ml/claim-1");
  claims = with(claims, claim("2", {pod(kBert, "b"), pod(kCarl, "c")}));
  for (const auto& uid : {kAnna, kBert, kCarl}) EXPECT_EQ(claims.tenants.at(uid), "claim ml/claim-1");
  EXPECT_EQ(tenants_of(claims).size(), 1U);
}

TEST(PreparedClaims, JoinTwoTenants) {
  auto claims = with(with({}, claim("1", {pod(kAnna, "a")})), claim("2", {pod(kBert, "b")}));
  claims = with(claims, claim("3", {pod(kAnna, "a"), pod(kBert, "b")}));
  EXPECT_EQ(claims.tenants.at(kAnna), "claim ml/claim-3");
  EXPECT_EQ(claims.tenants.at(kBert), "claim ml/claim-3");
  EXPECT_EQ(tenants_of(claims)[0].amounts[0].limit, mebibytes(12));
}

TEST(PreparedClaims, DoNotDivideATenantAgain) {
  auto claims = with({}, claim("1", {pod(kAnna, "a"), pod(kBert, "b")}));
  claims = with(claims, claim("2", {pod(kBert, "b")}));
  claims = without_claim(claims, "1");
  EXPECT_FALSE(claims.tenants.contains(kAnna)) << "nothing is prepared for it any more";
  EXPECT_EQ(claims.tenants.at(kBert), "claim ml/claim-1");
  claims = without_claim(claims, "2");
  EXPECT_EQ(claims, PreparedClaims());
}

TEST(PreparedClaims, HaveThePodsThatWereGivenLast) {
  auto claims = with({}, claim("1", {pod(kAnna, "a")}));
  claims = with(claims, claim("1", {pod(kBert, "b")}));
  EXPECT_FALSE(claims.tenants.contains(kAnna));
  EXPECT_EQ(claims.tenants.at(kBert), "pod ml/b");
}

TEST(PreparedClaims, ThatAreNotKnownCanBeTakenAway) {
  const auto claims = with({}, claim("1", {pod(kAnna, "a")}));
  EXPECT_EQ(without_claim(claims, "2"), claims);
}

TEST(PreparedClaims, GiveNoTwoTenantsOneName) {
  auto claims = with(with({}, claim("1", {pod(kAnna, "a")})), claim("2", {pod(kBert, "a")}));
  EXPECT_EQ(claims.tenants.at(kBert), "pod ml/a (" + kBert + ")");
  claims = with_claim({}, claim("3", {pod(kCarl, "a")}),
                      [](const std::string& name) { return name == "pod ml/a"; });
  EXPECT_EQ(claims.tenants.at(kCarl), "pod ml/a (" + kCarl + ")");
}

TEST(PreparedClaims, CutNamesThatAreTooLongForTheLane) {
  const std::string longest(253, 'x');
  const auto claims = with({}, claim("1", {pod(kAnna, longest)}));
  EXPECT_EQ(claims.tenants.at(kAnna).size(), kLongestName);
  EXPECT_TRUE(claims.tenants.at(kAnna).ends_with("xxx (" + kAnna + ")"));
}

TEST(Names, OfKubernetesNeedNoQuotes) {
  EXPECT_TRUE(is_namespace("ml-1"));
  EXPECT_FALSE(is_namespace("ml.1"));
  EXPECT_FALSE(is_namespace(std::string(64, 'a')));
  EXPECT_TRUE(is_object_name("train-0.web"));
  for (const char* name : {"", "a b", "a/b", "A", "a\n", "a("}) EXPECT_FALSE(is_object_name(name)) << name;
  EXPECT_FALSE(is_object_name(std::string(254, 'a')));
}

TEST(Names, OfPodsAreNobodyElses) {
  EXPECT_TRUE(is_pods_name("pod ml/a"));
  EXPECT_TRUE(is_pods_name("claim ml/a"));
  for (const char* name : {"pod", "podium", "uid:7", "namespace ml"})
    EXPECT_FALSE(is_pods_name(name)) << name;
}

TEST(PodUid, IsOneThatCgroupsHave) {
  EXPECT_TRUE(is_pod_uid(kAnna));
  EXPECT_TRUE(is_pod_uid(std::string(32, 'a')));
  for (const std::string uid :
       {"", "x", "2f0c4a11_9f5d_4d1e_8a77_0a7f6d4c1b22", "2F0C4A11-9f5d-4d1e-8a77-0a7f6d4c1b22"})
    EXPECT_FALSE(is_pod_uid(uid)) << uid;
  EXPECT_FALSE(is_pod_uid(kAnna + "/" + kAnna));
}

}  // namespace
}  // namespace gpumem::pods
