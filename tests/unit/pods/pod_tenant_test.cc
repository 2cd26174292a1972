// Which tenant a process of a pod belongs to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/words/policy.h"
#include "tests/unit/core/policies.h"
#include "tests/unit/pods/claims.h"

namespace gpumem::core {
namespace {

using testing::HasSubstr;

// Besides ann and bob: pod Anna has 8 MiB.
Policy policy_with_pod() {
  Policy policy = small_policy();
  policy.tenants.push_back(parent("pod ml/a", {{{}, mebibytes(8)}}));
  policy.pods.prepared[pods::kAnna] = "pod ml/a";
  return policy;
}

Peer in_pod(const std::string& uid) {
  Peer peer = peer_of(1);  // uid of ann, outside of pods
  peer.pod = uid;
  return peer;
}

TEST(TenantOfAPod, IsThePreparedOneForEveryUser) {
  const auto match = tenant_of(policy_with_pod(), in_pod(pods::kAnna));
  ASSERT_TRUE(match);
  EXPECT_EQ(match->name, "pod ml/a");
  EXPECT_EQ(match->quotas[0].limit, mebibytes(8));
}

TEST(TenantOfAPod, IsNoneIfNothingWasPrepared) {
  Policy policy = policy_with_pod();
  policy.others = {{{}, mebibytes(2)}};
  const auto refused = tenant_of(policy, in_pod(pods::kBert));
  ASSERT_FALSE(refused) << "users may be lent to, pods may not";
  EXPECT_EQ(refused.error().code, Code::kPermissionDenied);
  EXPECT_THAT(refused.error().message, HasSubstr(pods::kBert));
}

TEST(TenantOfAPod, IsTheDefaultTenantIfConfigured) {
  Policy policy = policy_with_pod();
  policy.pods.others = true;
  EXPECT_FALSE(tenant_of(policy, in_pod(pods::kBert))) << "there are no others";
  policy.others = {{{}, mebibytes(2)}};
  const auto match = tenant_of(policy, in_pod(pods::kBert));
  ASSERT_TRUE(match);
  EXPECT_EQ(match->name, "pod " + pods::kBert);
  EXPECT_EQ(match->quotas[0].limit, mebibytes(2));
}

TEST(TenantOfAPod, CannotBeKnownForAHiddenProcess) {
  Policy policy = policy_with_pod();
  Peer hidden = peer_of(1);
  hidden.pod_unknown = true;
  EXPECT_EQ(tenant_of(policy, hidden)->name, "ann") << "there are no pods here";
  policy.pods.expected = true;
  EXPECT_EQ(tenant_of(policy, hidden).error().code, Code::kPermissionDenied);
}

TEST(TenantOfASession, StaysWhenItsClaimIsTakenAway) {
  Policy policy = policy_with_pod();
  policy.pods.prepared.clear();
  policy.pods.others = true;
  policy.others = {{{}, mebibytes(2)}};
  const TenantMatch left = tenant_of_session(policy, in_pod(pods::kAnna), "pod ml/a");
  EXPECT_EQ(left.name, "pod ml/a");
  EXPECT_EQ(left.quotas[0].limit, Bytes{}) << "and not what other pods may have";
  EXPECT_EQ(tenant_of_session(policy, in_pod(pods::kBert), "pod " + pods::kBert).quotas[0].limit,
            mebibytes(2));
}

TEST(TenantOfASession, FollowsPreparedClaims) {
  const Policy policy = policy_with_pod();
  EXPECT_EQ(tenant_of_session(policy, in_pod(pods::kAnna), "pod " + pods::kAnna).name, "pod ml/a");
  EXPECT_EQ(tenant_of_session(policy, peer_of(2), "uid:2").name, "bob");
  EXPECT_EQ(tenant_of_session(policy, peer_of(3), "uid:3").quotas[0].limit, Bytes{}) << "nobody's any more";
}

TEST(Account, IsThePodsAndNotTheUsers) {
  EXPECT_EQ(peer_of(1).account(), 1U);
  EXPECT_EQ(in_pod(pods::kAnna).account(), in_pod(pods::kAnna).account());
  EXPECT_NE(in_pod(pods::kAnna).account(), in_pod(pods::kBert).account());
  EXPECT_GT(in_pod(pods::kAnna).account(), std::numeric_limits<std::uint32_t>::max());
}

}  // namespace
}  // namespace gpumem::core
