#include "daemon/core/words/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shm/pages.h"
#include "tests/unit/core/policies.h"

namespace gpumem::core {
namespace {

using testing::HasSubstr;

std::string complaint(const Policy& policy) {
  const auto ok = check(policy);
  if (ok) return "";
  EXPECT_EQ(ok.error().code, Code::kInvalidArgument);
  return ok.error().message;
}

TEST(PolicyCheck, AcceptsGuaranteesThatFillThePool) {
  Policy policy = small_policy();
  policy.tenants[1].quotas[0].guarantee = mebibytes(48);
  EXPECT_EQ(complaint(policy), "");
  EXPECT_EQ(complaint(Policy{}), "");
}

TEST(PolicyCheck, NamesTheTenantWhoseGuaranteeIsOverItsLimit) {
  Policy policy = small_policy();
  policy.tenants[0].quotas[0] = {mebibytes(18), mebibytes(16)};
  EXPECT_THAT(complaint(policy),
              AllOf(HasSubstr("ann"), HasSubstr("GPU-0"), HasSubstr("18MiB"), HasSubstr("16MiB")));
  policy = small_policy();
  policy.others = {{mebibytes(2), Bytes{}}};
  EXPECT_THAT(complaint(policy), HasSubstr("default"));
}

TEST(PolicyCheck, NamesTheTenantWithWhomTheGuaranteesPassThePool) {
  Policy policy = small_policy();
  policy.tenants[1].quotas[0] = {mebibytes(50), mebibytes(64)};
  EXPECT_THAT(complaint(policy),
              AllOf(HasSubstr("bob"), HasSubstr("GPU-0"), HasSubstr("50MiB"), HasSubstr("64MiB")));
}

TEST(PolicyCheck, DoesNotLetSumsOfGuaranteesWrap) {
  Policy policy = small_policy();
  policy.tenants[1].quotas[0] = {Bytes{~0ULL}, Bytes{~0ULL}};
  EXPECT_THAT(complaint(policy), HasSubstr("bob"));
}

TEST(PolicyCheck, RefusesTwoTenantsOrDevicesOfOneName) {
  Policy policy = small_policy();
  policy.tenants[1].name = "ann";
  EXPECT_THAT(complaint(policy), HasSubstr("'ann' is named twice"));
  policy = small_policy();
  policy.devices.push_back(policy.devices[0]);
  EXPECT_THAT(complaint(policy), HasSubstr("GPU-0 is named twice"));
}

TEST(PolicyCheck, RefusesWhatTheCoreCouldNotWorkWith) {
  Policy policy = small_policy();
  policy.tenants[0].quotas.clear();
  EXPECT_THAT(complaint(policy), HasSubstr("no quota for every device"));
  policy = small_policy();
  policy.others.emplace();
  EXPECT_THAT(complaint(policy), HasSubstr("no quota for every device"));
  policy = small_policy();
  policy.devices[0].pool = Bytes{kPiece.count + 1};
  EXPECT_THAT(complaint(policy), HasSubstr("no multiple"));
  policy.devices[0].granularity = {};
  EXPECT_THAT(complaint(policy), HasSubstr("no multiple"));
  policy = Policy{};
  for (std::size_t i = 0; i <= kMaxDevices; ++i)
    policy.devices.push_back(device("GPU-" + std::to_string(i), kPiece));
  EXPECT_THAT(complaint(policy), HasSubstr("33 devices"));
  policy = small_policy();
  policy.max_wait = std::chrono::seconds(-1);
  EXPECT_THAT(complaint(policy), HasSubstr("negative"));
}

TEST(PolicyCheck, RefusesWeightsAndPrioritiesOutOfTheirRange) {
  for (const auto& [weight, priority] : {std::pair{0U, 5U}, {kMaxWeight + 1, 5U}, {1U, kMaxPriority + 1}}) {
    Policy policy = small_policy();
    policy.tenants[0].quotas[0].weight = weight;
    policy.tenants[0].quotas[0].priority = priority;
    EXPECT_THAT(complaint(policy), AllOf(HasSubstr("'ann'"), HasSubstr("GPU-0"), HasSubstr("is not from")))
        << weight << " " << priority;
    policy = small_policy();
    policy.others = {{Bytes{}, Bytes{}, weight, priority}};
    EXPECT_THAT(complaint(policy), HasSubstr("the default"));
  }
  Policy policy = small_policy();
  policy.tenants[0].quotas[0] = {{}, {}, kMaxWeight, kMaxPriority};
  policy.tenants[1].quotas[0] = {{}, {}, 1, 0};
  EXPECT_EQ(complaint(policy), "");
}

// lab (48 MiB) over ann and den; den (32 MiB) over bob and over the others.
Policy family() {
  Policy policy = small_policy();
  policy.tenants = {parent("lab", {{{}, mebibytes(48)}}), parent("den", {{{}, mebibytes(32)}}, "lab"),
                    user("ann", 1, {{mebibytes(16), mebibytes(64)}}, "lab"),
                    user("bob", 2, {{mebibytes(16), mebibytes(16)}}, "den")};
  policy.others = {{Bytes{}, mebibytes(8)}};
  policy.others_parent = "den";
  return policy;
}

TEST(PolicyCheck, AcceptsATreeWhosePromisesHold) {
  Policy policy = family();
  EXPECT_EQ(complaint(policy), "");
  policy.tenants[0].quotas[0].guarantee = mebibytes(48);
  EXPECT_EQ(complaint(policy), "") << "a parent's own guarantee is not promised on top of its members'";
  policy.tenants[2].quotas[0].guarantee = mebibytes(32);
  EXPECT_EQ(complaint(policy), "") << "32 for ann, 16 for bob: all that lab may have";
}

TEST(PolicyCheck, NamesTheParentWhoseLimitPromisesPass) {
  Policy policy = family();
  policy.tenants[2].quotas[0].guarantee = mebibytes(34);
  EXPECT_THAT(complaint(policy),
              AllOf(HasSubstr("below tenant 'lab' on GPU-0"), HasSubstr("limit of 48MiB"),
                    HasSubstr("'ann' asks for 34MiB on top of 16MiB"), HasSubstr("raise")));
  policy = family();
  policy.tenants[1].quotas[0] = {mebibytes(32), mebibytes(32)};
  EXPECT_EQ(complaint(policy), "") << "den's own guarantee counts, and lab can keep it";
  policy.tenants[2].quotas[0].guarantee = mebibytes(18);
  EXPECT_THAT(complaint(policy), HasSubstr("'ann' asks for 18MiB on top of 32MiB"));
  policy.tenants[2].quotas[0] = {Bytes{~0ULL}, Bytes{~0ULL}};
  EXPECT_THAT(complaint(policy), HasSubstr("'lab'")) << "sums do not wrap";
}

TEST(PolicyCheck, CountsWhatIsPromisedBelowTheTopTenantsAgainstThePool) {
  Policy policy = family();
  policy.tenants.push_back(user("eve", 3, {{mebibytes(32), mebibytes(64)}}));
  EXPECT_EQ(complaint(policy), "");
  policy.tenants[0].quotas[0].guarantee = mebibytes(34);
  EXPECT_THAT(complaint(policy), AllOf(HasSubstr("the guarantees on GPU-0 exceed its pool of 64MiB"),
                                       HasSubstr("'eve' asks for 32MiB on top of 34MiB")));
}

TEST(PolicyCheck, RefusesParentsThatAreNone) {
  Policy policy = family();
  policy.tenants[2].parent = "lob";
  EXPECT_THAT(complaint(policy), HasSubstr("tenant 'ann' names the parent 'lob', which is no tenant"));
  policy = family();
  policy.tenants[3].parent = "ann";
  EXPECT_THAT(complaint(policy), HasSubstr("the parent 'ann', which is a user itself"));
  policy = family();
  policy.tenants[0].gid = 5;
  EXPECT_THAT(complaint(policy), HasSubstr("the parent 'lab', which is a group itself"));
  policy = family();
  policy.others_parent = "bob";
  EXPECT_THAT(complaint(policy), HasSubstr("the default names the parent 'bob'"));
}

TEST(PolicyCheck, RefusesCirclesOfParents) {
  Policy policy = family();
  policy.tenants[0].parent = "den";
  EXPECT_THAT(complaint(policy), HasSubstr("circle: 'lab' -> 'den' -> 'lab'"));
  policy = family();
  policy.tenants[0].parent = "lab";
  EXPECT_THAT(complaint(policy), HasSubstr("circle: 'lab' -> 'lab'"));
}

TEST(PolicyCheck, RefusesTreesThatAreTooDeep) {
  Policy policy = small_policy();
  policy.tenants.clear();
  const std::vector<Quota> quota{{Bytes{}, mebibytes(64)}};
  for (std::size_t depth = 1; depth < kMaxTenantDepth; ++depth) {
    policy.tenants.push_back(
        parent("p" + std::to_string(depth), quota, depth == 1 ? "" : "p" + std::to_string(depth - 1)));
  }
  policy.tenants.push_back(user("ann", 1, quota, "p7"));
  policy.others = quota;
  policy.others_parent = "p7";
  EXPECT_EQ(complaint(policy), "");
  policy.tenants.back() = parent("p8", quota, "p7");
  policy.tenants.push_back(user("ann", 1, quota, "p8"));
  EXPECT_THAT(complaint(policy),
              HasSubstr("tenant 'ann' is 9 levels deep, and no tenant may be deeper than 8"));
  policy.tenants.pop_back();
  policy.others_parent = "p8";
  EXPECT_THAT(complaint(policy), HasSubstr("every user under the default is 9 levels deep"));
}

class TenantOfAPeer : public testing::Test {
 protected:
  TenantOfAPeer() {
    policy = small_policy();
    policy.tenants.push_back(group("wheel", 10, {Quota{}}));
    policy.tenants.push_back(group("staff", 20, {Quota{}}, "lab"));
  }
  std::string tenant(std::uint32_t uid, std::vector<std::uint32_t> gids = {}) {
    const auto match = tenant_of(policy, {.pid = 1, .uid = uid, .gids = std::move(gids), .command = "x"});
    return match ? match->name : std::string(code_name(match.error().code));
  }
  Policy policy;
};

TEST_F(TenantOfAPeer, IsItsUsersBeforeItsGroups) { EXPECT_EQ(tenant(2, {10, 20}), "bob"); }

TEST_F(TenantOfAPeer, IsItsPrimaryGroupsBeforeTheOthers) {
  EXPECT_EQ(tenant(9, {20, 10}), "staff");
  EXPECT_EQ(tenant(9, {5, 10, 20}), "wheel");
}

TEST_F(TenantOfAPeer, IsItsOwnersWhereItsUserIsASubordinateId) {
  policy.others = {{Bytes{}, mebibytes(4)}};
  const auto tenant_owned = [&](std::uint32_t uid, Owner owner) {
    return tenant_of(policy, {.pid = 1, .uid = uid, .gids = {10}, .command = "x", .owner = std::move(owner)})
        ->name;
  };
  EXPECT_EQ(tenant_owned(100'000, {1, {}}), "ann");
  EXPECT_EQ(tenant_owned(100'000, {9, {20}}), "staff") << "by the owner's groups, not by its own";
  EXPECT_EQ(tenant_owned(100'001, {9, {}}), "uid:9");
  EXPECT_EQ(tenant_owned(2, {9, {}}), "bob") << "a tenant that names the user itself is meant";
}

TEST_F(TenantOfAPeer, IsItsOwnAmongTheOthers) {
  policy.others = {{Bytes{}, mebibytes(4)}};
  policy.others_parent = "guests";
  EXPECT_EQ(tenant(9), "uid:9");
  EXPECT_EQ(tenant(10), "uid:10");
  EXPECT_EQ(tenant_of(policy, peer_of(9))->quotas, *policy.others);
  EXPECT_EQ(tenant_of(policy, peer_of(9))->parent, "guests");
}

TEST_F(TenantOfAPeer, KnowsItsParent) {
  EXPECT_EQ(tenant_of(policy, {.pid = 1, .uid = 9, .gids = {20}, .command = "x"})->parent, "lab");
  EXPECT_EQ(tenant_of(policy, peer_of(1))->parent, "");
}

TEST_F(TenantOfAPeer, IsNoneWhereNothingIsSaidOfOthers) {
  EXPECT_EQ(tenant(9, {9}), "PERMISSION_DENIED");
  EXPECT_EQ(tenant(10), "PERMISSION_DENIED") << "a group's number is no user's";
}

}  // namespace
}  // namespace gpumem::core
