// From names and amounts to numbers and bytes, for the devices that are there.
#include "daemon/host/config/policy_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "daemon/core/words/policy.h"
#include "daemon/host/config/accounts.h"

namespace gpumem::host {
namespace {

using testing::HasSubstr;

constexpr Bytes kTotal = gibibytes(16);

DeviceFacts device(std::uint8_t number) {
  DeviceFacts facts;
  facts.device.uuid.bytes.fill(number);
  facts.device.name = "Test GPU";
  facts.device.total = kTotal;
  facts.device.granularity = mebibytes(2);
  return facts;
}

std::string uuid(std::uint8_t number) { return to_string(device(number).device.uuid); }

Result<Compiled> compile(const std::string& text, const std::vector<DeviceFacts>& devices,
                         const QuotaOverlay& overlay = {}) {
  auto config = parse_config(text, "g.toml");
  EXPECT_TRUE(config) << config.error().message;
  look_up(*config);
  return compile_policy(*config, devices, overlay);
}

core::Policy good_policy(const std::string& text, const std::vector<DeviceFacts>& devices = {device(1)}) {
  auto policy = compile(text, devices);
  EXPECT_TRUE(policy) << policy.error().message;
  return policy ? policy->policy : core::Policy{};
}

std::string wrong_policy(const std::string& text, const std::vector<DeviceFacts>& devices = {device(1)}) {
  auto policy = compile(text, devices);
  EXPECT_FALSE(policy) << text;
  return policy ? "" : policy.error().message;
}

Bytes pool(const std::string& reserve) {
  return good_policy("[broker]\nreserve = " + reserve).devices.at(0).pool;
}

TEST(PolicyCompiler, TakesSharesOfTheWholeDevice) {
  EXPECT_EQ(pool("\"100%\""), kTotal);
  EXPECT_EQ(pool("\"50%\""), gibibytes(8));
  EXPECT_EQ(pool("\"all-but 2GiB\""), gibibytes(14));
  EXPECT_EQ(pool("\"4GiB\""), gibibytes(4));
  EXPECT_THAT(wrong_policy("[broker]\nreserve = \"20GiB\""),
              HasSubstr("cannot reserve 20GiB of " + uuid(1) + ": it has 16GiB"));
}

TEST(PolicyCompiler, RoundsPoolsAndLimitsDownToTheGranularity) {
  EXPECT_EQ(pool("\"5MiB\""), mebibytes(4));
  EXPECT_THAT(wrong_policy("[broker]\nreserve = \"1MiB\""), HasSubstr("empty pool"));
  EXPECT_THAT(wrong_policy("[broker]\nreserve = 0"), HasSubstr("empty pool"));
  const core::Policy policy = good_policy("[default]\nlimit = \"3MiB\"");
  EXPECT_EQ(policy.others->at(0).limit, mebibytes(2));
}

TEST(PolicyCompiler, TakesSharesOfQuotasFromThePool) {
  const core::Policy policy = good_policy(R"([broker]
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
  EXPECT_EQ(good_policy("[default]\nlimit = \"1TiB\"").others->at(0).limit, good_policy("").devices[0].pool);
  EXPECT_THAT(wrong_policy("[[tenant]]\nname = \"ann\"\nuser = 1\nguarantee = \"1TiB\""),
              HasSubstr("guarantee of 1TiB"));
}

TEST(PolicyCompiler, WarnsOfALimitThatIsMoreThanThePool) {
  const auto warnings = [](const std::string& text) {
    const auto compiled = compile_policy(*parse_config(text, "p.toml"), {device(1)});
    return compiled ? compiled->warnings : std::vector<std::string>{compiled.error().message};
  };
  const std::string ann = "[broker]\nreserve = \"8GiB\"\n[[tenant]]\nname = \"ann\"\nuser = 1\nlimit = ";
  EXPECT_THAT(warnings(ann + "\"160GiB\"\n"),
              testing::ElementsAre("tenant 'ann': limit 160GiB is more than the pool of 8GiB on " + uuid(1) +
                                   "; it is the pool"));
  EXPECT_THAT(warnings(ann + "\"8GiB\"\n"), testing::IsEmpty());
  EXPECT_THAT(warnings(ann + "\"100%\"\n"), testing::IsEmpty());
}

TEST(PolicyCompiler, RefusesGuaranteesThatCannotHoldTogether) {
  const std::string two =
      "[broker]\nreserve = \"8GiB\"\n[[tenant]]\nname = \"ann\"\nuser = 1\nguarantee = \"5GiB\"\n"
      "[[tenant]]\nname = \"bob\"\nuser = 2\nguarantee = ";
  EXPECT_EQ(good_policy(two + "\"3GiB\"").tenants.size(), 2U);
  EXPECT_THAT(wrong_policy(two + "\"4GiB\""), HasSubstr("tenant 'bob' asks for 4GiB on top of 5GiB"));
  EXPECT_THAT(wrong_policy("[[tenant]]\nname = \"a\"\nuser = 1\nguarantee = \"2GiB\"\nlimit = \"1GiB\""),
              HasSubstr("more than its limit of 1GiB"));
  EXPECT_THAT(wrong_policy("[[tenant]]\nname = \"a\"\nuser = 1\nguarantee = \"1TiB\""),
              HasSubstr("is more than the whole pool of"));
}

TEST(PolicyCompiler, LendsTheDevicesThatAreChosen) {
  const std::vector<DeviceFacts> both{device(1), device(2)};
  EXPECT_EQ(good_policy("", both).devices.size(), 2U);
  const core::Policy policy = good_policy("[[device]]\nuuid = \"" + uuid(2) + "\"\nreserve = \"1GiB\"", both);
  ASSERT_EQ(policy.devices.size(), 1U);
  EXPECT_EQ(policy.devices[0].uuid, uuid(2));
  EXPECT_EQ(policy.devices[0].pool, gibibytes(1));
  EXPECT_THAT(wrong_policy("[[device]]\nuuid = \"" + uuid(3) + "\"", both),
              HasSubstr("this machine does not have it"));
}

TEST(PolicyCompiler, TakesADevicesQuotaBeforeTheGeneralOne) {
  const core::Policy policy = good_policy(
      "[[tenant]]\nname = \"a\"\nuser = 1\nguarantee = \"1GiB\"\nlimit = \"4GiB\"\n"
      "[[tenant.device]]\nuuid = \"" +
          uuid(2) + "\"\nlimit = \"2GiB\"\n",
      {device(1), device(2)});
  EXPECT_EQ(policy.tenants[0].quotas.at(0), (core::Quota{gibibytes(1), gibibytes(4)}));
  EXPECT_EQ(policy.tenants[0].quotas.at(1), (core::Quota{gibibytes(1), gibibytes(2)}));
}

TEST(PolicyCompiler, RefusesAQuotaOnADeviceThatIsNotLent) {
  EXPECT_THAT(wrong_policy("[[tenant]]\nname = \"a\"\nuser = 1\n[[tenant.device]]\nuuid = \"GPU-x\"\n"),
              HasSubstr("tenant 'a' has a quota on GPU-x, which is not lent"));
  EXPECT_THAT(wrong_policy("[[default.device]]\nuuid = \"GPU-x\"\n"), HasSubstr("GPU-x, which is not lent"));
}

TEST(PolicyCompiler, LooksUsersAndGroupsUp) {
  const core::Policy policy =
      good_policy("[[tenant]]\nname = \"a\"\nuser = \"root\"\n[[tenant]]\nname = \"b\"\ngroup = \"root\"\n");
  EXPECT_EQ(policy.tenants[0].uid, 0U);
  EXPECT_EQ(policy.tenants[1].gid, 0U);
  const core::Policy waiting =
      good_policy("[[tenant]]\nname = \"a\"\nuser = \"no-such-one\"\nguarantee = \"1GiB\"\n");
  EXPECT_EQ(waiting.tenants[0].uid, std::nullopt);
  EXPECT_EQ(waiting.tenants[0].quotas[0].guarantee, gibibytes(1)) << "which is kept for it";
}

TEST(PolicyCompiler, RefusesTwoTenantsThatAreTheSameUserOrGroup) {
  EXPECT_THAT(wrong_policy("[[tenant]]\nname = \"a\"\nuser = 0\n[[tenant]]\nname = \"b\"\nuser = \"root\"\n"),
              HasSubstr("tenants 'a' and 'b' are both user 0"));
  EXPECT_THAT(wrong_policy("[[tenant]]\nname = \"a\"\ngroup = 5\n[[tenant]]\nname = \"b\"\ngroup = 5\n"),
              HasSubstr("both group 5"));
  EXPECT_EQ(
      good_policy("[[tenant]]\nname = \"a\"\nuser = 5\n[[tenant]]\nname = \"b\"\ngroup = 5\n").tenants.size(),
      2U);
}

std::string ann_with(const std::string& quota) {
  return "[broker]\nreserve = \"7MiB\"\n[[tenant]]\nname = \"ann\"\nuser = 1\n" + quota;
}

TEST(PolicyCompiler, NeverMakesNothingOfAGuarantee) {
  const auto guarantee = [](const std::string& amount) {
    return good_policy(ann_with("guarantee = " + amount)).tenants.at(0).quotas.at(0).guarantee;
  };
  EXPECT_EQ(guarantee("0"), Bytes{});
  EXPECT_EQ(guarantee("1"), mebibytes(2));
  EXPECT_EQ(guarantee("\"2MiB\""), mebibytes(2));
  EXPECT_EQ(guarantee("\"2049KiB\""), mebibytes(4)) << "bytes: at least what is said";
  EXPECT_EQ(guarantee("\"1%\""), mebibytes(2));
  EXPECT_EQ(guarantee("\"50%\""), mebibytes(2)) << "a share: so that two halves are not more than the whole";
  EXPECT_THAT(wrong_policy(ann_with("guarantee = \"16777215TiB\"")), HasSubstr("tenant 'ann'"));
  EXPECT_THAT(wrong_policy(ann_with("guarantee = \"18446744073709551615\"")),
              AllOf(HasSubstr("tenant 'ann': a guarantee of"), HasSubstr("is more than any device has")));
}

TEST(PolicyCompiler, SaysThatALimitIsTooSmallToLendAnything) {
  const std::string words = wrong_policy(ann_with("limit = \"1MiB\""));
  EXPECT_THAT(words, HasSubstr("tenant 'ann': a limit of 1MiB is less than the 2MiB"));
  EXPECT_THAT(words, HasSubstr(uuid(1)));
  EXPECT_THAT(wrong_policy(ann_with("limit = \"1%\"")), HasSubstr("a limit of 1% is less than the 2MiB"));
  EXPECT_THAT(wrong_policy("[default]\nlimit = 1"),
              AllOf(HasSubstr("the default: a limit of 1B"), HasSubstr("a number without a unit is bytes")));
  EXPECT_EQ(good_policy(ann_with("limit = 0")).tenants.at(0).quotas.at(0).limit, Bytes{});
}

TEST(PolicyCompiler, TakesParentsWeightsAndPriorities) {
  const core::Policy policy = good_policy(R"([[tenant]]
name = "lab"
weight = 300
[[tenant]]
name = "ann"
user = 1
parent = "lab"
weight = 7
priority = 9
reserve = "50%"
[default]
parent = "lab"
priority = 0
)");
  EXPECT_EQ(policy.tenants[0].uid, std::nullopt);
  EXPECT_EQ(policy.tenants[0].gid, std::nullopt);
  EXPECT_EQ(policy.tenants[0].quotas.at(0).weight, 300U);
  EXPECT_EQ(policy.tenants[0].quotas.at(0).priority, core::kDefaultPriority);
  EXPECT_EQ(policy.tenants[1].parent, "lab");
  EXPECT_EQ(policy.tenants[1].quotas.at(0).weight, 7U);
  EXPECT_EQ(policy.tenants[1].quotas.at(0).priority, 9U);
  EXPECT_EQ(policy.tenants[0].quotas.at(0).reserve, core::kUnlimited);
  EXPECT_EQ(policy.tenants[1].quotas.at(0).reserve.count * 2, policy.devices[0].pool.count);
  EXPECT_EQ(policy.others_parent, "lab");
  EXPECT_EQ(policy.others->at(0).weight, core::kDefaultWeight);
  EXPECT_EQ(policy.others->at(0).priority, 0U);
  EXPECT_THAT(wrong_policy("[default]\nparent = \"lab\""), HasSubstr("the default names the parent 'lab'"));
}

TEST(PolicyCompiler, TakesHowEachDeviceIsLent) {
  const core::Policy policy = good_policy(
      "[broker]\nescalation = \"deny\"\ncontext_overhead = \"512MiB\"\n[[device]]\nuuid = \"" + uuid(1) +
          "\"\n[[device]]\nuuid = \"" + uuid(2) +
          "\"\nescalation = \"wait\"\nlend_guarantees = true\ncontext_overhead = 0\n" +
          "[[device]]\nuuid = \"" + uuid(3) + "\"\ncontext = \"in-limit\"\n[[device]]\nuuid = \"" + uuid(4) +
          "\"\ncontext = \"in-limit\"\ncontext_overhead = 0\n",
      {device(1), device(2), device(3), device(4)});
  EXPECT_EQ(policy.devices[0].reclaim.escalation, core::Escalation::kDeny);
  EXPECT_FALSE(policy.devices[0].reclaim.lend_guarantees);
  EXPECT_EQ(policy.devices[0].context_overhead, mebibytes(512));
  EXPECT_EQ(policy.devices[1].reclaim.escalation, core::Escalation::kWait);
  EXPECT_TRUE(policy.devices[1].reclaim.lend_guarantees);
  EXPECT_EQ(policy.devices[1].context_overhead, Bytes{});
  EXPECT_FALSE(policy.devices[1].contexts_in_limit);
  EXPECT_TRUE(policy.devices[2].contexts_in_limit);
  EXPECT_EQ(policy.devices[2].context_overhead, mebibytes(512));
  EXPECT_EQ(policy.devices[3].context_overhead, mebibytes(512)) << "a thirty-second of 16 GiB";
  EXPECT_EQ(good_policy("[broker]\nescalation = \"deny\"").devices[0].reclaim.escalation,
            core::Escalation::kDeny)
      << "devices that are not listed";
  EXPECT_THAT(wrong_policy("[broker]\ncontext_overhead = \"17GiB\""), HasSubstr("more than the 16GiB"));
}

struct PolicyUnderAnOverlay : testing::Test {
  Compiled compiled(const std::string& text) {
    auto done = compile(text, {device(1), device(2)}, overlay);
    EXPECT_TRUE(done) << done.error().message;
    return done ? *done : Compiled{};
  }
  std::string why(const std::string& text) {
    const Compiled done = compiled(text);
    return done.unapplied.size() == 1 ? done.unapplied[0].why : "";
  }
  static std::string ann(const std::string& quota) {
    return "[broker]\nreserve = \"8GiB\"\n[[tenant]]\nname = \"ann\"\nuser = 1\n" + quota;
  }
  QuotaOverlay overlay;
};

TEST_F(PolicyUnderAnOverlay, PrefersTheOverlayToTheConfiguration) {
  overlay.tenants["ann"].everywhere.limit = Amount::absolute(gibibytes(3));
  overlay.tenants["ann"].by_device[uuid(2)].weight = 9;
  const auto quotas =
      compiled(ann("guarantee = \"1GiB\"\nlimit = \"4GiB\"\nweight = 5\n[[tenant.device]]\nuuid = \"" +
                   uuid(2) + "\"\nlimit = \"2GiB\"\npriority = 1\n"))
          .policy.tenants.at(0)
          .quotas;
  EXPECT_EQ(quotas.at(0), (core::Quota{gibibytes(1), gibibytes(3), 5, core::kDefaultPriority}));
  EXPECT_EQ(quotas.at(1), (core::Quota{gibibytes(1), gibibytes(3), 9, 1}))
      << "what was set for every device goes before what is configured for one";
}

TEST_F(PolicyUnderAnOverlay, TakesSharesOfThePool) {
  overlay.tenants["ann"].everywhere.guarantee = Amount::percent(2'500);
  EXPECT_EQ(compiled(ann("")).policy.tenants.at(0).quotas.at(0).guarantee, gibibytes(2));
}

TEST_F(PolicyUnderAnOverlay, MakesTenantsOfUsersWithoutOne) {
  overlay.tenants["uid:77"].everywhere.guarantee = Amount::absolute(gibibytes(1));
  const core::Policy policy =
      compiled(ann("[[tenant]]\nname = \"lab\"\n[default]\nlimit = \"50%\"\nparent = \"lab\"\n")).policy;
  ASSERT_EQ(policy.tenants.size(), 3U);
  EXPECT_EQ(policy.tenants[2].name, "uid:77");
  EXPECT_EQ(policy.tenants[2].uid, 77U);
  EXPECT_EQ(policy.tenants[2].parent, "lab");
  EXPECT_EQ(policy.tenants[2].quotas.at(0), (core::Quota{gibibytes(1), gibibytes(4)}));
}

TEST_F(PolicyUnderAnOverlay, NamesPartsThatItDoesNotApply) {
  overlay.tenants["bob"].everywhere.weight = 1;
  EXPECT_EQ(why(ann("")), "the configuration has no such tenant");
  overlay.tenants.clear();
  overlay.tenants["uid:1"].everywhere.weight = 1;
  EXPECT_EQ(why(ann("")), "user 1 is tenant 'ann'");
  overlay.tenants.clear();
  overlay.tenants["uid:2"].everywhere.weight = 1;
  EXPECT_EQ(why(ann("[default]\nrefuse = true\n")), "the configuration refuses users without a tenant");
  overlay.tenants.clear();
  overlay.tenants["ann"].by_device["GPU-gone"].weight = 1;
  const Compiled done = compiled(ann(""));
  ASSERT_EQ(done.unapplied.size(), 1U);
  EXPECT_EQ(done.unapplied[0].device, "GPU-gone");
  EXPECT_EQ(done.policy.tenants.at(0).quotas.at(0).weight, core::kDefaultWeight);
}

TEST_F(PolicyUnderAnOverlay, IsCheckedAsAWhole) {
  overlay.tenants["uid:77"].everywhere.guarantee = Amount::absolute(gibibytes(5));
  auto done = compile(ann("guarantee = \"4GiB\"\n"), {device(1)}, overlay);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("tenant 'uid:77' asks for 5GiB on top of 4GiB"));
}

TEST(UserOfATenant, IsOneNumberSpelledInOneWay) {
  EXPECT_EQ(core::user_of_tenant("uid:7"), 7U);
  EXPECT_EQ(core::user_of_tenant("uid:0"), 0U);
  for (const char* name :
       {"uid:", "uid:07", "uid:-1", "uid:4294967296", "uid:7x", "uid: 7", "7", "gid:7", ""})
    EXPECT_EQ(core::user_of_tenant(name), std::nullopt) << name;
}

TEST(PolicyCompiler, TakesOverNumbers) {
  const core::Policy policy = good_policy(
      "[broker]\nmax_sessions = 5\nmax_wait_seconds = 60\naging_seconds = 7\nreserve_idle_seconds = "
      "8\npast_broker = \"end\"\n"
      "past_broker_allowance = \"1GiB\"\n[default]\nrefuse = true\n");
  EXPECT_EQ(policy.aging, std::chrono::seconds(7));
  EXPECT_EQ(policy.reserve_idle, std::chrono::seconds(8));
  EXPECT_TRUE(policy.past_broker.end);
  EXPECT_EQ(policy.past_broker.allowance, gibibytes(1));
  EXPECT_EQ(policy.max_sessions, 5U);
  EXPECT_EQ(policy.max_wait, std::chrono::minutes(1));
  EXPECT_FALSE(policy.others.has_value());
}

TEST(PolicyCompiler, LendsTheHostStoreWhereTheFileHasItAfterTheDevices) {
  const std::vector<DeviceFacts> machine{device(1), facts_of_host(gibibytes(64))};
  EXPECT_EQ(good_policy("", machine).devices.size(), 1U);
  const core::Policy policy = good_policy("[host]\n[default]\nlimit = \"1GiB\"\n", machine);
  ASSERT_EQ(policy.devices.size(), 2U);
  EXPECT_TRUE(policy.devices[1].is_host());
  EXPECT_TRUE(policy.devices[1].is_elastic());
  EXPECT_EQ(policy.devices[1].pool, gibibytes(16)) << "a quarter of the machine's memory";
  EXPECT_EQ(policy.others->at(1), (core::Quota{{}, gibibytes(16)})) << "a limit is of GPUs";
  EXPECT_EQ(core::name_of(policy, 1), "host");
  EXPECT_THAT(wrong_policy("[host]\nsize = \"65GiB\"", machine),
              HasSubstr("more than the memory of this machine"));
  EXPECT_THAT(wrong_policy("[host]\nsize = \"1MiB\"", machine), HasSubstr("the least is 2MiB"));
}

TEST(PolicyCompiler, LimitsTheHostStoreByItsOwnKey) {
  const std::vector<DeviceFacts> machine{device(1), facts_of_host(gibibytes(64))};
  const std::string ann = "[[tenant]]\nname = \"ann\"\nuser = 7\nlimit = \"2GiB\"\nhost_limit = \"25%\"\n";
  const core::Policy policy = good_policy("[host]\n" + ann, machine);
  EXPECT_EQ(policy.tenants.at(0).quotas.at(0).limit, gibibytes(2));
  EXPECT_EQ(policy.tenants.at(0).quotas.at(1).limit, gibibytes(4));
  EXPECT_THAT(wrong_policy(ann, machine),
              HasSubstr("tenant 'ann' has a host_limit, but there is no host store"));
}

}  // namespace
}  // namespace gpumem::host
