#include "daemon/history/report.h"

#include <algorithm>
#include <limits>

#include "base/text/time_format.h"
#include "daemon/history/database.h"
#include "daemon/history/store.h"

namespace gpumem::history {
namespace {

constexpr std::chrono::seconds kTimeOfReport{2};

// Rows of one table, of a span of time.
struct Part {
  const Resolution* resolution;
  std::int64_t since, until;
};

std::int64_t ceil_to(std::int64_t time, std::int64_t step) { return floor_to(time + step - 1, step); }

Part part_of(const Resolution& resolution, std::int64_t since, std::int64_t until) {
  return {&resolution, floor_to(since, resolution.seconds), ceil_to(until, resolution.seconds)};
}

// The finest resolution that has all rows from `since` on.
Result<const Resolution*> finest(Database& database, std::int64_t since) {
  auto state = database.prepare("SELECT value FROM state WHERE name=?");
  if (!state) return state.error();
  for (const Resolution& one : kResolutions) {
    if (one.from == nullptr) break;
    const auto row = state->with(std::string_view(one.from)).step();
    if (!row) return row.error();
    if (since >= (*row ? state->integer(0) : 0)) return &one;
  }
  return &kResolutions.back();
}

// The table of days, which is small, gives whole days. `tail`  of what comes after them.
std::vector<Part> parts_of(const Resolution& fine, const Resolution& tail, const Question& question) {
  const Resolution& days = kResolutions.back();
  const std::int64_t first =
      fine.seconds == kDay ? floor_to(question.since, kDay) : ceil_to(question.since, kDay);
  const std::int64_t last = floor_to(question.until, kDay);
  if (first >= last) return {part_of(fine, question.since, question.until)};
  std::vector<Part> parts{{&days, first, last}};
  if (question.since < first) parts.insert(parts.begin(), part_of(fine, question.since, first));
  if (last < question.until) parts.push_back(part_of(tail, last, question.until));
  return parts;
}

const Column& column_of(By by) { return *std::ranges::find(kSumColumns, by, &Column::by); }

bool has(const Question& question, By by) { return std::ranges::count(question.by, by) != 0; }

// A tenant has what those below it have, so that only some rows can be added up.
std::string scope_of(const Question& question, const Viewer& viewer) {
  const std::string seen = rows_for(viewer);
  if (has(question, By::kUser)) return seen + " AND uid>=0";
  if (has(question, By::kPod)) return seen + " AND tenant GLOB 'pod */*'";
  if (has(question, By::kNamespace))  // pods that share a claim are one tenant
    return seen + " AND (tenant GLOB 'pod */*' OR tenant GLOB 'claim */*')";
  return viewer.all && !has(question, By::kTenant) ? "tenant=''" : seen;
}

std::string sql_of(const Question& question, const Viewer& viewer, const std::vector<Part>& parts) {
  std::string columns, from;
  for (const By by : question.by) columns += std::string(columns.empty() ? "" : ",") + column_of(by).sql;
  for (const Part& part : parts)
    from += std::string(from.empty() ? "" : " UNION ALL ") + "SELECT * FROM " + part.resolution->table +
            " WHERE time>=" + std::to_string(part.since) + " AND time<" + std::to_string(part.until);
  return "SELECT " + columns +
         ",sum(lent),sum(\"returning\"),sum(reserved),sum(outside),sum(kept),sum(waiting),sum(denied),sum("
         "ended),"
         "max(peak) FROM (" +
         from + ") JOIN series ON series.id=series WHERE " + scope_of(question, viewer) + " GROUP BY " +
         columns + " ORDER BY " + columns + " LIMIT " + std::to_string(kMostRows + 1);
}

Json value_of(By by, const Statement& row, int column) {
  if (by == By::kUser) return row.integer(column);
  if (by == By::kDay) return date_of(row.integer(column)).substr(0, 10);
  const std::string text = row.text(column);
  return text.empty() ? Json() : Json(text);
}

Json row_of(const Question& question, const Statement& row) {
  Json json;
  int column = 0;
  for (const By by : question.by) {
    json[column_of(by).field] = value_of(by, row, column);
    ++column;
  }
  for (const char* name : kAmountNames) json[name] = row.real(column++);
  for (const char* name : {"denied", "ended", "peak"}) json[name] = row.integer(column++);
  return json;
}

Result<Json> rows_of(Database& database, const Question& question, const Viewer& viewer,
                     const std::string& sql) {
  auto rows = database.prepare(sql);
  if (!rows) return rows.error();
  rows->with(std::string_view(viewer.tenant));
  return list_of(*rows, [&](const Statement& row) { return row_of(question, row); });
}

Result<Json> ends_of(Database& database, const Question& question, const Viewer& viewer) {
  auto rows =
      database.prepare("SELECT time,tenant,device,session,pid,words FROM ends WHERE time>=? AND time<? AND " +
                       own_rows_for(viewer) + " ORDER BY time DESC LIMIT " + std::to_string(kMostEnds));
  if (!rows) return rows.error();
  rows->with(question.since, question.until);
  return list_of(*rows, [](const Statement& row) -> Json {
    return {{"time", date_of(row.integer(0))}, {"tenant", row.text(1)}, {"device", row.text(2)},
            {"session", row.integer(3)},       {"pid", row.integer(4)}, {"words", row.text(5)}};
  });
}

Error explained(const Error& error) {
  switch (error.code) {
    case Code::kNotFound: return {Code::kNotFound, "nothing is recorded yet"};
    case Code::kDeadlineExceeded: return {error.code, "this takes too long: ask for a shorter time"};
    default: return error;
  }
}

Result<Json> ask(Database& database, const Question& question, const Viewer& viewer) {
  const auto fine = finest(database, question.since);
  if (!fine) return fine.error();
  const auto tail = finest(database, floor_to(question.until, kDay));
  if (!tail) return tail.error();
  const auto parts = parts_of(**fine, **tail, question);
  auto rows = rows_of(database, question, viewer, sql_of(question, viewer, parts));
  if (!rows) return rows.error();
  auto ends = ends_of(database, question, viewer);
  if (!ends) return ends.error();
  return Json{{"since", date_of(parts.front().since)},
              {"until", date_of(parts.back().until)},
              {"rows", std::move(*rows)},
              {"ends", std::move(*ends)}};
}

}  // namespace

std::string own_rows_for(const Viewer& viewer) {
  return viewer.all ? "1" : "uid=" + std::to_string(viewer.uid);
}

// A user's first day is that of the first session. Rows of a tenant that was a user's belong to that user.
std::string rows_for(const Viewer& viewer, const std::string& unit) {
  std::string own = own_rows_for(viewer);
  if (viewer.all || viewer.tenant.empty()) return own;
  return "(" + own + " OR (tenant=?1 AND uid=-1 AND time>=" + unit +
         "*(SELECT day FROM member WHERE tenant=?1 AND uid=" + std::to_string(viewer.uid) + ")))";
}

std::string date_of(std::int64_t seconds) {
  return to_rfc3339(std::chrono::system_clock::time_point(std::chrono::seconds(seconds)),
                    Precision::kSeconds);
}

Result<Json> list_of(Statement& rows, const std::function<Json(const Statement& row)>& shown) {
  Json list = Json::array();
  const auto read = rows.for_each([&]() -> Result<void> {
    if (list.size() == kMostRows)
      return Error{Code::kResourceExhausted, "more than " + std::to_string(kMostRows) +
                                                 " rows: ask for a shorter time, or by fewer columns"};
    list.push_back(shown(rows));
    return {};
  });
  return read ? Result<Json>(std::move(list)) : read.error();
}

Result<Json> answer_from(const std::filesystem::path& file,
                         const std::function<Result<Json>(Database& database)>& answer) {
  auto database = Database::open(file, Database::Mode::kRead);
  if (!database) return explained(database.error());
  database->limit_time(kTimeOfReport);
  auto found = answer(*database);
  if (!found) return explained(found.error());
  return found;
}

Result<Json> report(const std::filesystem::path& file, const Question& question, const Viewer& viewer) {
  return answer_from(file, [&](Database& database) { return ask(database, question, viewer); });
}

Result<std::int64_t> forget(const std::filesystem::path& file, std::uint32_t uid, std::int64_t now) {
  auto database = Database::open(file, Database::Mode::kWrite);
  if (!database) return explained(database.error());
  std::int64_t forgotten = 0;
  for (const char* sql :
       {"DELETE FROM member WHERE uid=?2", "UPDATE ends SET uid=-1 WHERE uid=?2",
        "UPDATE closed SET uid=-1 WHERE uid=?2", "UPDATE event SET uid=-1, tenant=tenant||?1 WHERE uid=?2",
        "UPDATE series SET uid=-1, tenant=tenant||?1 WHERE uid=?2"}) {
    auto update = database->prepare(sql);
    if (!update) return update.error();
    if (auto done = update->with(" until " + date_of(now), std::int64_t{uid}).finish(); !done)
      return explained(done.error());
    forgotten = database->changes();
  }
  return forgotten;
}

}  // namespace gpumem::history
