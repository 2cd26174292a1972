#include "daemon/core/policy.h"

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
  policy.others = {{mebibytes(2), {}}};
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

class TenantOfAPeer : public testing::Test {
 protected:
  TenantOfAPeer() {
    policy = small_policy();
    policy.tenants.push_back({"wheel", std::nullopt, 10, {Quota{}}});
    policy.tenants.push_back({"staff", std::nullopt, 20, {Quota{}}});
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

TEST_F(TenantOfAPeer, IsItsOwnAmongTheOthers) {
  policy.others = {{{}, mebibytes(4)}};
  EXPECT_EQ(tenant(9), "uid:9");
  EXPECT_EQ(tenant(10), "uid:10");
  EXPECT_EQ(tenant_of(policy, peer_of(9))->quotas, *policy.others);
}

TEST_F(TenantOfAPeer, IsNoneWhereNothingIsSaidOfOthers) {
  EXPECT_EQ(tenant(9, {9}), "PERMISSION_DENIED");
  EXPECT_EQ(tenant(10), "PERMISSION_DENIED") << "a group's number is no user's";
}

}  // namespace
}  // namespace gpumem::core
