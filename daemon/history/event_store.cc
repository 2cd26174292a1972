#include "daemon/history/event_store.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text/number.h"
#include "daemon/history/store.h"

namespace gpumem::history {
namespace {

constexpr std::int64_t kDaysKept = 90;
constexpr std::int64_t kEventsPerDrop = 2000;

// A table whose rows tenants share, and its part of the store.
struct Shared {
  const char* table;
  const char* unit;         // for a second of the times in it
  std::uint64_t part;       // of the store's bytes: one in so many
  const char* text;         // the bytes that tenants choose
  std::uint64_t row_bytes;  // all others, with those in the indexes
};
constexpr std::array<Shared, 3> kShared{{{"event", "1000000", 2, "length(body)", 150},
                                         {"closed", "1", 8, "length(name)+length(words)", 200},
                                         {"ends", "1", 16, "length(words)", 150}}};
constexpr std::int64_t kMeasured = 500;  // rows

enum EventPlace : std::size_t { kEvent, kClosed, kMember, kEnd };

// The rows of each tenant that has more than the others leave to it.
std::int64_t level_of(std::vector<std::int64_t> rows, std::int64_t most) {
  std::ranges::sort(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t share = most / static_cast<std::int64_t>(rows.size() - i);
    if (rows[i] > share) return share;
    most -= rows[i];
  }
  return rows.empty() ? 0 : rows.back();
}

Result<void> share(Database& database, const std::string& table, std::int64_t most) {
  auto counts = database.prepare("SELECT tenant,count(*) FROM " + table + " GROUP BY tenant");
  if (!counts) return counts.error();
  std::vector<std::pair<std::string, std::int64_t>> tenants;
  std::vector<std::int64_t> rows;
  const auto read = counts->for_each([&]() -> Result<void> {
    tenants.emplace_back(counts->text(0), counts->integer(1));
    rows.push_back(counts->integer(1));
    return {};
  });
  if (!read) return read.error();
  const std::int64_t level = level_of(rows, most);
  auto drop = database.prepare("DELETE FROM " + table + " WHERE tenant=?1 AND rowid<=(SELECT rowid FROM " +
                               table + " WHERE tenant=?1 ORDER BY rowid DESC LIMIT 1 OFFSET ?2)");
  if (!drop) return drop.error();
  for (const auto& [tenant, count] : tenants) {
    if (count <= level) continue;
    if (auto done = drop->with(std::string_view(tenant), level).finish(); !done) return done;
  }
  return {};
}

/// Bytes of a row, on average over rows that lie evenly between the first and the last.
Result<std::uint64_t> measured_bytes(Database& database, const Shared& shared) {
  const std::string table = shared.table;
  auto measure =
      database.prepare("WITH RECURSIVE span(first,last) AS (SELECT min(rowid),max(rowid) FROM " + table +
                       "), at(id) AS (SELECT first FROM span UNION ALL SELECT id+1+(last-first)/" +
                       std::to_string(kMeasured) + " FROM at,span WHERE id<last) SELECT coalesce(avg(" +
                       shared.text + "),0) FROM " + table + " WHERE rowid IN (SELECT id FROM at)");
  if (!measure) return measure.error();
  const auto row = measure->step();
  if (!row) return row.error();
  return shared.row_bytes + (*row ? static_cast<std::uint64_t>(measure->integer(0)) : 0);
}

}  // namespace

Uids uids_of(const Sample& sample) {
  Uids uids;
  for (const Account& account : sample.accounts)
    if (account.uid) uids.emplace(account.key.first, *account.uid);
  for (const Member& member : sample.members)
    if (member.uid) uids.insert_or_assign(member.tenant, *member.uid);
  return uids;
}

std::int64_t uid_of(const std::string& tenant, const Uids& uids) {
  if (const auto known = uids.find(tenant); known != uids.end()) return known->second;
  constexpr std::string_view kPrefix = "uid:";
  if (!tenant.starts_with(kPrefix)) return kNobody;
  const auto uid = whole_number<std::uint32_t>(std::string_view(tenant).substr(kPrefix.size()));
  return uid ? std::int64_t{*uid} : kNobody;
}

const char* EventStore::tables() {
  return "CREATE TABLE IF NOT EXISTS ends(time INTEGER, tenant TEXT, uid INTEGER, device TEXT,"
         " session INTEGER, pid INTEGER, words TEXT);"
         "CREATE INDEX IF NOT EXISTS ends_by_time ON ends(time);"
         "CREATE INDEX IF NOT EXISTS ends_of_tenant ON ends(tenant);"
         "CREATE TABLE IF NOT EXISTS event(id INTEGER PRIMARY KEY, time INTEGER, tenant TEXT, uid INTEGER,"
         " body TEXT);"
         "CREATE INDEX IF NOT EXISTS event_by_time ON event(time);"
         "CREATE INDEX IF NOT EXISTS event_of_tenant ON event(tenant);"
         "CREATE TABLE IF NOT EXISTS closed(id INTEGER PRIMARY KEY, time INTEGER, began INTEGER, tenant TEXT,"
         " uid INTEGER, job INTEGER, session INTEGER, pid INTEGER, name TEXT, charged REAL, peak INTEGER,"
         " waited REAL, denied INTEGER, words TEXT);"
         "CREATE INDEX IF NOT EXISTS closed_by_time ON closed(time);"
         "CREATE INDEX IF NOT EXISTS closed_of_tenant ON closed(tenant);"
         "CREATE TABLE IF NOT EXISTS member(tenant TEXT, uid INTEGER, day INTEGER, PRIMARY KEY(tenant, uid))"
         " WITHOUT ROWID;";
}

Result<void> EventStore::prepare(Database& database) {
  for (const char* sql :
       {"INSERT INTO event(time,tenant,uid,body) VALUES(?,?,?,?)",
        "INSERT INTO closed(time,began,tenant,uid,job,session,pid,name,charged,peak,waited,"
        "denied,words) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)",
        "INSERT OR IGNORE INTO member VALUES(?,?,?)", "INSERT INTO ends VALUES(?,?,?,?,?,?,?)"}) {
    auto statement = database.prepare(sql);
    if (!statement) return statement.error();
    statements_.push_back(std::move(*statement));
  }
  return {};
}

Result<void> EventStore::write(const Sample& sample) {
  const Uids uids = uids_of(sample);
  for (const Event& event : sample.events)
    if (auto done = write(event, uid_of(event.tenant, uids)); !done) return done;
  for (const Closed& closed : sample.closed)
    if (auto done = write(closed); !done) return done;
  for (const End& end : sample.ends) {
    auto& insert =
        statements_[kEnd].with(end.time, end.key.first, uid_of(end.key.first, uids), end.key.second,
                               static_cast<std::int64_t>(end.session), end.pid, end.words);
    if (auto done = insert.finish(); !done) return done;
  }
  added_ += sample.events.size();
  return {};
}

Result<void> EventStore::write(const Event& event, std::int64_t uid) {
  auto& insert = statements_[kEvent].with(event.time, event.tenant, uid, event.body);
  if (auto done = insert.finish(); !done || !event.uid) return done;
  return statements_[kMember]
      .with(event.tenant, std::int64_t{*event.uid}, floor_to(event.time / kMicros, kDay))
      .finish();
}

Result<void> EventStore::write(const Closed& closed) {
  const std::int64_t uid = closed.uid ? std::int64_t{*closed.uid} : kNobody;
  return statements_[kClosed]
      .with(closed.time, closed.began, closed.tenant, uid, static_cast<std::int64_t>(closed.job),
            static_cast<std::int64_t>(closed.session), closed.pid, closed.name, closed.charged,
            static_cast<std::int64_t>(closed.peak), closed.waited, static_cast<std::int64_t>(closed.denied),
            closed.words)
      .finish();
}

Result<void> EventStore::tidy(Database& database, std::int64_t now, std::uint64_t most_bytes) {
  added_ = 0;
  const std::string oldest = std::to_string(now - kDaysKept * kDay);
  for (const Shared& one : kShared) {
    const std::string table = one.table;
    if (auto done = database.run("DELETE FROM " + table + " WHERE time<" + oldest + "*" + one.unit); !done)
      return done;
    const auto row_bytes = measured_bytes(database, one);
    if (!row_bytes) return row_bytes.error();
    const auto most = static_cast<std::int64_t>(most_bytes / one.part / *row_bytes);
    if (auto done = share(database, table, most); !done) return done;
  }
  return {};
}

Result<bool> EventStore::drop_some(Database& database) {
  for (const Shared& one : kShared) {
    const std::string table = one.table;
    auto done = database.run("DELETE FROM " + table + " WHERE rowid IN (SELECT rowid FROM " + table +
                             " ORDER BY rowid LIMIT " + std::to_string(kEventsPerDrop) + ")");
    if (!done) return done.error();
    if (database.changes() != 0) return true;
  }
  return false;
}

}  // namespace gpumem::history
