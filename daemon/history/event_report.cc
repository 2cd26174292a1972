#include "daemon/history/event_report.h"

#include "daemon/history/database.h"
#include "daemon/history/sample.h"

namespace gpumem::history {
namespace {

// The sum of a session or a job is for its own user and for administrators.
Json shown(const std::string& body, const Viewer& viewer) {
  Json event = Json::parse(body, nullptr, false);
  if (!event.is_object()) return Json::object();
  const auto uid = event.find("uid");
  const bool is_own = uid != event.end() && uid->is_number() && *uid == viewer.uid;
  if (!viewer.all && !is_own) event.erase("closing");
  return event;
}

Json closed_row(const Statement& row) {
  Json one{{"ended", date_of(row.integer(0))},
           {"began", date_of(row.integer(1))},
           {"tenant", row.text(2)},
           {"uid", row.integer(3)},
           {"job", row.integer(4)},
           {"session", row.integer(5)},
           {"pid", row.integer(6)},
           {"name", row.text(7)},
           {"charged", row.real(8)},
           {"peak", row.integer(9)},
           {"waited", row.real(10)},
           {"denied", row.integer(11)},
           {"words", row.text(12)}};
  if (row.integer(3) < 0) one["uid"] = Json();
  return one;
}

}  // namespace

Result<Json> events(const std::filesystem::path& file, const Question& question, std::int64_t after,
                    const Viewer& viewer) {
  return answer_from(file, [&](Database& database) -> Result<Json> {
    auto rows = database.prepare("SELECT id,body FROM event WHERE time>=?2 AND time<?3 AND id>?4 AND " +
                                 rows_for(viewer, std::to_string(kMicros)) + " ORDER BY id LIMIT " +
                                 std::to_string(kMostRows));
    if (!rows) return rows.error();
    rows->with(std::string_view(viewer.tenant), question.since * kMicros, question.until * kMicros, after);
    Json list = Json::array();
    std::int64_t last = after;
    const auto read = rows->for_each([&]() -> Result<void> {
      last = rows->integer(0);
      list.push_back(shown(rows->text(1), viewer));
      return {};
    });
    if (!read) return read.error();
    const bool is_full = list.size() == kMostRows;
    return Json{{"events", std::move(list)}, {"after", is_full ? Json(last) : Json()}};
  });
}

Result<Json> closed(const std::filesystem::path& file, const Question& question, Over what,
                    const Viewer& viewer) {
  return answer_from(file, [&](Database& database) -> Result<Json> {
    auto rows = database.prepare(
        "SELECT time,began,tenant,uid,job,session,pid,name,charged,peak,waited,denied,words FROM closed"
        " WHERE time>=? AND time<? AND session" +
        std::string(what == Over::kJobs ? "=0" : "<>0") + " AND " + own_rows_for(viewer) +
        " ORDER BY time,id LIMIT " + std::to_string(kMostRows + 1));
    if (!rows) return rows.error();
    rows->with(question.since, question.until);
    auto list = list_of(*rows, closed_row);
    if (!list) return list.error();
    return Json{{what == Over::kJobs ? "jobs" : "sessions", std::move(*list)}};
  });
}

}  // namespace gpumem::history
