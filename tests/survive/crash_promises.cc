// What holds after whatever has died, seen from outside.
#include <gtest/gtest.h>

#include "tests/support/eventually.h"
#include "tests/survive/crash_scenario.h"

namespace gpumem::test {
namespace {

// What the broker shows at one moment, if it is there.
struct Books {
  v1::DeviceStatus device;
  std::vector<v1::TenantUsage> tenants;
  std::vector<v1::SessionInfo> sessions;
};
std::optional<Books> read_books(const std::string& folder) {
  auto monitor = cli::Monitor::connect(folder);
  if (!monitor) return std::nullopt;
  const auto status = monitor->status();
  const auto tenants = monitor->tenants();
  const auto sessions = monitor->sessions();
  if (!status || !tenants || !sessions || status->devices().empty()) return std::nullopt;
  return Books{status->devices(0),
               {tenants->tenants().begin(), tenants->tenants().end()},
               {sessions->sessions().begin(), sessions->sessions().end()}};
}

// Empty: as it must be.
std::string wrong_in(const Books& books) {
  std::uint64_t charged = 0;
  std::string words;
  for (const v1::TenantUsage& tenant : books.tenants) {
    charged += tenant.charged();
    if (tenant.charged() > tenant.limit()) words += tenant.tenant() + " has more than its limit; ";
  }
  if (books.device.pool() != CrashStage::kPool.count)
    words += "the pool is " + to_string(Bytes{books.device.pool()}) + "; ";
  if (charged > books.device.pool()) words += "more is charged than there is; ";
  if (charged != books.device.pool() - books.device.free())
    words += to_string(Bytes{charged}) + " are charged to tenants, " +
             to_string(Bytes{books.device.pool() - books.device.free()}) + " are not free; ";
  return words;
}

std::uint64_t charged_to(const Books& books, pid_t pid) {
  std::uint64_t sum = 0;
  for (const v1::SessionInfo& session : books.sessions) {
    if (session.pid() != pid) continue;
    for (const v1::SliceInfo& slice : session.slices()) sum += slice.charged();
    for (const v1::SharedMemory& shared : session.shared()) sum += shared.charged();
  }
  return sum;
}

}  // namespace

void CrashScenario::check_books() {
  std::string wrong;
  EXPECT_TRUE(eventually([&] {
    stage_.mend();
    wrong = "there are none";
    const auto books = read_books(stage_.broker().folder());
    if (!books) return false;
    wrong = wrong_in(*books);
    for (CrashActor* one : {&ann_, &bob_, &cat_}) {
      const auto has = one->committed();
      if (has && charged_to(*books, one->pid()) != *has)
        wrong += one->name() + " has " + to_string(Bytes{*has}) + " and is charged " +
                 to_string(Bytes{charged_to(*books, one->pid())});
    }
    return wrong.empty();
  })) << wrong;
}

void CrashScenario::check_rest() {
  EXPECT_TRUE(eventually([&] { return stage_.broker().at_rest(); })) << stage_.broker().unrest();
  EXPECT_EQ(stage_.broker().device().pool(), CrashStage::kPool.count);
  EXPECT_EQ(stage_.broker().used_of_driver(), CrashStage::kPool.count) << "what the driver has given out";
}

void CrashScenario::check_promises() {
  ASSERT_TRUE(stage_.broker().running());
  check_rest();
  check_quota();
  CrashActor next(stage_, "next", CrashStage::kAnn);
  next.enter();
  next.grow("a", CrashStage::kGuarantee, 9);
  next.leave();
  check_rest();
  for (const CrashActor* one : {&ann_, &mate_})
    EXPECT_NE(one->ended_by(), SIGTERM) << one->name() << " was ended, who owes nothing";
}

}  // namespace gpumem::test
