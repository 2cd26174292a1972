// Claims as quotas of tenants, and the configuration of namespaces.
#include "daemon/host/config/policy_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/host/config/accounts.h"
#include "tests/unit/pods/claims.h"

namespace gpumem::host {
namespace {

using testing::HasSubstr;

struct Machine {
  Machine() {
    facts.device.uuid.bytes.fill(1);
    facts.device.total = mebibytes(64);
    facts.device.granularity = mebibytes(2);
    uuid = to_string(facts.device.uuid);
  }
  Result<Compiled> compile(const std::string& config, const pods::PreparedClaims& claims) const {
    auto parsed = parse_config("[broker]\nreserve = \"100%\"\n" + config, "g.toml");
    if (!parsed) return parsed.error();
    look_up(*parsed);
    return compile_policy(*parsed, {facts}, {}, claims);
  }
  pods::PreparedClaims one_claim(Bytes guarantee, Bytes limit) const {
    using namespace pods;
    return with({}, claim("1", {pod(kAnna, "a")}, {{uuid, guarantee, limit}}));
  }
  // What is compiled of it.
  core::Quota quota(Bytes guarantee, Bytes limit) const {
    auto compiled = compile("", one_claim(guarantee, limit));
    EXPECT_TRUE(compiled) << compiled.error().message;
    return compiled ? compiled->policy.tenants.at(0).quotas.at(0) : core::Quota{};
  }
  DeviceFacts facts;
  std::string uuid;
};

TEST(PodPolicy, HasTheAmountsOfClaims) {
  const Machine machine;
  EXPECT_EQ(machine.quota(mebibytes(4), mebibytes(8)), (core::Quota{mebibytes(4), mebibytes(8)}));
  EXPECT_EQ(machine.quota({}, mebibytes(999)), (core::Quota{{}, mebibytes(64)})) << "the pool";
}

TEST(PodPolicy, RoundsToTheGranularity) {
  const Machine machine;
  EXPECT_EQ(machine.quota(mebibytes(3), mebibytes(9)), (core::Quota{mebibytes(4), mebibytes(8)}));
  EXPECT_EQ(machine.quota(mebibytes(9), mebibytes(9)), (core::Quota{mebibytes(8), mebibytes(8)}));
}

TEST(PodPolicy, DoesNotPromiseMoreThanThePool) {
  const Machine machine;
  const auto compiled = machine.compile("", machine.one_claim(mebibytes(70), mebibytes(70)));
  ASSERT_FALSE(compiled);
  EXPECT_THAT(compiled.error().message, HasSubstr("exceed its pool of 64MiB by 6MiB"));
}

TEST(PodPolicy, LeavesOutDevicesThatAreNotLentAndSaysSo) {
  using namespace pods;
  const Machine machine;
  const auto compiled = machine.compile("", with({}, claim("1", {pod(kAnna, "a")})));
  ASSERT_TRUE(compiled);
  ASSERT_EQ(compiled->unapplied.size(), 1U);
  EXPECT_EQ(compiled->unapplied[0].device, "GPU-0");
  EXPECT_EQ(compiled->policy.tenants.at(0).quotas.at(0).limit, Bytes{});
}

TEST(PodPolicy, PutsPodsBelowTheirNamespace) {
  const Machine machine;
  const auto parent = [&](const std::string& config) {
    const auto compiled = machine.compile(config, machine.one_claim({}, mebibytes(8)));
    EXPECT_TRUE(compiled) << compiled.error().message;
    return compiled ? compiled->policy.tenants.back().parent : "";
  };
  EXPECT_EQ(parent(""), "");
  EXPECT_EQ(parent("[[kubernetes.namespace]]\nname = \"ml\"\n"), "namespace ml");
  EXPECT_EQ(parent("[[kubernetes.namespace]]\nname = \"web\"\n"), "");
  EXPECT_EQ(parent("[[tenant]]\nname = \"all\"\n[kubernetes]\nparent = \"all\"\n"), "all");
}

TEST(PodPolicy, OfNamespacesIsThatOfTenants) {
  const Machine machine;
  const auto compiled = machine.compile(R"([[tenant]]
name = "all"
[kubernetes]
parent = "all"
[[kubernetes.namespace]]
name = "ml"
guarantee = "8MiB"
limit = "50%"
)",
                                        {});
  ASSERT_TRUE(compiled) << compiled.error().message;
  const core::TenantRule& rule = compiled->policy.tenants.at(1);
  EXPECT_EQ(rule.name, "namespace ml");
  EXPECT_EQ(rule.parent, "all");
  EXPECT_EQ(rule.quotas.at(0), (core::Quota{mebibytes(8), mebibytes(32)}));
}

TEST(KubernetesSection, IsChecked) {
  const auto refused = [](const std::string& text) {
    const auto config = parse_config(text, "g.toml");
    return config ? "taken" : config.error().message;
  };
  EXPECT_EQ(refused("[kubernetes]\nunprepared = \"default\"\n"), "taken");
  EXPECT_THAT(refused("[kubernetes]\nunprepared = \"lend\"\n"), HasSubstr("\"refuse\", \"default\""));
  EXPECT_THAT(refused("[kubernetes]\nunprepared = \"default\"\n[default]\nrefuse = true\n"),
              HasSubstr("needs a [default] that does not refuse"));
  EXPECT_THAT(refused("[kubernetes]\ncgroup_root = \"kubelet\"\n"), HasSubstr("cgroup_root"));
  EXPECT_THAT(refused("[kubernetes]\nparent = \"all\"\n"), HasSubstr("'all' is no tenant"));
  EXPECT_EQ(refused("[kubernetes]\nlook_for_pods = false\n"), "taken");
  for (const char* pointless :
       {"unprepared = \"default\"", "parent = \"all\"", "namespace = [{name = \"ml\"}]"}) {
    const std::string text = "[kubernetes]\nlook_for_pods = false\n" + std::string(pointless) + "\n";
    EXPECT_THAT(refused(text), HasSubstr("there are no pods")) << text;
  }
  EXPECT_THAT(refused("[[kubernetes.namespace]]\nlimit = \"1GiB\"\n"), HasSubstr("needs its 'name'"));
  EXPECT_THAT(refused("[[kubernetes.namespace]]\nname = \"a b\"\n"), HasSubstr("needs its 'name'"));
  EXPECT_THAT(refused("[[kubernetes.namespace]]\nname = \"a\"\n[[kubernetes.namespace]]\nname = \"a\"\n"),
              HasSubstr("given twice"));
  for (const char* name : {"pod ml/a", "claim x", "namespace ml"}) {
    EXPECT_THAT(refused("[[tenant]]\nuser = 1\nname = \"" + std::string(name) + "\"\n"),
                HasSubstr("are of Kubernetes"))
        << name;
  }
}

TEST(Amounts, AreComparedWithEachDevice) {
  const Machine machine;
  const auto policy = machine.compile("", {})->policy;
  const auto check = [&](const std::string& device, Bytes limit) {
    const auto ok = check_amounts(pods::claim("1", {}, {{device, {}, limit}}), policy);
    return ok ? std::nullopt : std::optional(ok.error().code);
  };
  EXPECT_EQ(check(machine.uuid, mebibytes(2)), std::nullopt);
  EXPECT_EQ(check(machine.uuid, mebibytes(1)), Code::kInvalidArgument);
  EXPECT_EQ(check("GPU-none", mebibytes(2)), Code::kNotFound);
}

}  // namespace
}  // namespace gpumem::host
