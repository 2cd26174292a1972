// Quotas set at run time as text, and changes of them.
#include "daemon/host/config/quota_overlay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpumem::host {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string wrong_overlay(std::string_view text) {
  auto overlay = parse_overlay(text, "q.toml");
  EXPECT_FALSE(overlay) << text;
  return overlay ? "" : overlay.error().message;
}

TEST(QuotaOverlay, IsReadAsItWasWritten) {
  QuotaOverlay overlay;
  overlay.revision = 12;
  overlay.changed = "2030-01-02T12:00:00Z";
  overlay.changed_by = "uid 0, pid 7, a \"quoted\" \\ one";
  overlay.tenants["ann"].everywhere = {Amount::absolute({(1ULL << 40) + 1}), Amount::percent(3'333), 7, 0};
  overlay.tenants["ann"].by_device["GPU-a"].limit = Amount::all_but({(3ULL << 30) + 5});
  overlay.tenants["the \"others\""].by_device["GPU-b"].guarantee = Amount::absolute({~0ULL});
  overlay.tenants["zero"].everywhere.guarantee = Amount::absolute({});
  const std::string text = overlay_text(overlay);
  auto again = parse_overlay(text, "q.toml");
  ASSERT_TRUE(again) << again.error().message << "\n" << text;
  EXPECT_EQ(*again, overlay) << text;
  EXPECT_THAT(text, StartsWith("# "));
  EXPECT_EQ(*parse_overlay(overlay_text({}), "q.toml"), QuotaOverlay{});
}

TEST(QuotaOverlay, SpellsAmountsForPeopleWhereNothingIsLost) {
  EXPECT_EQ(exact_text(Amount::absolute(gibibytes(24))), "24GiB");
  EXPECT_EQ(exact_text(Amount::percent(2'550)), "25.5%");
  EXPECT_EQ(exact_text(Amount::all_but(mebibytes(1))), "all-but 1MiB");
  EXPECT_EQ(exact_text(Amount::absolute({(1ULL << 30) + 1})), "1073741825");
  EXPECT_EQ(exact_text(Amount::all_but({(1ULL << 30) + 1})), "all-but 1073741825");
}

TEST(QuotaOverlay, ThatIsBrokenIsRefusedAtItsPlace) {
  EXPECT_THAT(wrong_overlay(""), HasSubstr("there is no 'revision'"))
      << "a file that was cut off says nothing of quotas";
  EXPECT_THAT(wrong_overlay("revision = -1"), StartsWith("q.toml:1:"));
  EXPECT_THAT(wrong_overlay("revision = 9223372036854775807"), StartsWith("q.toml:1:"))
      << "the number after it could not be read again";
  EXPECT_THAT(wrong_overlay("revision = 1\n[[tenant]]\nname = \"a\"\nlimt = 1\n"),
              StartsWith("q.toml:4:1: unknown key 'limt'"));
  EXPECT_THAT(wrong_overlay("revision = 1\n[[tenant]]\nlimit = 1\n"), HasSubstr("needs a 'name'"));
  EXPECT_THAT(wrong_overlay("revision = 1\n[[tenant]]\nname = \"a\"\n[[tenant]]\nname = \"a\"\n"),
              HasSubstr("given twice"));
  EXPECT_THAT(wrong_overlay("revision = 1\n[[tenant]]\nname = \"a\"\nweight = 0\n"),
              HasSubstr("from 1 to 10000"));
  EXPECT_THAT(wrong_overlay("revision = 1\n[[ten"), StartsWith("q.toml:2:"));
}

struct QuotaChanges : testing::Test {
  const std::vector<std::string> devices{"GPU-a", "GPU-b"};
  QuotaOverlay overlay;

  core::QuotaChange of(const std::string& device = "") {
    core::QuotaChange change;
    change.tenant = "ann";
    change.device = device;
    return change;
  }
  core::QuotaChange limit(const std::string& amount, const std::string& device = "") {
    core::QuotaChange change = of(device);
    change.limit = amount;
    return change;
  }
  core::QuotaChange reset(const std::string& device = "") {
    core::QuotaChange change = of(device);
    change.reset = true;
    return change;
  }
  QuotasConfig& change(const core::QuotaChange& change) {
    auto next = with_change(overlay, change, devices);
    EXPECT_TRUE(next) << next.error().message;
    if (next) overlay = *next;
    return overlay.tenants["ann"];
  }
  std::string refused(const core::QuotaChange& change, Code code) {
    auto next = with_change(overlay, change, devices);
    if (next) {
      ADD_FAILURE() << "taken";
      return {};
    }
    EXPECT_EQ(next.error().code, code);
    return next.error().message;
  }
};

TEST_F(QuotaChanges, SetTheNamedFieldsAndLeaveTheRest) {
  core::QuotaChange all = of();
  all.guarantee = "1GiB";
  all.limit = "25%";
  all.weight = 7;
  all.priority = 0;
  change(all);
  const QuotasConfig& quotas = change(limit("8GiB", "GPU-b"));
  EXPECT_EQ(quotas.everywhere, (QuotaConfig{Amount::absolute(gibibytes(1)), Amount::percent(2'500), 7, 0}));
  EXPECT_EQ(quotas.by_device.at("GPU-b").limit, Amount::absolute(gibibytes(8)));
  EXPECT_EQ(quotas.by_device.at("GPU-b").weight, std::nullopt);
  EXPECT_TRUE(says_something(overlay, "ann", "GPU-a"));
  EXPECT_FALSE(says_something(overlay, "bob", "GPU-a"));
}

TEST_F(QuotaChanges, ForEveryDeviceReplaceThoseForOne) {
  change(limit("8GiB", "GPU-b"));
  EXPECT_FALSE(says_something(overlay, "ann", "GPU-a"));
  const QuotasConfig& quotas = change(limit("1GiB"));
  EXPECT_EQ(quotas.everywhere.limit, Amount::absolute(gibibytes(1)));
  EXPECT_TRUE(quotas.by_device.empty());
}

TEST_F(QuotaChanges, AreTakenBackAsAWhole) {
  change(limit("1GiB"));
  change(limit("8GiB", "GPU-b"));
  auto next = with_change(overlay, reset(), devices);
  ASSERT_TRUE(next);
  EXPECT_FALSE(next->tenants.contains("ann"));
}

TEST_F(QuotaChanges, AreTakenBackForOneDeviceAlone) {
  change(limit("1GiB"));
  change(limit("8GiB", "GPU-b"));
  const QuotasConfig& quotas = change(reset("GPU-a"));
  EXPECT_TRUE(quotas.everywhere.says_nothing());
  EXPECT_EQ(quotas.by_device.size(), 1U);
  EXPECT_EQ(quotas.by_device.at("GPU-b").limit, Amount::absolute(gibibytes(8)));
  EXPECT_TRUE(change(reset("GPU-b")) == QuotasConfig{});
}

TEST_F(QuotaChanges, AreTakenBackForADeviceThatIsGone) {
  overlay.tenants["ann"].by_device["GPU-gone"].weight = 3;
  EXPECT_THAT(refused(limit("1GiB", "GPU-gone"), Code::kNotFound),
              HasSubstr("'GPU-gone' is not lent; lent are: GPU-a, GPU-b"));
  EXPECT_TRUE(change(reset("GPU-gone")) == QuotasConfig{});
  EXPECT_THAT(refused(reset("GPU-gone"), Code::kNotFound), HasSubstr("is not lent"));
}

TEST_F(QuotaChanges, ThatMakeNoSenseAreRefused) {
  EXPECT_THAT(refused(of(), Code::kInvalidArgument), HasSubstr("nothing is to be changed"));
  core::QuotaChange both = reset();
  both.weight = 1;
  EXPECT_THAT(refused(both, Code::kInvalidArgument), HasSubstr("either set or reset"));
  core::QuotaChange nobody = limit("1GiB");
  nobody.tenant = "";
  EXPECT_THAT(refused(nobody, Code::kInvalidArgument), HasSubstr("no tenant"));
  for (const char* amount : {"-1GiB", "lots", "", "20000000000GiB", "101%", "nan"})
    EXPECT_THAT(refused(limit(amount), Code::kInvalidArgument), StartsWith("limit: ")) << amount;
  core::QuotaChange guarantee = of();
  guarantee.guarantee = "-1";
  EXPECT_THAT(refused(guarantee, Code::kInvalidArgument), StartsWith("guarantee: "));
  core::QuotaChange weight = of();
  for (const std::uint32_t bad : {0U, 10'001U, ~0U}) {
    weight.weight = bad;
    EXPECT_THAT(refused(weight, Code::kInvalidArgument), HasSubstr("is not from 1 to 10000")) << bad;
  }
  core::QuotaChange priority = of();
  priority.priority = 10;
  EXPECT_THAT(refused(priority, Code::kInvalidArgument), HasSubstr("priority 10 is not from 0 to 9"));
}

}  // namespace
}  // namespace gpumem::host
