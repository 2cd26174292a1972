// What `gpumem quota` prints.
#include <gtest/gtest.h>

#include "client/cli/views/views.h"

namespace gpumem::cli::test {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

v1::QuotaInfo line(const std::string& tenant, const std::string& parent, std::uint64_t limit,
                   bool set = false) {
  v1::QuotaInfo info;
  info.set_tenant(tenant);
  info.set_parent(parent);
  info.set_device("GPU-a");
  info.set_limit(limit);
  info.set_weight(100);
  info.set_priority(5);
  info.set_set_at_run_time(set);
  return info;
}

TEST(QuotaList, ShowsTenantsUnderTheirParents) {
  v1::ListQuotasResponse quotas;
  quotas.set_revision(3);
  *quotas.add_quotas() = line("ann", "lab", kGiB, true);
  *quotas.add_quotas() = line("bob", "", 2 * kGiB);
  *quotas.add_quotas() = line("lab", "", 4 * kGiB);
  *quotas.add_quotas() = line("eve", "gone", kGiB);
  EXPECT_EQ(quotas_text(quotas),
            "TENANT  DEVICE  GUARANTEE  LIMIT  WEIGHT  PRIORITY  SET\n"
            "bob     GPU-a          0B   2GiB     100         5  -\n"
            "lab     GPU-a          0B   4GiB     100         5  -\n"
            "  ann   GPU-a          0B   1GiB     100         5  yes\n"
            "eve     GPU-a          0B   1GiB     100         5  -\n"
            "revision 3\n");
  const Json json = quotas_json(quotas);
  EXPECT_EQ(json["revision"], 3);
  EXPECT_EQ(json["quotas"].size(), 4U);
  EXPECT_EQ(json["quotas"][0]["set"], true);
  EXPECT_EQ(json["quotas"][0]["parent"], "lab");
  EXPECT_EQ(json["quotas"][0]["limit"], kGiB);
}

TEST(QuotaList, ShowsATenantWithoutANameOnce) {
  v1::ListQuotasResponse quotas;
  *quotas.add_quotas() = line("", "gone", kGiB);
  EXPECT_EQ(quotas_text(quotas),
            "TENANT  DEVICE  GUARANTEE  LIMIT  WEIGHT  PRIORITY  SET\n"
            "-       GPU-a          0B   1GiB     100         5  -\n"
            "revision 0\n");
}

TEST(QuotaList, OfNobodyStillHasItsRevision) { EXPECT_EQ(quotas_text({}), "no tenants\nrevision 0\n"); }

TEST(QuotaChange, ShowsWhatWasAndWhatIs) {
  v1::SetQuotaResponse change;
  change.set_revision(4);
  *change.add_before() = line("ann", "", kGiB);
  *change.add_after() = line("ann", "", 2 * kGiB, true);
  EXPECT_EQ(quota_change_text(change),
            "TENANT  DEVICE  GUARANTEE  LIMIT         WEIGHT  PRIORITY  SET\n"
            "ann     GPU-a   0B         1GiB -> 2GiB  100     5         no -> yes\n"
            "revision 4\n");
  const Json json = quota_change_json(change);
  EXPECT_EQ(json["before"][0]["limit"], kGiB);
  EXPECT_EQ(json["after"][0]["limit"], 2 * kGiB);
}

}  // namespace
}  // namespace gpumem::cli::test
