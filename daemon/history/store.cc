#include "daemon/history/store.h"

#include <algorithm>
#include <functional>
#include <system_error>

#include "base/text/time_format.h"

namespace gpumem::history {
namespace {

constexpr std::int64_t kVersion = 2;
constexpr std::uint64_t kSamplesPerTidy = 60;  // a minute
constexpr std::int64_t kRowsPerDrop = 2000;
constexpr const char* kTidied = "tidied";  // the name in `state` of the time by which rows were dropped last

// WAL: readers and the writer do not wait for each other. NORMAL: the disk is waited for once a minute
// (tidy()); a loss of power costs a minute at most, the end of a process nothing.
constexpr const char* kSettings =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=16777216;"
    "PRAGMA wal_autocheckpoint=4000";

constexpr const char* kColumns =
    "lent REAL, \"returning\" REAL, reserved REAL, outside REAL, kept REAL, waiting REAL";

std::string tables() {
  std::string sql =
      "CREATE TABLE IF NOT EXISTS state(name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;"
      "CREATE TABLE IF NOT EXISTS series(id INTEGER PRIMARY KEY, tenant TEXT, uid INTEGER, device TEXT,"
      " UNIQUE(tenant, uid, device));"
      "CREATE INDEX IF NOT EXISTS series_of_user ON series(uid);"
      "CREATE TABLE IF NOT EXISTS counter(tenant TEXT, device TEXT, boot TEXT, seen INTEGER, " +
      std::string(kColumns) + ", PRIMARY KEY(tenant, device)) WITHOUT ROWID;";
  for (const Resolution& one : kResolutions) {
    sql += "CREATE TABLE IF NOT EXISTS " + std::string(one.table) + "(time INTEGER, series INTEGER, " +
           kColumns +
           ", denied INTEGER, ended INTEGER, peak INTEGER, PRIMARY KEY(time, series)) WITHOUT ROWID;";
  }
  return sql + EventStore::tables() + "PRAGMA user_version=" + std::to_string(kVersion);
}

// The places in Store::statements_: first one for the rows of each resolution.
enum Place : std::size_t { kFindSeries = kResolutions.size(), kAddSeries, kCounter, kSetState, kState };

std::vector<std::string> statements() {
  std::vector<std::string> all;
  for (const Resolution& one : kResolutions) {
    std::string sql =
        "INSERT INTO " + std::string(one.table) +
        " VALUES(?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET denied=denied+excluded.denied,"
        "ended=ended+excluded.ended,peak=max(peak,excluded.peak)";
    for (const std::string name : kAmountNames)
      sql += ",\"" + name + "\"=\"" + name + "\"+excluded.\"" + name + "\"";
    all.push_back(sql);
  }
  all.insert(all.end(), {"SELECT id FROM series WHERE tenant=? AND uid=? AND device=?",
                         "INSERT INTO series(tenant,uid,device) VALUES(?,?,?)",
                         "INSERT OR REPLACE INTO counter VALUES(?,?,?,?,?,?,?,?,?,?)",
                         "INSERT OR REPLACE INTO state VALUES(?,?)", "SELECT value FROM state WHERE name=?"});
  return all;
}

// Rolls back what was not committed.
class Transaction {
 public:
  static Result<Transaction> begin(Database& database) {
    if (auto begun = database.run("BEGIN IMMEDIATE"); !begun) return begun.error();
    return Transaction(database);
  }
  Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  ~Transaction() {
    if (database_ != nullptr) static_cast<void>(database_->run("ROLLBACK"));
  }
  Result<void> commit() {
    if (auto done = database_->run("COMMIT"); !done) return done;
    database_ = nullptr;
    return {};
  }

 private:
  explicit Transaction(Database& database) : database_(&database) {}
  Database* database_;
};

Result<std::int64_t> number(Database& database, const std::string& sql) {
  auto statement = database.prepare(sql);
  if (!statement) return statement.error();
  const auto row = statement->step();
  if (!row) return row.error();
  return *row ? statement->integer(0) : 0;
}

// Whether the account that had `amounts` at `seen` goes on, in the same run of the machine. It may have less
// after another broker, which has lost a second of it. An account that began after that look is another one;
// its begin is told in whole seconds.
bool is_same(const Amounts& amounts, std::chrono::nanoseconds seen, const Account& account) {
  if (account.began + std::chrono::seconds(1) <= seen) return true;
  return account.began <= seen && std::ranges::equal(amounts, account.amounts, std::less_equal<>());
}

}  // namespace

Result<Store> Store::open(const std::filesystem::path& file, std::uint64_t most_bytes) {
  auto database = Database::open(file, Database::Mode::kCreate);
  if (!database) return database.error();
  Store store(std::move(*database));
  store.most_bytes_ = most_bytes;
  if (auto prepared = store.prepare(); !prepared) return prepared.error();
  if (auto loaded = store.load(); !loaded) return loaded.error();
  return store;
}

Result<void> Store::prepare() {
  if (auto set = database_.run(kSettings); !set) return set;
  auto check = database_.prepare("PRAGMA quick_check(1)");
  if (!check) return check.error();
  const auto said = check->step();
  if (!said) return said.error();
  if (std::string words = check->text(0); words != "ok") {
    std::ranges::replace(words, '\n', ' ');
    return Error{Code::kFailedPrecondition, words};
  }
  if (auto done = check->finish(); !done) return done;
  const auto version = number(database_, "PRAGMA user_version");
  if (!version) return version.error();
  if (*version > kVersion)
    return Error{Code::kAborted, "a newer gpumem-history has written the file: install that again"};
  if (*version < kVersion) {
    auto transaction = Transaction::begin(database_);
    if (!transaction) return transaction.error();
    if (auto made = database_.run(tables()); !made) return made;
    if (auto done = transaction->commit(); !done) return done;
  }
  for (const std::string& sql : statements()) {
    auto statement = database_.prepare(sql);
    if (!statement) return statement.error();
    statements_.push_back(std::move(*statement));
  }
  return events_.prepare(database_);
}

Result<void> Store::load() {
  for (const auto& [name, value] : {std::pair{"time", &last_time_}, std::pair{"event_time", &position_.time},
                                    std::pair{"event_count", &position_.count}}) {
    const auto known = state(name);
    if (!known) return known.error();
    *value = *known;
  }
  auto rows = database_.prepare("SELECT * FROM counter");
  if (!rows) return rows.error();
  return rows->for_each([&]() -> Result<void> {
    Counter& counter = counters_[{rows->text(0), rows->text(1)}];
    counter.boot = rows->text(2);
    counter.seen = std::chrono::nanoseconds(rows->integer(3));
    for (std::size_t i = 0; i < kAmounts; ++i) counter.amounts[i] = rows->real(static_cast<int>(4 + i));
    return {};
  });
}

std::optional<Store::Row> Store::take(const Account& account, const Sample& sample,
                                      std::map<Key, Counter>& changed) const {
  const auto known = counters_.find(account.key);
  const bool goes_on = known != counters_.end() && known->second.boot == sample.boot &&
                       is_same(known->second.amounts, known->second.seen, account);
  Counter counter{sample.boot, sample.steady, goes_on ? known->second.amounts : Amounts{}};
  Row row{sample.time, account.key, account.uid};
  bool any = false;
  for (std::size_t i = 0; i < kAmounts; ++i) {
    row.amounts[i] = std::max(account.amounts[i] - counter.amounts[i], 0.0);
    counter.amounts[i] += row.amounts[i];
    any = any || row.amounts[i] > 0;
  }
  if (!any) return std::nullopt;
  changed[account.key] = std::move(counter);
  const auto charged = sample.charged.find(account.key);
  row.peak = charged == sample.charged.end() ? 0 : charged->second;
  return row;
}

std::vector<Store::Row> Store::event_rows(const Sample& sample) {
  const auto uids = uids_of(sample);
  std::vector<Row> rows;
  for (const auto& [when, counts] : sample.counts) {
    const auto& [time, tenant, device] = when;
    const std::int64_t uid = uid_of(tenant, uids);
    rows.push_back({.time = time, .key = {tenant, device}, .counts = counts});
    if (uid != kNobody) rows.back().uid = static_cast<std::uint32_t>(uid);
    rows.push_back({.time = time, .key = {"", device}, .counts = counts});
  }
  return rows;
}

Result<void> Store::add(const Sample& sample) {
  std::map<Key, Counter> counters;
  std::vector<Row> rows = event_rows(sample);
  for (const Account& account : sample.accounts)
    if (auto row = take(account, sample, counters)) rows.push_back(std::move(*row));
  const bool has_read = sample.position != EventPosition{} && sample.position != position_;
  if (!rows.empty() || has_read) {
    if (auto written = write(sample, rows, counters); !written) return written;
    for (auto& [key, counter] : counters) counters_[key] = std::move(counter);
    if (has_read) position_ = sample.position;
    if (!rows.empty()) last_time_ = sample.time;
  }
  return ++added_ % kSamplesPerTidy == 0 || events_.is_full() ? tidy(sample) : Result<void>();
}

Result<void> Store::write(const Sample& sample, const std::vector<Row>& rows,
                          const std::map<Key, Counter>& counters) {
  auto transaction = Transaction::begin(database_);
  if (!transaction) return transaction.error();
  for (const Row& row : rows)
    if (auto written = write_row(row); !written) return written;
  for (const auto& [key, counter] : counters)
    if (auto written = write_counter(key, counter); !written) return written;
  if (auto written = events_.write(sample); !written) return written;
  const EventPosition& position = sample.position == EventPosition{} ? position_ : sample.position;
  for (const auto& [name, value] :
       {std::pair{"time", rows.empty() ? last_time_ : sample.time}, std::pair{"event_time", position.time},
        std::pair{"event_count", position.count}})
    if (auto done = set_state(name, value); !done) return done;
  return transaction->commit();
}

Result<void> Store::write_row(const Row& row) {
  const auto series = series_of(row);
  if (!series) return series.error();
  const Amounts& used = row.amounts;
  for (std::size_t i = 0; i < kResolutions.size(); ++i) {
    auto& insert =
        statements_[i].with(floor_to(row.time, kResolutions[i].seconds), *series, used[0], used[1], used[2],
                            used[3], used[4], used[5], static_cast<std::int64_t>(row.counts.denied),
                            static_cast<std::int64_t>(row.counts.ended), static_cast<std::int64_t>(row.peak));
    if (auto done = insert.finish(); !done) return done;
  }
  return {};
}

Result<void> Store::write_counter(const Key& key, const Counter& counter) {
  const Amounts& used = counter.amounts;
  return statements_[kCounter]
      .with(key.first, key.second, counter.boot, std::int64_t{counter.seen.count()}, used[0], used[1],
            used[2], used[3], used[4], used[5])
      .finish();
}

Result<std::int64_t> Store::series_of(const Row& row) {
  const std::int64_t uid = row.uid ? std::int64_t{*row.uid} : kNobody;
  auto& find = statements_[kFindSeries].with(row.key.first, uid, row.key.second);
  const auto found = find.step();
  if (!found) return found.error();
  if (*found) {
    const std::int64_t id = find.integer(0);
    if (auto done = find.finish(); !done) return done.error();
    return id;
  }
  auto& add = statements_[kAddSeries].with(row.key.first, uid, row.key.second);
  if (auto added = add.finish(); !added) return added.error();
  return database_.last_row();
}

Result<void> Store::set_state(const char* name, std::int64_t value) {
  return statements_[kSetState].with(std::string_view(name), value).finish();
}

Result<std::int64_t> Store::state(const char* name) {
  auto& find = statements_[kState].with(std::string_view(name));
  const auto found = find.step();
  if (!found) return found.error();
  const std::int64_t value = *found ? find.integer(0) : 0;
  if (auto done = find.finish(); !done) return done.error();
  return value;
}

Result<void> Store::drop_before(const Resolution& resolution, std::int64_t time) {
  const auto from = state(resolution.from);
  if (!from) return from.error();
  auto drop = database_.prepare("DELETE FROM " + std::string(resolution.table) + " WHERE time<?");
  if (!drop) return drop.error();
  if (auto done = drop->with(time).finish(); !done) return done;
  return time > *from ? set_state(resolution.from, time) : Result<void>();
}

// Rows that were dropped while the clock was ahead do not make the rows from now on incomplete.
Result<void> Store::begin_at_latest(const Resolution& resolution, std::int64_t now) {
  const auto from = state(resolution.from);
  if (!from) return from.error();
  const std::int64_t next = floor_to(now + resolution.seconds, resolution.seconds);
  return *from > next ? set_state(resolution.from, next) : Result<void>();
}

// Each minute: drops what was kept for long enough, and writes the log into the file. A clock that is
// suddenly off by more than a day is believed after a day. Else a moment's mistake would drop the rows of
// months, or make old rows look complete.
Result<void> Store::tidy(const Sample& sample) {
  const auto last = state(kTidied);
  if (!last) return last.error();
  const bool is_off = *last != 0 && std::abs(sample.time - *last) > kDay;
  if (!is_off) off_since_.reset();
  if (is_off && !off_since_) off_since_ = sample.steady;
  const bool is_believed = !is_off || sample.steady - *off_since_ > std::chrono::seconds(kDay);
  const std::int64_t now = is_believed ? sample.time : std::min(sample.time, *last);
  auto transaction = Transaction::begin(database_);
  if (!transaction) return transaction.error();
  for (const Resolution& one : kResolutions) {
    if (one.kept == 0) continue;
    if (auto done = is_believed ? begin_at_latest(one, now) : Result<void>(); !done) return done;
    if (auto done = drop_before(one, floor_to(now - one.kept, one.seconds)); !done) return done;
  }
  if (auto done = events_.tidy(database_, now, most_bytes_); !done) return done;
  if (auto done = make_room(); !done) return done;
  if (auto done = set_state(kTidied, is_believed ? now : *last); !done) return done;
  if (auto done = transaction->commit(); !done) return done;
  return database_.run("PRAGMA wal_checkpoint(PASSIVE)");
}

Result<std::int64_t> Store::used_bytes() {
  std::array<std::int64_t, 3> values{};
  const std::array<const char*, 3> names{"page_count", "freelist_count", "page_size"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto value = number(database_, std::string("PRAGMA ") + names[i]);
    if (!value) return value.error();
    values[i] = *value;
  }
  return (values[0] - values[1]) * values[2];
}

// The day totals stay, whatever they take.
Result<void> Store::make_room() {
  for (const Resolution& one : kResolutions) {
    if (one.kept == 0) break;
    const std::string of_table = " FROM " + std::string(one.table);
    for (;;) {
      const auto used = used_bytes();
      if (!used) return used.error();
      if (static_cast<std::uint64_t>(*used) <= most_bytes_) return {};
      const auto next = number(database_, "SELECT max(time)+1 FROM (SELECT time" + of_table +
                                              " ORDER BY time LIMIT " + std::to_string(kRowsPerDrop) + ")");
      if (!next) return next.error();
      if (*next == 0) break;
      const auto bound = floor_to(*next + one.seconds - 1, one.seconds);
      if (auto done = drop_before(one, bound); !done) return done;
    }
  }
  for (;;) {
    const auto used = used_bytes();
    if (!used) return used.error();
    if (static_cast<std::uint64_t>(*used) <= most_bytes_) return {};
    const auto dropped = EventStore::drop_some(database_);
    if (!dropped) return dropped.error();
    if (!*dropped) return {};
  }
}

Result<std::filesystem::path> set_aside(const std::filesystem::path& file, std::int64_t now) {
  const auto date =
      to_rfc3339(std::chrono::system_clock::time_point(std::chrono::seconds(now)), Precision::kSeconds);
  std::error_code ignored;
  std::filesystem::path aside = file.string() + ".unreadable-" + date;
  for (int i = 2; std::filesystem::exists(aside, ignored); ++i)
    aside = file.string() + ".unreadable-" + date + "-" + std::to_string(i);
  std::error_code error;
  std::filesystem::rename(file, aside, error);
  if (error) return errno_error(error.value(), "cannot rename the damaged " + file.string());
  for (const char* ending : {"-wal", "-shm"})
    std::filesystem::rename(file.string() + ending, aside.string() + ending, ignored);
  return aside;
}

}  // namespace gpumem::history
