// What the `gpumem` command prints.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/system/unix_socket.h"
#include "base/text/time_format.h"
#include "client/cli/check/check.h"
#include "client/cli/commands/history.h"
#include "client/cli/commands/usage.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"
#include "tests/unit/client/lane/fake_lane.h"

namespace gpumem::cli::test {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

WallTime noon() { return *parse_rfc3339("2030-01-02T12:00:00Z"); }

TEST(Table, AlignsColumnsAndEndsLinesWithoutSpaces) {
  Table table({{"NAME"}, {"SIZE", Table::Align::kRight}, {"NOTE"}});
  table.add({"a", "10", "x"});
  table.add({"longer", "5"});
  EXPECT_EQ(table.text(),
            "NAME    SIZE  NOTE\n"
            "a         10  x\n"
            "longer     5  -\n");
}

TEST(Table, CountsLettersAndNotBytes) {
  Table table({{"A"}, {"B"}});
  table.add({"é", "x"});
  EXPECT_EQ(table.text(), "A  B\né  x\n");
}

TEST(Table, ShowsNoEscapeSequences) {
  EXPECT_EQ(printable("a\033[2Jb\n\x7F"), "a?[2Jb??");
  EXPECT_EQ(printable("\xC2\x9Bq"), "?q");
  EXPECT_EQ(printable("é"), "é");
}

TEST(Age, IsGivenInItsTwoLargestUnits) {
  EXPECT_EQ(age_text("2030-01-02T11:59:58Z", noon()), "2s");
  EXPECT_EQ(age_text("2030-01-02T11:47:55Z", noon()), "12m 5s");
  EXPECT_EQ(age_text("2030-01-02T08:30:00Z", noon()), "3h 30m");
  EXPECT_EQ(age_text("2029-12-30T08:00:00Z", noon()), "3d 4h");
  EXPECT_EQ(age_text("2030-01-02T13:00:00Z", noon()), "0s");
  EXPECT_EQ(age_text("never", noon()), "");
}

v1::GetStatusResponse status() {
  v1::GetStatusResponse status;
  status.set_version("1.2.3");
  status.set_started("2030-01-02T11:00:00Z");
  status.set_driver("CUDA 13.0");
  status.set_sessions(1);
  v1::DeviceStatus* device = status.add_devices();
  device->set_uuid("GPU-1");
  device->set_name("H200");
  device->set_pool(24 * kGiB);
  device->set_offered(1);
  device->set_active(2);
  device->set_returning(3);
  device->set_quarantined(4);
  return status;
}

TEST(HistoryTime, IsADateADayOrHowLongAgo) {
  const WallTime saturday = *parse_rfc3339("2026-11-28T20:15:00Z");
  for (const auto& [text, instant] :
       std::map<std::string, std::string>{{"2026-11-01", "2026-11-01T00:00:00Z"},
                                          {"today", "2026-11-28T00:00:00Z"},
                                          {"yesterday", "2026-11-27T00:00:00Z"},
                                          {"monday", "2026-11-23T00:00:00Z"},
                                          {"saturday", "2026-11-28T00:00:00Z"},
                                          {"sunday", "2026-11-22T00:00:00Z"},
                                          {"7d", "2026-11-21T20:15:00Z"},
                                          {"5", "2026-11-28T20:14:55Z"},
                                          {"2026-11-02T03:04:05Z", "2026-11-02T03:04:05Z"}}) {
    const auto found = instant_of(text, saturday);
    ASSERT_TRUE(found) << text;
    EXPECT_EQ(to_rfc3339(*found, Precision::kSeconds), instant) << text;
  }
  for (const char* text : {"", "someday", "2026-13-01", "Monday?", "m", "-5m", "10 m", "10mm", "9999d"})
    EXPECT_FALSE(instant_of(text, saturday)) << text;
}

TEST(HistoryView, NamesTheColumnsThatItWasAskedBy) {
  const auto answer = nlohmann::json::parse(
      R"({"rows": [{"tenant": null, "day": "2026-11-28", "lent": 3865470566400.0, "kept": 0.0, "waiting": 0.0,
          "denied": 2, "ended": 0, "peak": 2048}]})");
  EXPECT_EQ(history_text(answer),
            "DAY         TENANT  GIB-HOURS  DENIED  PEAK\n2026-11-28  (all)        1.00       2  2KiB\n");
  EXPECT_EQ(history_csv(answer),
            "day,tenant,lent,returning,reserved,outside,kept,waiting,denied,ended,peak\n"
            "\"2026-11-28\",\"\",3865470566400,0,0,0,0,0,2,0,2048\n");
  EXPECT_EQ(history_text(nlohmann::json::parse(R"({"rows": []})")), "nothing is recorded of that time\n");
}

TEST(HistoryView, ShowsWhatItUnderstandsOfAnAnswer) {
  for (const char* text :
       {R"({})", R"({"rows": 1})", R"({"rows": [1, null, "x", [], {"uid": -1}]})",
        R"({"rows": [{"uid": "x", "tenant": 5, "device": {}, "lent": "much", "peak": -1.5}, {"uid": 1e99}]})",
        R"({"jobs": {"a": 1}})",
        R"({"sessions": [[], {"began": 1, "ended": [], "waited": 1e99, "peak": "x"}]})"}) {
    nlohmann::json answer = nlohmann::json::parse(text);
    sort_by_place(answer, {}, {});
    EXPECT_NE(history_text(answer), "") << text;
    EXPECT_NE(history_csv(answer), "") << text;
  }
}

// Programs choose their names, and administrators open such a file as a spreadsheet.
TEST(CsvText, IsNoFormulaAndOneField) {
  for (const auto& [text, field] :
       std::map<std::string, std::string>{{"", "\"\""},
                                          {"train.py", "\"train.py\""},
                                          {"a,\"b\"", "\"a,\"\"b\"\"\""},
                                          {"=cmd|' /C calc'!A0", "\"'=cmd|' /C calc'!A0\""},
                                          {"+1", "\"'+1\""},
                                          {"-1", "\"'-1\""},
                                          {"@SUM(1)", "\"'@SUM(1)\""}})
    EXPECT_EQ(csv_text(text), field);
}

// The figures beside it are those of a broker that lends.
TEST(StatusView, SaysThatNothingIsLentAsDoesWhy) {
  const std::string why = "the journal cannot be written";
  v1::GetStatusResponse one = status();
  EXPECT_TRUE(status_json(one, noon())["not_lending"].is_null());
  one.set_not_lending(why);
  EXPECT_NE(status_text(one, noon()).find("session\n" + why + "\n"), std::string::npos);
  EXPECT_EQ(status_json(one, noon())["not_lending"], why);
  v1::ExplainResponse explained;
  explained.add_devices()->set_available(4096);
  EXPECT_NE(why_text(explained).find("could be granted now: 4KiB"), std::string::npos);
  explained.set_not_lending(why);
  const std::string text = why_text(explained);
  EXPECT_NE(text.find("\n" + why + "\n"), std::string::npos) << text;
  EXPECT_NE(text.find("could be granted when the broker lends again: 4KiB"), std::string::npos) << text;
}

TEST(StatusView, HasStableJson) {
  const Json json = status_json(status(), noon());
  EXPECT_EQ(json["version"], "1.2.3");
  EXPECT_EQ(json["uptime_seconds"], 3600);
  EXPECT_EQ(json["sessions"], 1);
  const Json& device = json["devices"][0];
  EXPECT_EQ(device["pool"], 24 * kGiB);
  EXPECT_EQ(device["charged"], 10);
  for (const char* key : {"uuid", "name", "total", "pool", "free", "warm", "charged", "offered", "active",
                          "returning", "quarantined", "guaranteed", "missing", "waiting"}) {
    EXPECT_TRUE(device.contains(key)) << key;
  }
}

TEST(StatusView, ShowsWhatIsAskedBackWhereThereIsAny) {
  v1::GetStatusResponse some = status();
  EXPECT_EQ(status_text(some, noon()).find("ASKED BACK"), std::string::npos);
  EXPECT_EQ(status_text(some, noon()).find("OUTSIDE"), std::string::npos);
  some.mutable_devices(0)->set_asked_back(5 * kGiB);
  EXPECT_NE(status_text(some, noon()).find("ASKED BACK"), std::string::npos);
  EXPECT_EQ(status_json(some, noon())["devices"][0]["asked_back"], 5 * kGiB);
}

TEST(StatusView, TellsPeopleTheSame) {
  const std::string text = status_text(status(), noon());
  EXPECT_EQ(text.find("gpumemd 1.2.3, up 1h 0m, CUDA 13.0, 1 session\n"), 0U) << text;
  EXPECT_NE(text.find("24GiB"), std::string::npos) << text;
  EXPECT_NE(text.find("QUARANTINED"), std::string::npos) << text;
}

v1::ListSessionsResponse sessions() {
  v1::ListSessionsResponse list;
  v1::SessionInfo* session = list.add_sessions();
  session->set_id(7);
  session->set_uid(::getuid());
  session->set_tenant("red");
  session->set_command("python\xFF");
  session->set_label("train");
  session->set_since("2030-01-02T11:00:00Z");
  v1::SliceInfo* slice = session->add_slices();
  slice->set_id(3);
  slice->set_device("GPU-12345678-aaaa");
  slice->set_label("weights");
  slice->set_charged(2 * kGiB);
  return list;
}

TEST(SessionsView, HasStableJson) {
  const Json json = sessions_json(sessions());
  const Json& session = json["sessions"][0];
  EXPECT_EQ(session["id"], 7);
  EXPECT_TRUE(session["pid"].is_null());
  EXPECT_EQ(session["user"], user_name(::getuid()));
  EXPECT_EQ(session["ended"], false);
  EXPECT_EQ(session["slices"][0]["charged"], 2 * kGiB);
  EXPECT_EQ(session["slices"][0]["device"], "GPU-12345678-aaaa");
}

TEST(SessionsView, OfTextThatIsNoUtf8IsStillJson) {
  EXPECT_TRUE(Json::accept(json_text(sessions_json(sessions()))));
}

TEST(SessionsView, HasALineForEverySlice) {
  const std::string text = sessions_text(sessions(), noon());
  EXPECT_NE(text.find("train/weights"), std::string::npos) << text;
  EXPECT_NE(text.find("GPU-12345678 "), std::string::npos) << text;
  EXPECT_NE(text.find("1h 0m"), std::string::npos) << text;
  EXPECT_EQ(sessions_text({}, noon()), "no sessions\n");
}

TEST(SessionsView, ShowsANameThatSessionAndSliceShareOnce) {
  v1::ListSessionsResponse list = sessions();
  list.mutable_sessions(0)->mutable_slices(0)->set_label("train");
  const std::string text = sessions_text(list, noon());
  EXPECT_NE(text.find(" train "), std::string::npos) << text;
  EXPECT_EQ(text.find("train/"), std::string::npos) << text;
}

TEST(SessionsView, EscapesLettersThatAreNotAsciiOnce) {
  v1::ListSessionsResponse list = sessions();
  list.mutable_sessions(0)->set_label("für");
  for (const auto& [label, shown] : {std::pair("für", " f\\u{FC}r "), {"ü", " f\\u{FC}r/\\u{FC} "}}) {
    list.mutable_sessions(0)->mutable_slices(0)->set_label(label);
    const std::string text = sessions_text(list, noon());
    EXPECT_NE(text.find(shown), std::string::npos) << text;
  }
}

TEST(SessionsView, NamesASessionThatCannotBeSignalled) {
  v1::ListSessionsResponse list = sessions();
  EXPECT_EQ(sessions_text(list, noon()).find("cannot be signalled"), std::string::npos);
  EXPECT_EQ(sessions_json(list)["sessions"][0]["cannot_be_signalled"], false);
  list.mutable_sessions(0)->set_cannot_be_signalled(true);
  EXPECT_NE(sessions_text(list, noon()).find("open, cannot be signalled"), std::string::npos);
  EXPECT_EQ(sessions_json(list)["sessions"][0]["cannot_be_signalled"], true);
  list.mutable_sessions(0)->set_ended(true);
  EXPECT_NE(sessions_text(list, noon()).find("ended, cannot be signalled"), std::string::npos);
}

TEST(SessionsView, ShowsHowManyRegionsASessionHas) {
  const std::uint64_t id = sessions().sessions(0).id();
  v1::ListRegionsResponse regions;
  EXPECT_EQ(sessions_text(sessions(), noon(), regions).find("regions:"), std::string::npos);
  for (int i = 0; i < 3; ++i) regions.add_regions()->set_device("GPU-12345678-aaaa");
  regions.mutable_regions(0)->add_charged()->set_session(id);
  regions.mutable_regions(1)->add_charged()->set_session(id);
  regions.mutable_regions(2)->add_mappings()->set_session(id);
  const std::string text = sessions_text(sessions(), noon(), regions);
  EXPECT_NE(text.find("train/regions: 2 published, 1 mapped"), std::string::npos) << text;
  const Json json = sessions_json(sessions(), regions)["sessions"][0]["regions"][0];
  EXPECT_EQ(json["published"], 2);
  EXPECT_EQ(json["mapped"], 1);
}

TEST(SessionsView, ShowsWhatASessionHasBesidesItsSlices) {
  v1::ListSessionsResponse list = sessions();
  v1::SharedMemory& shared = *list.mutable_sessions(0)->add_shared();
  shared.set_device("GPU-12345678-aaaa");
  shared.set_charged(kGiB);
  shared.set_imported(3 * kGiB);
  const std::string text = sessions_text(list, noon());
  const std::string line = text.substr(text.find("train/shared"));
  EXPECT_NE(line.find("1GiB"), std::string::npos) << text;
  EXPECT_NE(line.find("4GiB"), std::string::npos) << "all that it maps: " << text;
  const Json json = sessions_json(list)["sessions"][0]["shared"][0];
  EXPECT_EQ(json["charged"], kGiB);
  EXPECT_EQ(json["imported"], 3 * kGiB);
  EXPECT_EQ(text.find("train/fabric"), std::string::npos) << text;
  shared.set_fabric(2 * kGiB);
  const std::string given = sessions_text(list, noon());
  EXPECT_NE(given.find("2GiB", given.find("train/fabric")), std::string::npos) << given;
  EXPECT_EQ(sessions_json(list)["sessions"][0]["shared"][0]["fabric"], 2 * kGiB);
  EXPECT_EQ(given.find("train/declared"), std::string::npos) << given;
  shared.set_declared(5 * kGiB);
  const std::string declared = sessions_text(list, noon());
  EXPECT_NE(declared.find("5GiB", declared.find("train/declared")), std::string::npos) << declared;
}

TEST(SessionsView, ShowsMemoryOfTheHost) {
  v1::ListSessionsResponse list = sessions();
  v1::SessionInfo& session = *list.mutable_sessions(0);
  v1::SliceInfo& slice = *session.add_slices();
  slice.set_device("host");
  slice.set_charged(3 * kGiB);
  v1::SharedMemory& shared = *session.add_shared();
  shared.set_device("host");
  shared.set_declared(kGiB);
  const HostMemories host{{session.id(), {.virt = 9 * kGiB, .resident = 7 * kGiB, .shared = 5 * kGiB}}};
  const Json json = sessions_json(list, {}, false, host)["sessions"][0]["host"];
  EXPECT_EQ(json, Json({{"lent", 3 * kGiB}, {"pinned", kGiB}, {"resident", 7 * kGiB}, {"shared", 5 * kGiB}}));
  EXPECT_TRUE(sessions_json(list)["sessions"][0]["host"]["shared"].is_null()) << "not told";
  const std::string text = sessions_text(list, noon(), {}, {}, false, host);
  EXPECT_NE(text.find("  SHR\n"), std::string::npos) << text;
  EXPECT_EQ(text.find(" 5GiB\n"), text.rfind(" 5GiB\n")) << "the process's, once: " << text;
  EXPECT_NE(text.find(" 5GiB\n"), std::string::npos) << text;
  EXPECT_EQ(sessions_text(list, noon()).find("SHR"), std::string::npos) << "nothing is told";
  EXPECT_EQ(sessions_text(list, noon(), {}, {.columns = 80}, false, host).find("SHR"), std::string::npos);
}

TEST(TenantsView, ShowsPinnedMemoryOfTheHost) {
  v1::ListTenantsResponse list;
  for (const char* const device : {"GPU-0", "host"}) {
    v1::TenantUsage& one = *list.add_tenants();
    one.set_tenant("ann");
    one.set_device(device);
    one.set_outside(device == std::string("host") ? 3 * kGiB : 2 * kGiB);
  }
  const std::string text = tenants_text(list);
  EXPECT_NE(text.find("PINNED"), std::string::npos) << text;
  EXPECT_NE(text.find("3GiB"), std::string::npos) << text;
  EXPECT_EQ(text.find("2GiB"), std::string::npos) << "contexts of a GPU are not pinned: " << text;
}

// In the listings of jobs and of tenants.
TEST(JobsView, ShowsPinnedMemoryAndTheLimitOfTheHost) {
  v1::ListTenantsResponse tenants;
  v1::ListJobsResponse list;
  v1::JobInfo& job = *list.add_jobs();
  for (const char* const device : {"GPU-0", "host"}) {
    v1::TenantUsage& tenant = *tenants.add_tenants();
    tenant.set_tenant("ann");
    tenant.set_device(device);
    v1::JobUsage& one = *job.add_devices();
    one.set_device(device);
    one.set_limit(device == std::string("host") ? 5 * kGiB : kNoJobLimit);
  }
  job.set_tenant("ann");
  EXPECT_NE(jobs_text(list).find("5GiB"), std::string::npos) << "a limit is shown before it is used";
  job.mutable_devices(1)->set_charged(4 * kGiB);
  job.mutable_devices(1)->set_outside(3 * kGiB);
  EXPECT_NE(tenants_text(tenants, {}, list).find("3GiB"), std::string::npos);
  EXPECT_EQ(jobs_json(list)[0]["devices"][1]["outside"], 3 * kGiB);
}

TEST(TenantsView, ShowsABarOnATerminalOnly) {
  v1::ListTenantsResponse list;
  v1::TenantUsage* tenant = list.add_tenants();
  tenant->set_tenant("red");
  tenant->set_limit(10 * kGiB);
  tenant->set_guarantee(5 * kGiB);
  tenant->set_charged(5 * kGiB);
  EXPECT_NE(tenants_text(list, {.is_terminal = true}).find("[##########|..........]"), std::string::npos);
  EXPECT_EQ(tenants_text(list).find('['), std::string::npos);
  EXPECT_EQ(tenants_json(list)["tenants"][0]["limit"], 10 * kGiB);
}

v1::TenantUsage& add_tenant(v1::ListTenantsResponse& list, const std::string& name,
                            const std::string& parent) {
  v1::TenantUsage& tenant = *list.add_tenants();
  tenant.set_tenant(name);
  tenant.set_parent(parent);
  tenant.set_device("GPU-1");
  return tenant;
}

TEST(TenantsView, ShowsThoseWhoBelongToAnotherBelowIt) {
  v1::ListTenantsResponse list;
  add_tenant(list, "ann", "lab");
  add_tenant(list, "bob", "");
  add_tenant(list, "carl", "team");
  add_tenant(list, "lab", "");
  add_tenant(list, "team", "lab");
  const std::string text = tenants_text(list);
  const auto line = [&](const std::string& name) { return text.find("\n" + name + " "); };
  for (const char* name : {"bob", "lab", "  ann", "  team", "    carl"})
    ASSERT_NE(line(name), std::string::npos) << text;
  EXPECT_LT(line("lab"), line("  ann"));
  EXPECT_LT(line("  ann"), line("  team"));
  EXPECT_LT(line("  team"), line("    carl"));
  EXPECT_EQ(tenants_json(list)["tenants"][0]["parent"], "lab");
  EXPECT_TRUE(tenants_json(list)["tenants"][1]["parent"].is_null());
}

TEST(TenantsView, ShowsTheLimitOfAParentThatIsSmaller) {
  v1::ListTenantsResponse list;
  add_tenant(list, "ann", "lab").set_limit(30 * kGiB);
  add_tenant(list, "bob", "lab").set_limit(7 * kGiB);
  add_tenant(list, "lab", "").set_limit(20 * kGiB);
  const std::string text = tenants_text(list);
  EXPECT_EQ(text.find("30GiB"), std::string::npos) << text;
  EXPECT_NE(text.find("20GiB", text.find("  ann")), std::string::npos) << text;
  EXPECT_NE(text.find("7GiB"), std::string::npos) << text;
  EXPECT_EQ(tenants_json(list)["tenants"][0]["limit"], 30 * kGiB) << "as it is configured";
}

TEST(JobsView, ShowsTheLimitOfATenantAboveThatIsSmaller) {
  v1::ListTenantsResponse tenants;
  add_tenant(tenants, "ann", "lab").set_limit(30 * kGiB);
  add_tenant(tenants, "lab", "").set_limit(12 * kGiB);
  v1::ListJobsResponse jobs;
  for (const std::uint64_t limit : {20 * kGiB, 7 * kGiB, kNoJobLimit}) {
    v1::JobInfo& job = *jobs.add_jobs();
    job.set_tenant("ann");
    v1::JobUsage& usage = *job.add_devices();
    usage.set_device("GPU-1");
    usage.set_limit(limit);
  }
  bound_limits(jobs, tenants);
  const Json json = jobs_json(jobs);
  EXPECT_EQ(json[0]["devices"][0]["limit"], 12 * kGiB);
  EXPECT_EQ(json[1]["devices"][0]["limit"], 7 * kGiB);
  EXPECT_TRUE(json[2]["devices"][0]["limit"].is_null()) << "it has none";
}

TEST(TenantsView, ShowsTheQuarantinedMemoryOfJobs) {
  v1::ListTenantsResponse list;
  add_tenant(list, "ann", "");
  v1::ListJobsResponse jobs;
  v1::JobInfo& job = *jobs.add_jobs();
  job.set_id(5);
  job.set_tenant("ann");
  v1::JobUsage& usage = *job.add_devices();
  usage.set_device("GPU-1");
  usage.set_charged(3 * kGiB);
  usage.set_quarantined(2 * kGiB);
  const std::string text = tenants_text(list, {}, jobs);
  EXPECT_NE(text.find("2GiB", text.find("job 5")), std::string::npos) << text;
}

TEST(TenantsView, ShowsBurstAndDebtWhereThereIsAny) {
  v1::ListTenantsResponse list;
  add_tenant(list, "ann", "");
  v1::TenantUsage& bob = add_tenant(list, "bob", "");
  EXPECT_EQ(tenants_text(list).find("BURST"), std::string::npos);
  EXPECT_EQ(tenants_text(list).find("DEBT"), std::string::npos);
  bob.set_debt(3 * kGiB);
  EXPECT_NE(tenants_text(list).find("DEBT"), std::string::npos);
  EXPECT_NE(tenants_text(list).find("3GiB"), std::string::npos);
  EXPECT_EQ(tenants_text(list).find("BURST"), std::string::npos);
}

TEST(UsageBar, StaysInItsBounds) {
  EXPECT_EQ(usage_bar(0, 0, 0), "[....................]");
  EXPECT_EQ(usage_bar(20, 0, 10), "[####################]");
  EXPECT_EQ(usage_bar(1, 10, 10), "[##..................]");
}

TEST(WhyView, TellsWhatWasTakenPastTheBroker) {
  v1::ExplainResponse why;
  why.set_tenant("ann");
  v1::Standing& standing = *why.add_devices();
  standing.set_charged(2 * kGiB);
  EXPECT_EQ(why_text(why).find("past the broker"), std::string::npos) << why_text(why);
  standing.set_past_broker(kGiB);
  EXPECT_NE(why_text(why).find("of that, taken past the broker without a word: 1GiB; `gpumem reconcile`"),
            std::string::npos)
      << why_text(why);
  EXPECT_EQ(why_json(why)["devices"][0]["past_broker"], kGiB);
  EXPECT_EQ(why_json(why)["newcomer"], false);
}

TEST(WhyView, TellsTheLastDenialsAndSignalsWhereNothingWaits) {
  v1::ExplainResponse why;
  why.set_tenant("ann");
  std::vector<v1::Event> denials(3);
  for (v1::Event& event : denials) event.set_kind("denied");
  denials[0].set_time("2030-01-02T11:59:57Z");
  denials[0].set_words("tenant 'ann' asked for too much");
  denials[2].set_kind("terminating");
  denials[2].set_pid(7);
  denials[2].set_time("2030-01-02T11:57:00Z");
  denials[2].set_words("others need the memory");
  denials[1].set_time("2030-01-02T11:58:00Z");
  denials[1].set_bytes(kGiB);
  denials[1].set_device("GPU-0");
  EXPECT_EQ(why_text(why, denials, noon()),
            "tenant ann\n\nno request waits\n"
            "denied 3s ago: tenant 'ann' asked for too much\n"
            "denied 2m 0s ago: 1GiB on GPU-0\n"
            "SIGTERM sent to pid 7 3m 0s ago: others need the memory\n"
            "  see `gpumem events --no-follow --tenant ann`\n");
  const Json json = why_json(why, denials);
  ASSERT_EQ(json["denials"].size(), 2U);
  EXPECT_EQ(json["denials"][0]["words"], "tenant 'ann' asked for too much");
  EXPECT_TRUE(json["denials"][1]["words"].is_null());
  ASSERT_EQ(json["signals"].size(), 1U);
  EXPECT_EQ(json["signals"][0]["signal"], "SIGTERM");
  why.set_tenant("my lab");
  EXPECT_NE(why_text(why, denials, noon()).find("--tenant 'my lab'`"), std::string::npos);
}

TEST(WhyView, OfAUserWithoutASessionTellsTheQuotaThatWouldHold) {
  v1::ExplainResponse why;
  why.set_tenant("uid:1999990000");
  why.set_newcomer(true);
  v1::Standing& standing = *why.add_devices();
  standing.set_device("GPU-0");
  standing.set_limit(8 * kGiB);
  standing.set_available(kGiB);
  standing.set_weight(100);
  EXPECT_EQ(why_text(why),
            "tenant uid:1999990000 has no session now; what [default] says would hold\n\n"
            "GPU-0\n  would have at most 8GiB; guarantee 0B, weight 100, priority 0\n"
            "  could be granted now: 1GiB\n\nno request waits\n");
  EXPECT_EQ(why_json(why)["newcomer"], true);
}

TEST(NearestName, IsOneThatMayHaveBeenMeant) {
  EXPECT_EQ(nearest_name("gruop", {"private", "group", "public"}, 2), "group");
  EXPECT_EQ(nearest_name("publik", {"private", "group", "public"}, 2), "public");
  EXPECT_EQ(nearest_name("bob", {"private", "group", "public"}, 2), "");
}

TEST(Monitor, SaysThatThereIsNoBroker) {
  const client::test::TemporaryFolder folder;
  const auto monitor = Monitor::connect(folder.path());
  ASSERT_FALSE(monitor);
  EXPECT_EQ(monitor.error().code, Code::kUnavailable);
}

// Either this side gives up, or gRPC does: its words are not shown.
TEST(Monitor, TellsABrokerThatDoesNotAnswerFromNone) {
  const client::test::TemporaryFolder folder;
  const std::filesystem::path socket = folder.path() / kApiSocketName;
  const std::vector<grpc::Status> silences{
      {grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"},
      {grpc::StatusCode::UNAVAILABLE, "failed to connect to all addresses; last error: UNKNOWN: timed out"}};
  for (const grpc::Status& status : silences)
    EXPECT_EQ(call_error(status, socket).code, Code::kUnavailable) << "there is none any more";
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(bind_unix(listener.get(), socket) == 0 && ::listen(listener.get(), 8) == 0);
  for (const grpc::Status& status : silences) {
    const Error error = call_error(status, socket);
    EXPECT_EQ(error.code, Code::kDeadlineExceeded);
    EXPECT_EQ(error.message,
              "the broker at " + socket.string() + " does not answer; see systemctl status gpumemd");
  }
  const Error starting = call_error({grpc::StatusCode::UNAVAILABLE, "it reads its journal"}, socket);
  EXPECT_EQ(starting.code, Code::kUnavailable);
  EXPECT_NE(starting.message.find("it reads its journal"), std::string::npos) << "the broker's own words";
}

TEST(Check, FailsWhereThereIsNoBrokerAndSaysHowToMendIt) {
  const client::test::TemporaryFolder folder;
  std::vector<Finding> findings;
  check_broker({folder.path() / "missing"}, findings);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].name, "runtime_folder");
  EXPECT_EQ(findings[0].state, Finding::State::kFail);
  EXPECT_NE(findings[0].mend.find("systemctl"), std::string::npos);
  EXPECT_FALSE(all_well(findings));
}

TEST(Check, NamesTheBrokerFirstIfTheDriverIsNotKnownWithoutIt) {
  const client::test::TemporaryFolder folder;
  const auto findings = run_checks({folder.path() / "missing"});
  ASSERT_EQ(findings.size(), 4U) << findings_text(findings);
  EXPECT_EQ(findings[1].name, "runtime_folder");
  EXPECT_EQ(findings[1].state, Finding::State::kFail);
  for (std::size_t i = 2; i < 4; ++i) {
    EXPECT_EQ(findings[i].state, Finding::State::kWarn) << findings[i].name;
    EXPECT_EQ(findings[i].found, "not known until the broker answers");
  }
}

TEST(Check, StopsAtSocketsThatAreNotThere) {
  const client::test::TemporaryFolder folder;
  std::vector<Finding> findings;
  check_broker({folder.path()}, findings);
  ASSERT_EQ(findings.size(), 3U);
  EXPECT_EQ(findings[0].state, Finding::State::kOk);
  EXPECT_EQ(findings[1].name, "lane_socket");
  EXPECT_EQ(findings[1].state, Finding::State::kFail);
  EXPECT_EQ(findings[2].name, "api_socket");
}

TEST(Check, PrintsEveryFindingWithWhatMendsIt) {
  const std::vector<Finding> findings{{"open_files", Finding::State::kWarn, "256", "ulimit -n 1024"},
                                      {"broker", Finding::State::kFail, "gone", ""}};
  EXPECT_EQ(findings_text(findings),
            "warn  open files  256\n"
            "                  to mend: ulimit -n 1024\n"
            "FAIL  broker      gone\n");
  const Json json = findings_json(findings);
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["checks"][0]["state"], "warn");
  EXPECT_EQ(json["checks"][1]["state"], "fail");
}

}  // namespace
}  // namespace gpumem::cli::test
