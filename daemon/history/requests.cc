#include "daemon/history/requests.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/text/number.h"
#include "daemon/history/event_report.h"

namespace gpumem::history {
namespace {

constexpr std::int64_t kLatest = 9'000'000'000;  // in the year 2255: nanoseconds of a date fit 64 bits

unsigned status_of(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return 400;
    case Code::kPermissionDenied: return 403;
    case Code::kNotFound: return 404;
    case Code::kResourceExhausted: return 413;
    default: return 503;
  }
}

Answer refused(const Error& error) { return {status_of(error.code), Json{{"error", error.message}}}; }

Error wrong(const std::string& part) { return {Code::kInvalidArgument, "'" + part + "' is not understood"}; }

Result<std::int64_t> number_of(const std::string& text, std::int64_t most) {
  const auto number = whole_number<std::int64_t>(text);
  if (!number || *number < 0 || *number > most) return wrong(text);
  return *number;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Result<std::vector<By>> columns_of(const std::string& text) {
  std::vector<By> columns;
  for (const std::string& name : split(text, ',')) {
    const auto* const known =
        std::ranges::find_if(kSumColumns, [&](const Column& one) { return name == one.word; });
    if (known == kSumColumns.end()) return wrong(name);
    if (std::ranges::count(columns, known->by) != 0)
      return Error{Code::kInvalidArgument, "'" + name + "' is named twice"};
    columns.push_back(known->by);
  }
  if (columns.empty()) return wrong("by=");
  return columns;
}

// A question, and the event that its answer begins behind.
struct Asked {
  Question question;
  std::int64_t after = 0;
};

Result<Asked> asked_by(const std::string& query, std::int64_t now) {
  Asked asked{{0, now + 1, {By::kTenant, By::kDevice}}};
  Question& question = asked.question;
  for (const std::string& part : split(query, '&')) {
    const std::string name = part.substr(0, part.find('='));
    const std::string value = part.substr(std::min(name.size() + 1, part.size()));
    if (name == "by") {
      auto columns = columns_of(value);
      if (!columns) return columns.error();
      question.by = std::move(*columns);
    } else if (name == "after") {
      const auto number = number_of(value, std::numeric_limits<std::int64_t>::max());
      if (!number) return number.error();
      asked.after = *number;
    } else if (name == "since" || name == "until") {
      const auto time = number_of(value, kLatest);
      if (!time) return time.error();
      (name == "since" ? question.since : question.until) = *time;
    } else {
      return wrong(part);
    }
  }
  if (question.since >= question.until) return Error{Code::kInvalidArgument, "'since' is not before 'until'"};
  return asked;
}

// The tenant of a group that the peer belongs to, as the broker tells tenants apart. Empty: none.
std::string group_tenant_of(const Peer& peer, const std::vector<Member>& members) {
  if (std::ranges::any_of(members, [&](const Member& one) { return one.uid == peer.uid; })) return {};
  for (const std::uint32_t gid : peer.gids) {
    const auto found = std::ranges::find_if(members, [&](const Member& one) { return one.gid == gid; });
    if (found != members.end()) return found->tenant;
  }
  return {};
}

}  // namespace

Answer Requests::answer(const Peer& peer, const std::string& method, const std::string& target) const {
  const Rights rights = options_.rights();
  const auto& admins = rights.admin_group;
  const bool is_admin = peer.uid == 0 || (admins && std::ranges::count(peer.gids, *admins) != 0);
  const Viewer viewer{is_admin, peer.uid, group_tenant_of(peer, rights.members)};
  const std::size_t mark = std::min(target.find('?'), target.size());
  const std::string path = target.substr(0, mark);
  const std::string query = target.substr(std::min(mark + 1, target.size()));
  const bool is_told =
      path == "/v1/usage" || path == "/v1/events" || path == "/v1/jobs" || path == "/v1/sessions";
  if (is_told && method == "GET") return told(viewer, path, query);
  if (path == "/v1/forget" && method == "POST") return forget_user(viewer, query);
  return refused({Code::kNotFound, "there is no " + method + " " + path});
}

Answer Requests::told(const Viewer& viewer, const std::string& path, const std::string& query) const {
  const auto asked = asked_by(query, options_.now());
  if (!asked) return refused(asked.error());
  const Question& question = asked->question;
  const auto ask = [&]() -> Result<Json> {
    if (path == "/v1/usage") return report(options_.file, question, viewer);
    if (path == "/v1/events") return events(options_.file, question, asked->after, viewer);
    return closed(options_.file, question, path == "/v1/jobs" ? Over::kJobs : Over::kSessions, viewer);
  };
  auto rows = ask();
  if (!rows) {
    if (rows.error().code == Code::kFailedPrecondition) options_.damaged();
    return refused(rows.error());
  }
  const std::string problem = options_.problem();
  (*rows)["problem"] = problem.empty() ? Json() : Json(problem);
  return {200, std::move(*rows)};
}

Answer Requests::forget_user(const Viewer& viewer, const std::string& query) const {
  if (!viewer.all) return refused({Code::kPermissionDenied, "only an administrator may do this"});
  constexpr std::string_view kName = "uid=";
  if (!query.starts_with(kName)) return refused(wrong(query));
  const auto uid = number_of(query.substr(kName.size()), std::numeric_limits<std::uint32_t>::max());
  if (!uid) return refused(uid.error());
  const auto series = forget(options_.file, static_cast<std::uint32_t>(*uid), options_.now());
  if (!series) return refused(series.error());
  return {200, Json{{"forgotten", *series}}};
}

}  // namespace gpumem::history
