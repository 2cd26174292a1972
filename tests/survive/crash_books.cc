#include "tests/survive/crash_books.h"

#include "tests/survive/crash_stage.h"

namespace gpumem::test {

std::optional<CrashBooks> read_books(const std::string& folder) {
  auto monitor = cli::Monitor::connect(folder);
  if (!monitor) return std::nullopt;
  const auto status = monitor->status();
  const auto tenants = monitor->tenants();
  const auto sessions = monitor->sessions();
  if (!status || !tenants || !sessions || status->devices().empty()) return std::nullopt;
  return CrashBooks{status->devices(0),
                    {tenants->tenants().begin(), tenants->tenants().end()},
                    {sessions->sessions().begin(), sessions->sessions().end()}};
}

std::string wrong_in(const CrashBooks& books) {
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

std::uint64_t charged_to(const CrashBooks& books, pid_t pid) {
  std::uint64_t sum = 0;
  for (const v1::SessionInfo& session : books.sessions) {
    if (session.pid() != pid) continue;
    for (const v1::SliceInfo& slice : session.slices()) sum += slice.charged();
    for (const v1::SharedMemory& shared : session.shared()) sum += shared.charged();
  }
  return sum;
}

}  // namespace gpumem::test
