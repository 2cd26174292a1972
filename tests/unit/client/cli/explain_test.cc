// The sum that `gpumem explain` makes of ledgers and a look at the driver, and what it shows of it.
#include "client/cli/explain/explain.h"

#include <gmock/gmock.h>
#include <sstream>

#include "base/text/time_format.h"

namespace gpumem::cli::test {
namespace {

constexpr std::uint64_t kMebi = std::uint64_t{1} << 20;
constexpr const char* kDevice = "GPU-1";

v1::TenantUsage tenant(const std::string& name, const std::string& parent = {},
                       std::uint64_t limit = 64 * kMebi) {
  v1::TenantUsage usage;
  usage.set_tenant(name);
  usage.set_parent(parent);
  usage.set_device(kDevice);
  usage.set_limit(limit);
  return usage;
}

v1::SessionInfo session(std::uint64_t id, std::int64_t pid, const std::string& tenant, std::uint64_t held,
                        std::uint64_t returning = 0, std::uint64_t quarantined = 0) {
  v1::SessionInfo info;
  info.set_id(id);
  info.set_pid(pid);
  info.set_uid(1000);
  info.set_tenant(tenant);
  info.set_command("train");
  v1::SessionMemory& memory = *info.add_memory();
  memory.set_device(kDevice);
  memory.set_held(held);
  memory.set_returning(returning);
  memory.set_quarantined(quarantined);
  return info;
}

/// The ledger of a device of 100 MiB, of which 64 MiB are the pool.
Ledger ledger(const std::vector<v1::SessionInfo>& sessions, const std::vector<v1::TenantUsage>& tenants) {
  Ledger books;
  v1::DeviceStatus& device = *books.status.add_devices();
  device.set_uuid(kDevice);
  device.set_total(100 * kMebi);
  device.set_pool(64 * kMebi);
  device.set_created(64 * kMebi);
  for (const v1::SessionInfo& one : sessions) {
    *books.sessions.add_sessions() = one;
    device.set_active(device.active() + one.memory(0).held());
    device.set_returning(device.returning() + one.memory(0).returning());
    device.set_quarantined(device.quarantined() + one.memory(0).quarantined());
  }
  for (const v1::TenantUsage& one : tenants) *books.tenants.add_tenants() = one;
  return books;
}

/// A look at the same device, where so much is used.
v1::Reconciliation look_at(std::uint64_t used) {
  v1::Reconciliation look;
  look.set_device(kDevice);
  look.set_seen("2030-01-02T12:00:00Z");
  look.set_used(used);
  look.set_extents(64 * kMebi);
  v1::Accounting& account = *look.mutable_accounting();
  account.set_total(100 * kMebi);
  account.set_free(98 * kMebi - used);
  account.set_tells_processes(true);
  return look;
}

v1::SeenProcess& add_process(v1::Reconciliation& look, std::int64_t pid, std::uint64_t context,
                             std::uint64_t past_broker) {
  v1::Accounting& account = *look.mutable_accounting();
  v1::SeenProcess& one = *account.add_processes();
  one.set_pid(pid);
  one.set_uid(1000);
  one.set_command("train");
  one.set_used(context + past_broker);
  one.set_context(context);
  one.set_past_broker(past_broker);
  account.set_contexts(account.contexts() + context);
  account.set_past_broker(account.past_broker() + past_broker);
  return one;
}

/// A line with known parts is the sum of them.
void expect_sums(const Line& line) {
  std::int64_t sum = 0;
  for (const Line& part : line.parts) {
    sum += part.bytes.value_or(0);
    expect_sums(part);
  }
  if (!line.bytes || line.parts.empty()) return;
  EXPECT_EQ(*line.bytes, sum) << line.key << " " << line.subject;
}

std::int64_t bytes(const Line& line) { return line.bytes.value_or(-999); }
const Line& used(const Account& account) { return account.sum.part("used"); }
const Line& pool(const Account& account) { return used(account).part("pool"); }

std::string text_of(const Account& account) {
  Layout layout;
  layout.devices = {kDevice};
  return account_text(account, {}, 3, *parse_rfc3339("2030-01-02T12:00:05Z"), layout);
}

struct Case {
  const char* name;
  std::vector<v1::SessionInfo> sessions;
  std::uint64_t used = 64 * kMebi;
  std::int64_t unexplained = 0;
  const char* words = "";  ///< in the text
};

class AccountSums : public testing::TestWithParam<Case> {};

TEST_P(AccountSums, AddUpToTheByte) {
  const Ledger books = ledger(GetParam().sessions, {tenant("ann"), tenant("bob")});
  const Account account = account_of(books, look_at(GetParam().used), books);
  expect_sums(account.sum);
  EXPECT_TRUE(account.is_settled);
  EXPECT_EQ(bytes(account.sum), 100 * static_cast<std::int64_t>(kMebi));
  EXPECT_EQ(bytes(account.sum.part("driver_reserved")), 2 * static_cast<std::int64_t>(kMebi));
  EXPECT_EQ(bytes(used(account).part("unexplained")), GetParam().unexplained);
  EXPECT_THAT(text_of(account), testing::HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(
    OfADevice, AccountSums,
    testing::Values(Case{"Idle", {}},
                    Case{"SeveralTenants",
                         {session(1, 7, "ann", 3 * kMebi), session(2, 8, "bob", 5), session(3, 7, "ann", 1)}},
                    Case{"Returning", {session(1, 7, "ann", kMebi, 2 * kMebi)}},
                    Case{"Quarantined",
                         {session(1, 7, "ann", kMebi, 0, 3)},
                         64 * kMebi,
                         0,
                         "Quarantined: not lent any more"},
                    Case{"TenantThatIsNotListed", {session(1, 7, "eve", kMebi)}, 64 * kMebi, 0, "not listed"},
                    Case{"WithoutAPid", {session(1, 0, "ann", kMebi)}, 64 * kMebi, 0, "pid not told"},
                    Case{"Unexplained", {}, 64 * kMebi + 1, 1, "Unexplained: in use"},
                    Case{"NegativeUnexplained", {}, 64 * kMebi - 1, -1, "-1B"}),
    [](const auto& info) { return info.param.name; });

TEST(AccountTest, ALeafTenantStandsBelowItsParentWhichHasItsBytes) {
  const Ledger books = ledger({session(1, 7, "ann", 3), session(2, 8, "lab", 4), session(3, 9, "bob", 5)},
                              {tenant("lab"), tenant("ann", "lab"), tenant("bob"), tenant("idle", "lab")});
  const Account account = account_of(books, look_at(64 * kMebi), books);
  expect_sums(account.sum);
  const Line& lent = pool(account).part("lent");
  ASSERT_EQ(lent.parts.size(), 2U);
  EXPECT_EQ(lent.parts[1].subject, "bob");
  const Line& lab = lent.parts[0];
  EXPECT_EQ(lab.bytes, 7);
  ASSERT_EQ(lab.parts.size(), 2U);
  EXPECT_EQ(lab.parts[0].subject, "8");
  EXPECT_EQ(lab.parts[1].subject, "ann");
  EXPECT_EQ(lab.parts[1].parts[0].name, "7 train");
}

TEST(AccountTest, EachLineShowsHowMuchMoved) {
  const auto tenants = {tenant("ann"), tenant("bob")};
  const Ledger before = ledger({session(1, 7, "ann", 8), session(2, 8, "bob", 5)}, tenants);
  const Ledger after = ledger({session(1, 7, "ann", 8 + 3)}, tenants);
  const Account account = account_of(before, look_at(64 * kMebi), after);
  expect_sums(account.sum);
  EXPECT_FALSE(account.is_settled);
  EXPECT_EQ(pool(account).part("idle").moved, 2);
  const Line& lent = pool(account).part("lent");
  EXPECT_EQ(lent.moved, -2);
  EXPECT_EQ(lent.parts[0].moved, 3);
  EXPECT_EQ(lent.parts[1].subject, "bob") << "although it has nothing any more";
  EXPECT_EQ(lent.parts[1].bytes, 0);
  EXPECT_EQ(lent.parts[1].parts[0].moved, -5);
  EXPECT_THAT(text_of(account), testing::ContainsRegex("lent +11B +-2B\n"));
}

TEST(AccountTest, IsNotSettledWhileDriverCallsAreUnderWayOrExtentsCameSince) {
  const Ledger books = ledger({}, {});
  v1::Reconciliation look = look_at(64 * kMebi);
  look.mutable_accounting()->set_moving(2 * kMebi);
  EXPECT_FALSE(account_of(books, look, books).is_settled);
  EXPECT_THAT(text_of(account_of(books, look, books)), testing::HasSubstr("up to 2MiB"));
  look = look_at(64 * kMebi);
  look.set_extents(62 * kMebi);
  EXPECT_FALSE(account_of(books, look, books).is_settled);
}

TEST(AccountTest, NamesTheProcessesOfContextsAndOfMemoryPastTheBroker) {
  const Ledger books = ledger({}, {});
  v1::Reconciliation look = look_at(64 * kMebi + 12);
  add_process(look, 7, 4, 0).set_client(true);
  add_process(look, 8, 0, 5).set_tenant("bob");
  add_process(look, 9, 0, 3);
  const Account account = account_of(books, look, books);
  expect_sums(account.sum);
  EXPECT_EQ(bytes(used(account).part("unexplained")), 0);
  EXPECT_EQ(used(account).part("contexts").parts[0].subject, "7");
  const Line& past = used(account).part("past_broker");
  EXPECT_EQ(past.bytes, 8);
  EXPECT_EQ(past.parts[0].name, "8 train, charged to bob");
  EXPECT_EQ(past.parts[1].name, "9 train, charged to nobody");
}

TEST(AccountTest, WithoutProcessesOfTheDriverContextsAreNotToldAndUnexplained) {
  const Ledger books = ledger({}, {});
  v1::Reconciliation look = look_at(64 * kMebi + 5);
  look.mutable_accounting()->set_tells_processes(false);
  const Account account = account_of(books, look, books);
  expect_sums(account.sum);
  EXPECT_FALSE(used(account).part("contexts").bytes);
  EXPECT_FALSE(used(account).part("past_broker").bytes);
  EXPECT_EQ(used(account).part("unexplained").bytes, 5);
  EXPECT_THAT(text_of(account), testing::HasSubstr("not told"));
  EXPECT_TRUE(account_json(account)["sum"]["parts"][2]["parts"][1]["bytes"].is_null());
}

TEST(AccountTest, ATotalThatIsNotToldIsNone) {
  const Ledger books = ledger({}, {});
  v1::Reconciliation look = look_at(64 * kMebi);
  look.mutable_accounting()->set_total(0);
  const Account account = account_of(books, look, books);
  EXPECT_FALSE(account.sum.bytes);
  EXPECT_FALSE(account.sum.part("driver_reserved").bytes);
  EXPECT_EQ(used(account).part("unexplained").bytes, 0);
}

TEST(AccountTest, WithoutALookThePoolIsShownAndNothingOfTheDriver) {
  const Ledger books = ledger({session(1, 7, "ann", kMebi)}, {tenant("ann")});
  v1::Reconciliation look;
  look.set_device(kDevice);
  look.set_problem("no library");
  const Account account = account_of(books, look, books);
  expect_sums(account.sum);
  EXPECT_EQ(pool(account).bytes, 64 * static_cast<std::int64_t>(kMebi));
  EXPECT_FALSE(used(account).bytes);
  EXPECT_FALSE(used(account).part("unexplained").bytes);
  EXPECT_THAT(text_of(account), testing::HasSubstr("not known: no library"));
}

TEST(AccountTest, NamesOfOthersFitAndHarmNoTerminal) {
  v1::SessionInfo hostile = session(1, 7, "\033[2Jlab\n" + std::string(200, 'x'), kMebi);
  hostile.set_command("\u202Etrain\r");
  const Ledger books = ledger({hostile}, {tenant(hostile.tenant())});
  const Account account = account_of(books, look_at(64 * kMebi), books);
  expect_sums(account.sum);
  EXPECT_EQ(pool(account).part("lent").parts.size(), 1U);
  std::istringstream lines(text_of(account));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U) << line;
    EXPECT_TRUE(std::ranges::all_of(line, [](char letter) { return letter >= ' ' && letter <= '~'; }))
        << line;
  }
}

TEST(AccountTest, LongListsShowEveryDigit) {
  const Ledger books = ledger({}, {});
  Layout layout;
  layout.is_long = true;
  EXPECT_THAT(
      account_text(account_of(books, look_at(64 * kMebi - 1), books), {}, 1, {}, layout),
      testing::AllOf(testing::HasSubstr("104,857,600\n"), testing::ContainsRegex("unexplained +-1\n")));
}

// ---- Processes and jobs ----

constexpr const char* kStatus =
    "Name:\ttrain\nUid:\t0\t1000\t0\t0\nVmPeak:\t     900 kB\nVmSize:\t     800 kB\nVmRSS:\t      90 kB\n"
    "RssAnon:\t      20 kB\nRssFile:\t      60 kB\nRssShmem:\t      10 kB\n";

TEST(HostMemoryTest, IsReadFromTheKernelsStatusOfThatProcessAlone) {
  const auto memory = host_memory_in(kStatus, "train", 1000);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->virt, 800U << 10);
  EXPECT_EQ(memory->resident, 90U << 10);
  EXPECT_EQ(memory->shared, 70U << 10);
  EXPECT_TRUE(host_memory_in(kStatus, "", 5));
  EXPECT_FALSE(host_memory_in(kStatus, "train", 1001)) << "another user's";
  EXPECT_FALSE(host_memory_in(kStatus, "other", 1000)) << "another program";
  EXPECT_FALSE(host_memory_in("", "train", 1000));
  EXPECT_FALSE(host_memory_in("Name:\tkthreadd\nUid:\t0\t0\t0\t0\n", "kthreadd", 0)) << "without memory";
}

/// A session whose page tells its figures.
v1::SessionInfo telling(std::uint64_t id, std::int64_t pid, std::uint64_t committed, std::uint64_t in_use) {
  v1::SessionInfo info = session(id, pid, "ann", committed);
  v1::SessionMemory& memory = *info.mutable_memory(0);
  memory.set_told(true);
  memory.set_reserved(64 * kMebi);
  memory.set_committed(committed);
  memory.set_in_use(in_use);
  return info;
}

Program program_of(const Subject& subject, const Ledger& books, const v1::Reconciliation& look,
                   const v1::ListJobsResponse& jobs = {}) {
  v1::ReconcileResponse looks;
  *looks.add_devices() = look;
  Program program{.subject = subject,
                  .members = members_of(subject, books.sessions, looks),
                  .uses = {},
                  .accounts = {account_of(books, look, books)},
                  .status = books.status,
                  .job = jobs.jobs().empty() ? v1::JobInfo() : jobs.jobs(0)};
  program.uses = uses_of(subject, program.members, books, jobs, looks);
  return program;
}

// The words of the refusal; else what is named, as it can be given.
std::string named(std::int64_t number) {
  v1::GetStatusResponse status;
  for (const char* uuid : {"GPU-0", "GPU-1", "GPU-2"}) status.add_devices()->set_uuid(uuid);
  v1::ListJobsResponse jobs;
  for (const std::uint64_t id : {1, 50}) jobs.add_jobs()->set_id(id);
  v1::ListSessionsResponse sessions;
  for (const std::int64_t pid : {0, 50, 60}) sessions.add_sessions()->set_pid(pid);
  const auto named = named_by(number, status, jobs, sessions);
  if (!named) return named.error().message;
  if (const auto* const device = std::get_if<std::string>(&*named)) return *device;
  const auto subject = std::get<Subject>(*named);
  return subject.job != 0 ? "job:" + std::to_string(subject.job) : "pid:" + std::to_string(subject.pid);
}

TEST(SubjectTest, ANumberWithSeveralMeaningsIsRefused) {
  EXPECT_EQ(named(0), "GPU-0");
  EXPECT_EQ(named(2), "GPU-2");
  EXPECT_EQ(named(3), "pid:3") << "there is no fourth device";
  EXPECT_EQ(named(60), "pid:60");
  EXPECT_EQ(named(1), "'1' has several meanings: give one of gpu1, job:1");
  EXPECT_EQ(named(50), "'50' has several meanings: give one of pid:50, job:50");
  EXPECT_FALSE(named_by(0, {}, {}, {}));
}

TEST(ProgramTest, RelatesLentCommittedUsedAndCached) {
  const Ledger books =
      ledger({telling(1, 7, 10 * kMebi, 4 * kMebi), session(2, 8, "ann", kMebi)}, {tenant("ann")});
  v1::Reconciliation look = look_at(70 * kMebi);
  add_process(look, 7, 6 * kMebi, 0).set_client(true);
  const Program program = program_of({.pid = 7}, books, look);
  ASSERT_EQ(program.uses.size(), 1U);
  const DeviceUse& use = program.uses[0];
  expect_sums(use.sum);
  EXPECT_EQ(use.sum.bytes, 16 * static_cast<std::int64_t>(kMebi));
  EXPECT_EQ(use.sum.part("lent").part("committed").part("cached").bytes,
            6 * static_cast<std::int64_t>(kMebi));
  EXPECT_EQ(use.listed, 6 * kMebi);
  EXPECT_EQ(use.limit, 64 * kMebi);
  const std::string text = program_text(program, {});
  for (const char* words :
       {"Why different amounts", "Why so much virtual memory", "Why does nvidia-smi", "not told by"})
    EXPECT_THAT(text, testing::HasSubstr(words));
}

TEST(ProgramTest, FiguresThatItsPageDoesNotTellAreNotTold) {
  v1::SessionInfo silent = session(1, 7, "ann", kMebi);
  silent.mutable_memory(0)->set_told(true);  // a page of zeros
  const Ledger books = ledger({silent}, {tenant("ann")});
  const Program program = program_of({.pid = 7}, books, look_at(64 * kMebi));
  EXPECT_FALSE(program.uses.at(0).is_told);
  EXPECT_FALSE(program.uses.at(0).sum.part("lent").part("committed").bytes);
  EXPECT_TRUE(program_json(program)["devices"][0]["addresses"].is_null());
  EXPECT_TRUE(program_json(program)["processes"][0]["virt"].is_null());
}

/// Job 5, with this limit of the device.
v1::ListJobsResponse job_of_ann(std::uint64_t limit) {
  v1::ListJobsResponse jobs;
  v1::JobInfo& job = *jobs.add_jobs();
  job.set_id(5);
  job.set_tenant("ann");
  v1::JobUsage& usage = *job.add_devices();
  usage.set_device(kDevice);
  usage.set_limit(limit);
  return jobs;
}

TEST(ProgramTest, AJobIsTheSumOfItsProcessesWithItsOwnLimit) {
  v1::SessionInfo one = telling(1, 7, 10, 4), two = telling(2, 8, 6, 6);
  one.set_job(5);
  two.set_job(5);
  const Ledger books = ledger({one, two, telling(3, 9, 100, 100)}, {tenant("ann")});
  const v1::ListJobsResponse jobs = job_of_ann(32 * kMebi);
  const Program program = program_of({.job = 5}, books, look_at(64 * kMebi), jobs);
  EXPECT_EQ(program.members.size(), 2U);
  expect_sums(program.uses.at(0).sum);
  EXPECT_EQ(program.uses.at(0).sum.bytes, 16);
  EXPECT_EQ(program.uses.at(0).limit, 32 * kMebi);
  EXPECT_THAT(program_text(program, {}), testing::StartsWith("job 5, 2 processes, tenant ann\n"));
}

TEST(ProgramTest, TheSmallestLimitOfAJobAndItsTenantsIsShown) {
  for (const auto& [of_job, of_lab] :
       {std::pair(32 * kMebi, 12 * kMebi), {12 * kMebi, 32 * kMebi}, {kNoJobLimit, 12 * kMebi}}) {
    v1::SessionInfo one = telling(1, 7, 10, 4);
    one.set_job(5);
    const Ledger books = ledger({one}, {tenant("ann", "lab"), tenant("lab", {}, of_lab)});
    const v1::ListJobsResponse jobs = job_of_ann(of_job);
    for (const Subject& subject : {Subject{.pid = 7}, Subject{.job = 5}})
      EXPECT_EQ(program_of(subject, books, look_at(64 * kMebi), jobs).uses.at(0).limit, 12 * kMebi);
  }
}

TEST(ProgramTest, AJobThatHasOnlyReservedHasThatAndItsLimit) {
  v1::ListJobsResponse jobs;
  v1::JobInfo& job = *jobs.add_jobs();
  job.set_id(5);
  v1::JobUsage& usage = *job.add_devices();
  usage.set_device(kDevice);
  usage.set_limit(32 * kMebi);
  usage.set_reserved(8 * kMebi);
  const Program program = program_of({.job = 5}, ledger({}, {}), look_at(64 * kMebi), jobs);
  ASSERT_EQ(program.uses.size(), 1U);
  EXPECT_EQ(program.uses[0].limit, 32 * kMebi);
  EXPECT_THAT(program_text(program, {}), testing::HasSubstr("reserved for the job, not lent"));
}

TEST(ProgramTest, AJobInAnotherPidNamespaceHasNothingOfProcessesThatAreGone) {
  v1::SessionInfo session = telling(1, 0, 10, 4);
  session.set_job(5);
  const Ledger books = ledger({session}, {tenant("ann")});
  v1::Reconciliation look = look_at(64 * kMebi);
  add_process(look, 0, 6 * kMebi, 0);
  v1::ListJobsResponse jobs;
  jobs.add_jobs()->set_id(5);
  const Program program = program_of({.job = 5}, books, look, jobs);
  EXPECT_EQ(program.uses.at(0).sum.bytes, 10);
  EXPECT_FALSE(program.uses[0].listed || program.uses[0].context) << "the driver cannot name the process";
}

TEST(ProgramTest, AProcessWithoutASessionHasWhatTheDriverSaysOfIt) {
  const Ledger books = ledger({}, {});
  v1::Reconciliation look = look_at(64 * kMebi + 5);
  add_process(look, 9, 0, 5);
  const Program program = program_of({.pid = 9}, books, look);
  EXPECT_EQ(program.members.at(0).command, "train");
  EXPECT_EQ(program.uses.at(0).sum.part("past_broker").bytes, 5);
}

}  // namespace
}  // namespace gpumem::cli::test
