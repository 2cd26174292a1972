// Tables that fit, and the listings of a busy machine in 80 columns.
#include "client/cli/views/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

#include "base/text/time_format.h"
#include "client/cli/views/views.h"

namespace gpumem::cli::test {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
const std::vector<std::string> kDevices{"GPU-11111111-2222", "GPU-33333333-4444"};

Table small() {
  Table table({{.title = "NAME", .least = 8},
               {.title = "DEBT", .align = Table::Align::kRight, .usual = "0B", .alerts = true},
               {.title = "NOTE", .rank = 1}});
  table.add({"a-name-that-is-long", "0B", "first"});
  table.add({"b", "0B", "second"});
  return table;
}

TEST(TableLayout, LeavesOutWhatIsUsualThenByRankThenCuts) {
  EXPECT_EQ(small().text(),
            "NAME                 NOTE\na-name-that-is-long  first\nb                    second\n");
  EXPECT_EQ(small().text({.columns = 20}), "NAME          NOTE\na-name-that+  first\nb             second\n");
  EXPECT_EQ(small().text({.columns = 12}), "NAME\na-name-that+\nb\n");
  EXPECT_EQ(small().text({.columns = 1}), "NAME\na-name-+\nb\n") << "8 letters stay";
}

TEST(TableLayout, ShowsAllWhereItIsLong) {
  EXPECT_THAT(small().text({.is_long = true}), HasSubstr("a-name-that-is-long    0B  first"));
}

TEST(TableLayout, HasColourOnlyWhereItIsToldTo) {
  Table table = small();
  table.add({"c", "3GiB"});
  EXPECT_EQ(table.text().find('\033'), std::string::npos);
  EXPECT_THAT(table.text({.has_colour = true}), HasSubstr("\033[33m3GiB\033[0m"));
}

TEST(TableLayout, NamesDevicesByTheirPlace) {
  EXPECT_EQ(Layout{.devices = kDevices}.device(kDevices[1]), "gpu1");
  EXPECT_EQ(Layout{}.device(kDevices[1]), "GPU-33333333");
  EXPECT_EQ((Layout{.is_long = true, .devices = kDevices}.device(kDevices[1])), kDevices[1]);
}

struct Busy : testing::Test {
  // 200 sessions of users without a name, half of them of the job of a command.
  static v1::ListSessionsResponse sessions() {
    v1::ListSessionsResponse list;
    for (std::uint64_t i = 0; i < 200; ++i) {
      v1::SessionInfo& one = *list.add_sessions();
      one.set_id(1000 + i);
      one.set_pid(static_cast<std::int64_t>(4'000'000 + i));
      one.set_uid(static_cast<std::uint32_t>(1'999'990'000 + i % 7));
      one.set_tenant(i % 3 == 0 ? "the-whole-vision-lab" : "uid:" + std::to_string(one.uid()));
      one.set_command(i % 2 == 0 ? "python3" : "tensorflow_model_server");
      one.set_label("train-" + std::to_string(i) + "-of-a-long-name");
      one.set_since("2030-01-02T11:59:50Z");
      if (i % 2 == 0) one.set_job(1'893'585'600 + i);
      v1::SliceInfo& slice = *one.add_slices();
      slice.set_id(i);
      slice.set_device(kDevices[i % 2]);
      slice.set_charged((i * 37 + 1) * kMiB);
      slice.set_in_use(i * 37 * kMiB);
      slice.set_limit(24'576 * kMiB);
      slice.set_waiting(i == 7 ? 512 * kMiB : 0);
    }
    return list;
  }
  static testing::AssertionResult fits(const std::string& text, std::size_t lines, std::size_t columns = 80) {
    std::istringstream stream(text);
    std::size_t count = 0;
    for (std::string line; std::getline(stream, line); ++count)
      if (line.size() > columns)
        return testing::AssertionFailure() << "longer than " << columns << ": " << line;
    if (count == lines) return testing::AssertionSuccess();
    return testing::AssertionFailure() << count << " lines: " << text;
  }

  const WallTime noon = *parse_rfc3339("2030-01-02T12:00:00Z");
  const Layout layout{.columns = 80, .devices = kDevices};
};

TEST_F(Busy, PsFits) {
  const std::string text = sessions_text(sessions(), noon, {}, layout, true);
  EXPECT_TRUE(fits(text, 203));
  EXPECT_THAT(text,
              testing::StartsWith(
                  "SESSION      PID  USER        COMMAND      DEVICE    CHARGED     IN USE  WAITING\n"
                  "   1000  4000000  1999990000  python3      gpu0         1MiB         0B       0B\n"
                  "   1001  4000001  1999990001  tensorflow+  gpu1        38MiB      37MiB       0B\n"));
  EXPECT_THAT(text,
              testing::EndsWith(
                  "   1199  4000199  1999990003  tensorflow+  gpu1      7.19GiB    7.19GiB       0B\n"
                  "  total        -  -           -            gpu0    357.81GiB  357.71GiB       0B\n"
                  "  total        -  -           -            gpu1    361.42GiB  361.32GiB   512MiB\n"));
}

TEST_F(Busy, TenantsFit) {
  v1::ListTenantsResponse list;
  for (std::uint64_t i = 0; i < 200; ++i) {
    v1::TenantUsage& one = *list.add_tenants();
    one.set_tenant(i == 0 ? "the-whole-vision-laboratory-of-the-institute"
                          : "uid:" + std::to_string(1'999'990'000 + i));
    if (i != 0) one.set_parent(list.tenants(0).tenant());
    one.set_device(kDevices[i % 2]);
    one.set_guarantee(i * kMiB);
    one.set_limit(24'576 * kMiB);
    one.set_charged(i * 100 * kMiB);
    one.set_burst(i * 99 * kMiB);
    one.set_quarantined(i == 5 ? 2 * kMiB : 0);
    one.set_sessions(1);
    one.set_waiting(i == 7 ? 3 : 0);
  }
  const std::string text = tenants_text(list, layout);
  EXPECT_TRUE(fits(text, 201));
  EXPECT_THAT(text,
              testing::StartsWith(
                  "TENANT                  DEVICE  GUARANTEE  LIMIT   CHARGED  QUARANTINED  WAITING\n"
                  "the-whole-vision-labo+  gpu0           0B  24GiB        0B           0B        0\n"
                  "  uid:1999990001        gpu1         1MiB  24GiB    100MiB           0B        0\n"));
}

TEST_F(Busy, StatusFits) {
  v1::GetStatusResponse status;
  status.set_version("1.2.3");
  status.set_started("2030-01-02T11:00:00Z");
  status.set_driver("CUDA 13.0");
  status.set_sessions(200);
  for (const std::string& uuid : kDevices) {
    v1::DeviceStatus& one = *status.add_devices();
    one.set_uuid(uuid);
    one.set_name("NVIDIA H100 80GB HBM3 in a long box");
    one.set_total(81'559 * kMiB);
    one.set_pool(79'000 * kMiB);
    one.set_free(1'234 * kMiB);
    one.set_warm(1'000 * kMiB);
    one.set_guaranteed(40'960 * kMiB);
    one.set_missing(100 * kMiB);
    one.set_waiting(12);
    one.set_active(70'000 * kMiB);
    one.set_quarantined(2 * kMiB);
    one.set_reserved(5'001 * kMiB);
    one.set_asked_back(513 * kMiB);
    one.set_outside(4'097 * kMiB);
    one.set_contexts(77 * kMiB);
  }
  EXPECT_EQ(status_text(status, noon, layout),
            "gpumemd 1.2.3, up 1h 0m, CUDA 13.0, 200 sessions\n\n"
            "DEVICE  NAME               TOTAL      POOL    FREE  GUARANTEED  MISSING  WAITING\n"
            "gpu0    NVIDIA H100 8+  79.64GiB  77.14GiB  1.2GiB       40GiB   100MiB       12\n"
            "gpu1    NVIDIA H100 8+  79.64GiB  77.14GiB  1.2GiB       40GiB   100MiB       12\n\n"
            "DEVICE   CHARGED    ACTIVE  QUARANTINED  RESERVED  ASKED BACK  OUTSIDE\n"
            "gpu0    73.24GiB  68.35GiB         2MiB   4.88GiB      513MiB     4GiB\n"
            "gpu1    73.24GiB  68.35GiB         2MiB   4.88GiB      513MiB     4GiB\n");
}

// Of the accounts, of rows by every column, and of jobs.
TEST_F(Busy, AccountsFit) {
  v1::ListAccountsResponse accounts;
  Json rows = Json::array(), jobs = Json::array();
  for (int i = 0; i < 3; ++i) {
    const std::string tenant = "the-whole-vision-lab-" + std::to_string(i);
    v1::Account& account = *accounts.add_accounts();
    account.set_tenant(tenant);
    account.set_device(kDevices[1]);
    account.set_since("2030-01-02T11:00:00Z");
    account.set_lent(1e15);
    account.set_kept(1e15);
    account.set_waiting(1e15);
    rows.push_back({{"day", "2030-01-02"}, {"tenant", tenant}, {"uid", 1'999'990'000 + i}});
    rows.back().update({{"device", kDevices[1]}, {"lent", 1e15}, {"kept", 1e15}, {"waiting", 1e15}});
    rows.back().update({{"denied", 12}, {"ended", 3}, {"peak", 81'559 * kMiB}});
    jobs.push_back(
        {{"began", "2030-01-02T11:00:00Z"}, {"ended", "2030-01-02T12:00:00Z"}, {"pid", 4'000'000}});
    jobs.back().update({{"tenant", tenant}, {"job", 1'893'585'600 + i}, {"name", "a-training-of-days"}});
    jobs.back().update({{"charged", 1e15}, {"peak", 81'559 * kMiB}, {"waited", 75}, {"denied", 12}});
    jobs.back().update({{"words", "it did not give memory back"}});
  }
  const Json by_column{{"rows", rows}}, by_job{{"jobs", jobs}};
  for (const std::size_t columns : {60U, 80U}) {
    const Layout narrow{.columns = columns, .devices = kDevices};
    for (const std::string& text : {accounts_text(accounts, noon, narrow), history_text(by_column, narrow),
                                    history_text(by_job, narrow)})
      EXPECT_TRUE(fits(text, 4, columns));
  }
  EXPECT_THAT(history_text(by_column, layout),
              testing::StartsWith(
                  "DAY         TENANT               USER        DEVICE  GIB-HOURS  DENIED      PEAK\n"));
  EXPECT_THAT(history_text(by_column, {.devices = kDevices}),
              HasSubstr("  258.70      258.70      12      3  79.64GiB\n"));
}

TEST_F(Busy, PsOfOneUserIsSortedByWhatIsCharged) {
  v1::ListSessionsResponse list = sessions();
  choose(list, {.user = 1'999'990'003, .sort = "charged"});
  ASSERT_EQ(list.sessions_size(), 29);
  EXPECT_EQ(list.sessions(0).id(), 1199U);
  EXPECT_EQ(list.sessions(28).id(), 1003U);
  const Json total = sessions_json(list, {}, true)["total"];
  ASSERT_EQ(total.size(), 2U);
  EXPECT_EQ(total[0]["device"], kDevices[0]);
  EXPECT_EQ(total[0]["waiting"], 0);
}

// The second device has the first UUID.
TEST(Devices, AreSortedByTheirPlaces) {
  const Layout layout{.devices = {"GPU-b", "GPU-a"}};
  Json answer{{"rows", Json::array()}};
  for (const char* day : {"2030-01-02", "2030-01-03"})
    for (const char* device : {"GPU-a", "GPU-b", "GPU-gone"})
      answer["rows"].push_back({{"day", day}, {"device", device}});
  nlohmann::json by_day = answer, by_device = answer;
  sort_by_place(by_day, {"day", "device"}, layout);
  EXPECT_EQ(by_day["rows"][0]["device"], "GPU-b");
  EXPECT_EQ(by_day["rows"][1]["device"], "GPU-a");
  EXPECT_EQ(by_day["rows"][2]["device"], "GPU-gone");
  EXPECT_EQ(by_day["rows"][3]["day"], "2030-01-03");
  sort_by_place(by_device, {"device", "day"}, layout);
  EXPECT_EQ(by_device["rows"][1]["device"], "GPU-b");
  EXPECT_EQ(by_device["rows"][1]["day"], "2030-01-03");
  v1::ListSessionsResponse sessions;
  for (const char* device : {"GPU-a", "GPU-b"}) sessions.add_sessions()->add_slices()->set_device(device);
  const std::string total = sessions_text(sessions, {}, {}, layout, true);
  EXPECT_LT(total.rfind("gpu0"), total.rfind("gpu1")) << total;
}

TEST(Names, OfUsersStandBesideTheirTenants) {
  const std::string own = "uid:" + std::to_string(::getuid());
  EXPECT_EQ(tenant_text(own), user_name(::getuid()) + " (" + own + ")");
  EXPECT_EQ(tenant_text("uid:1999990000"), "uid:1999990000");
  EXPECT_EQ(tenant_text("lab"), "lab");
  EXPECT_EQ(find_user(user_name(::getuid())), ::getuid());
  EXPECT_EQ(find_user("no such user"), std::nullopt);
}

}  // namespace
}  // namespace gpumem::cli::test
