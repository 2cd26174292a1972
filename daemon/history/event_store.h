#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/history/database.h"
#include "daemon/history/sample.h"

namespace gpumem::history {

/// The numbers of users whose tenants the sample knows.
using Uids = std::map<std::string, std::uint32_t>;
Uids uids_of(const Sample& sample);
inline constexpr std::int64_t kNobody = -1;  ///< the uid of a tenant that is not one user's
/// The user of a tenant, which may have no account.
std::int64_t uid_of(const std::string& tenant, const Uids& uids);

/// The tables of events, of processes that the broker has ended, and of sessions and jobs that are over. One
/// more table has each user's first day in a tenant. Part of a Store, within its transactions.
class EventStore {
 public:
  /// Statements that make the tables that are missing.
  static const char* tables();

  Result<void> prepare(Database& database);
  Result<void> write(const Sample& sample);
  /// Drops what was kept for long enough. Tenants share half of `most_bytes` for their events, and an eighth
  /// for what is over: those with most lose their oldest.
  Result<void> tidy(Database& database, std::int64_t now, std::uint64_t most_bytes);
  /// Drops some of the oldest. False: there are none any more.
  static Result<bool> drop_some(Database& database);
  /// So many events are new that the tables are to be tidied before it is time.
  bool is_full() const { return added_ > kMostAdded; }

 private:
  static constexpr std::size_t kMostAdded = 50'000;
  Result<void> write(const Event& event, std::int64_t uid);
  Result<void> write(const Closed& closed);

  std::vector<Statement> statements_;  ///< by the numbers in event_store.cc
  std::size_t added_ = 0;              ///< events since tidy()
};

}  // namespace gpumem::history
