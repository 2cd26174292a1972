// From names and amounts to numbers and bytes, for the devices that are there.
#include "daemon/host/policy_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace gpumem::host {
namespace {

using testing::HasSubstr;

constexpr Bytes kTotal = gibibytes(16);

DeviceFacts device(std::uint8_t number, Bytes obtainable = kTotal) {
  DeviceFacts facts;
  facts.device.uuid.bytes.fill(number);
  facts.device.name = "Test GPU";
  facts.device.total = kTotal;
  facts.device.granularity = mebibytes(2);
  facts.obtainable = obtainable;
  return facts;
}

std::string uuid(std::uint8_t number) { return to_string(device(number).device.uuid); }

Result<core::Policy> compile(const std::string& text, const std::vector<DeviceFacts>& devices = {device(1)}) {
  auto config = parse_config(text, "g.toml");
  EXPECT_TRUE(config) << config.error().message;
  return compile_policy(*config, devices);
}

core::Policy good(const std::string& text, const std::vector<DeviceFacts>& devices = {device(1)}) {
  auto policy = compile(text, devices);
  EXPECT_TRUE(policy) << policy.error().message;
  return policy ? *policy : core::Policy{};
}

std::string wrong(const std::string& text, const std::vector<DeviceFacts>& devices = {device(1)}) {
  auto policy = compile(text, devices);
  EXPECT_FALSE(policy) << text;
  return policy ? "" : policy.error().message;
}

Bytes pool(const std::string& reserve, Bytes obtainable = kTotal) {
  return good("[broker]\nreserve = " + reserve, {device(1, obtainable)}).devices.at(0).pool;
}

TEST(PolicyCompiler, TakesSharesOfWhatCanBeHad) {
  EXPECT_EQ(pool("\"100%\""), kTotal);
  EXPECT_EQ(pool("\"50%\""), gibibytes(8));
  EXPECT_EQ(pool("\"50%\"", gibibytes(10)), gibibytes(5));
  EXPECT_EQ(pool("\"all-but 2GiB\""), gibibytes(14));
  EXPECT_EQ(pool("\"all-but 2GiB\"", gibibytes(10)), gibibytes(8));
}

TEST(PolicyCompiler, TakesAbsoluteAmountsAsDemands) {
  EXPECT_EQ(pool("\"4GiB\"", gibibytes(4)), gibibytes(4));
  const std::string words = wrong("[broker]\nreserve = \"12GiB\"", {device(1, gibibytes(10))});
  EXPECT_THAT(words, HasSubstr("cannot reserve 12GiB of " + uuid(1)));
  EXPECT_THAT(words, HasSubstr("it has 16GiB, of which 10GiB can be had"));
}

TEST(PolicyCompiler, RoundsPoolsAndLimitsDownToWhatTheDriverGives) {
  EXPECT_EQ(pool("\"5MiB\""), mebibytes(4));
  EXPECT_THAT(wrong("[broker]\nreserve = \"1MiB\""), HasSubstr("empty pool"));
  EXPECT_THAT(wrong("[broker]\nreserve = 0"), HasSubstr("empty pool"));
  const core::Policy policy = good("[default]\nlimit = \"3MiB\"");
  EXPECT_EQ(policy.others->at(0).limit, mebibytes(2));
}

TEST(PolicyCompiler, TakesSharesOfQuotasFromThePool) {
  const core::Policy policy = good(R"([broker]
reserve = "8GiB"
[[tenant]]
name = "ann"
user = 7
guarantee = "25%"
limit = "50%"
[[tenant]]
name = "bob"
group = 8
limit = "all-but 1GiB"
)");
  ASSERT_EQ(policy.tenants.size(), 2U);
  EXPECT_EQ(policy.tenants[0].uid, 7U);
  EXPECT_EQ(policy.tenants[0].gid, std::nullopt);
  EXPECT_EQ(policy.tenants[0].quotas.at(0), (core::Quota{gibibytes(2), gibibytes(4)}));
  EXPECT_EQ(policy.tenants[1].gid, 8U);
  EXPECT_EQ(policy.tenants[1].quotas.at(0), (core::Quota{{}, gibibytes(7)}));
  EXPECT_EQ(policy.others->at(0), (core::Quota{{}, gibibytes(8)}))
      << "nothing said: all, and nothing for sure";
}

TEST(PolicyCompiler, CutsALimitToThePoolButNoGuarantee) {
  EXPECT_EQ(good("[default]\nlimit = \"1TiB\"").others->at(0).limit, good("").devices[0].pool);
  EXPECT_THAT(wrong("[[tenant]]\nname = \"ann\"\nuser = 1\nguarantee = \"1TiB\""),
              HasSubstr("guarantee of 1TiB"));
}

TEST(PolicyCompiler, RefusesGuaranteesThatCannotHoldTogether) {
  const std::string two =
      "[broker]\nreserve = \"8GiB\"\n[[tenant]]\nname = \"ann\"\nuser = 1\nguarantee = \"5GiB\"\n"
      "[[tenant]]\nname = \"bob\"\nuser = 2\nguarantee = ";
  EXPECT_EQ(good(two + "\"3GiB\"").tenants.size(), 2U);
  EXPECT_THAT(wrong(two + "\"4GiB\""), HasSubstr("tenant 'bob' asks for 4GiB on top of 5GiB"));
  EXPECT_THAT(wrong("[[tenant]]\nname = \"a\"\nuser = 1\nguarantee = \"2GiB\"\nlimit = \"1GiB\""),
              HasSubstr("more than its limit of 1GiB"));
}

TEST(PolicyCompiler, LendsTheDevicesThatAreChosen) {
  const std::vector<DeviceFacts> both{device(1), device(2)};
  EXPECT_EQ(good("", both).devices.size(), 2U);
  const core::Policy policy = good("[[device]]\nuuid = \"" + uuid(2) + "\"\nreserve = \"1GiB\"", both);
  ASSERT_EQ(policy.devices.size(), 1U);
  EXPECT_EQ(policy.devices[0].uuid, uuid(2));
  EXPECT_EQ(policy.devices[0].pool, gibibytes(1));
  EXPECT_THAT(wrong("[[device]]\nuuid = \"" + uuid(3) + "\"", both),
              HasSubstr("this machine does not have it"));
}

TEST(PolicyCompiler, TakesADevicesQuotaBeforeTheGeneralOne) {
  const core::Policy policy = good(
      "[[tenant]]\nname = \"a\"\nuser = 1\nguarantee = \"1GiB\"\nlimit = \"4GiB\"\n"
      "[[tenant.device]]\nuuid = \"" +
          uuid(2) + "\"\nlimit = \"2GiB\"\n",
      {device(1), device(2)});
  EXPECT_EQ(policy.tenants[0].quotas.at(0), (core::Quota{gibibytes(1), gibibytes(4)}));
  EXPECT_EQ(policy.tenants[0].quotas.at(1), (core::Quota{gibibytes(1), gibibytes(2)}));
}

TEST(PolicyCompiler, RefusesAQuotaOnADeviceThatIsNotLent) {
  EXPECT_THAT(wrong("[[tenant]]\nname = \"a\"\nuser = 1\n[[tenant.device]]\nuuid = \"GPU-x\"\n"),
              HasSubstr("tenant 'a' has a quota on GPU-x, which is not lent"));
  EXPECT_THAT(wrong("[[default.device]]\nuuid = \"GPU-x\"\n"), HasSubstr("GPU-x, which is not lent"));
}

TEST(PolicyCompiler, LooksUsersAndGroupsUp) {
  const core::Policy policy =
      good("[[tenant]]\nname = \"a\"\nuser = \"root\"\n[[tenant]]\nname = \"b\"\ngroup = \"root\"\n");
  EXPECT_EQ(policy.tenants[0].uid, 0U);
  EXPECT_EQ(policy.tenants[1].gid, 0U);
  EXPECT_THAT(wrong("[[tenant]]\nname = \"a\"\nuser = \"no-such-one\"\n"),
              HasSubstr("no user 'no-such-one'"));
  EXPECT_THAT(wrong("[[tenant]]\nname = \"a\"\ngroup = \"no-such-one\"\n"),
              HasSubstr("no group 'no-such-one'"));
  EXPECT_THAT(wrong("[[tenant]]\nname = \"a\"\nuser = -1\n"), HasSubstr("no user '-1'"));
}

TEST(PolicyCompiler, RefusesTwoTenantsThatAreTheSameUserOrGroup) {
  EXPECT_THAT(wrong("[[tenant]]\nname = \"a\"\nuser = 0\n[[tenant]]\nname = \"b\"\nuser = \"root\"\n"),
              HasSubstr("tenants 'a' and 'b' are both user 0"));
  EXPECT_THAT(wrong("[[tenant]]\nname = \"a\"\ngroup = 5\n[[tenant]]\nname = \"b\"\ngroup = 5\n"),
              HasSubstr("both group 5"));
  EXPECT_EQ(good("[[tenant]]\nname = \"a\"\nuser = 5\n[[tenant]]\nname = \"b\"\ngroup = 5\n").tenants.size(),
            2U);
}

TEST(PolicyCompiler, TakesOverNumbers) {
  const core::Policy policy =
      good("[broker]\nmax_sessions = 5\nmax_wait_seconds = 60\n[default]\nrefuse = true\n");
  EXPECT_EQ(policy.max_sessions, 5U);
  EXPECT_EQ(policy.max_wait, std::chrono::minutes(1));
  EXPECT_FALSE(policy.others.has_value());
}

}  // namespace
}  // namespace gpumem::host
