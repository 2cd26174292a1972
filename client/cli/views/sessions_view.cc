#include <pwd.h>

#include <algorithm>
#include <map>
#include <vector>

#include "client/cli/views/text.h"
#include "client/cli/views/views.h"
#include "gpumem/bytes.h"

namespace gpumem::cli {
namespace {

std::string join(const std::string& session, const std::string& slice) {
  if (session == slice) return session;  // `gpumem run --name` gives both
  return session.empty() || slice.empty() ? session + slice : session + "/" + slice;
}

std::string state_text(const v1::SessionInfo& session) {
  if (session.detached()) return "kept";
  const std::string state = session.ended() ? "ended" : "open";
  return session.cannot_be_signalled() ? state + ", cannot be signalled" : state;
}

std::vector<std::string> session_cells(const v1::SessionInfo& session, WallTime now, bool jobs) {
  std::vector<std::string> cells{std::to_string(session.id()),
                                 session.pid() != 0   ? std::to_string(session.pid())
                                 : session.detached() ? "-"
                                                      : "?",
                                 user_name(session.uid()),
                                 session.tenant(),
                                 session.command(),
                                 session.label(),
                                 age_text(session.since(), now),
                                 state_text(session)};
  if (jobs) cells.push_back(session.job() == 0 ? "-" : std::to_string(session.job()));
  return cells;
}

void add_slice(Table& table, std::vector<std::string> cells, const v1::SliceInfo& slice) {
  cells[5] = join(cells[5], slice.label());
  for (const std::string& more :
       {std::to_string(slice.id()), short_uuid(slice.device()), size_text(slice.charged()),
        size_text(slice.limit()), size_text(slice.in_use()), size_text(slice.waiting())}) {
    cells.push_back(more);
  }
  table.add(std::move(cells));
}

void add_besides(Table& table, std::vector<std::string> cells, const char* what, const std::string& device,
                 const std::string& charged, const std::string& used) {
  cells[5] = join(cells[5], what);
  for (const std::string& more :
       {std::string("-"), short_uuid(device), charged, std::string("-"), used, std::string("-")}) {
    cells.push_back(more);
  }
  table.add(std::move(cells));
}

// Charged, and mapped: what it has inherited, and that with what is others'. What it has given out by fabric
// handles is charged above.
void add_shared(Table& table, const std::vector<std::string>& cells, const v1::SharedMemory& shared) {
  const std::uint64_t used = shared.charged() + shared.imported();
  if (used != 0)
    add_besides(table, cells, "shared", shared.device(), size_text(shared.charged()), size_text(used));
  if (shared.fabric() != 0)
    add_besides(table, cells, "fabric", shared.device(), "-", size_text(shared.fabric()));
  if (shared.declared() != 0)
    add_besides(table, cells, "declared", shared.device(), size_text(shared.declared()), "-");
}

/// Of one device, and how many.
struct RegionCounts {
  int published = 0;  ///< charged to the session
  int mapped = 0;
};
using RegionsByDevice = std::map<std::string, RegionCounts>;

std::map<std::uint64_t, RegionsByDevice> by_session(const v1::ListRegionsResponse& regions) {
  std::map<std::uint64_t, RegionsByDevice> sessions;
  for (const v1::RegionInfo& region : regions.regions()) {
    for (const v1::RegionCharge& one : region.charged()) ++sessions[one.session()][region.device()].published;
    for (const v1::RegionMapping& one : region.mappings()) ++sessions[one.session()][region.device()].mapped;
  }
  return sessions;
}

std::string regions_text(const RegionCounts& counts) {
  std::string text = "regions:";
  if (counts.published != 0) text += " " + std::to_string(counts.published) + " published";
  if (counts.published != 0 && counts.mapped != 0) text += ",";
  if (counts.mapped != 0) text += " " + std::to_string(counts.mapped) + " mapped";
  return text;
}

Json regions_json(const RegionsByDevice& of) {
  Json list = Json::array();
  for (const auto& [device, counts] : of)
    list.push_back({{"device", device}, {"published", counts.published}, {"mapped", counts.mapped}});
  return list;
}

Json slice_json(const v1::SliceInfo& slice) {
  return {{"id", slice.id()},
          {"device", slice.device()},
          {"label", slice.label()},
          {"limit", slice.limit()},
          {"charged", slice.charged()},
          {"in_use", slice.in_use()},
          {"returning", slice.returning()},
          {"waiting", slice.waiting()}};
}

}  // namespace

std::string short_uuid(const std::string& uuid) { return uuid.substr(0, 12); }

std::string user_name(std::uint32_t uid) {
  std::vector<char> room(4096);
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(uid, &entry, room.data(), room.size(), &found);
  return found != nullptr ? entry.pw_name : std::to_string(uid);
}

std::string sessions_text(const v1::ListSessionsResponse& sessions, WallTime now,
                          const v1::ListRegionsResponse& regions) {
  if (sessions.sessions().empty()) return "no sessions\n";
  std::map<std::uint64_t, RegionsByDevice> counted = by_session(regions);
  const bool jobs = std::ranges::any_of(sessions.sessions(), [](const auto& one) { return one.job() != 0; });
  constexpr auto kRight = Table::Align::kRight;
  std::vector<Table::Column> columns{{"SESSION", kRight}, {"PID", kRight}, {"USER"},        {"TENANT"},
                                     {"COMMAND"},         {"LABEL"},       {"AGE", kRight}, {"STATE"}};
  if (jobs) columns.push_back({"JOB", kRight});
  columns.insert(columns.end(), {{"SLICE", kRight},
                                 {"DEVICE"},
                                 {"CHARGED", kRight},
                                 {"LIMIT", kRight},
                                 {"IN USE", kRight},
                                 {"WAITING", kRight}});
  Table table(std::move(columns));
  for (const v1::SessionInfo& session : sessions.sessions()) {
    if (session.slices().empty() && session.shared().empty()) table.add(session_cells(session, now, jobs));
    for (const v1::SliceInfo& slice : session.slices())
      add_slice(table, session_cells(session, now, jobs), slice);
    for (const v1::SharedMemory& shared : session.shared())
      add_shared(table, session_cells(session, now, jobs), shared);
    for (const auto& [device, counts] : counted[session.id()])
      add_besides(table, session_cells(session, now, jobs), regions_text(counts).c_str(), device, "-", "-");
  }
  return table.text();
}

Json sessions_json(const v1::ListSessionsResponse& sessions, const v1::ListRegionsResponse& regions) {
  std::map<std::uint64_t, RegionsByDevice> counted = by_session(regions);
  Json list = Json::array();
  for (const v1::SessionInfo& session : sessions.sessions()) {
    Json slices = Json::array();
    for (const v1::SliceInfo& slice : session.slices()) slices.push_back(slice_json(slice));
    Json shared = Json::array();
    for (const v1::SharedMemory& one : session.shared())
      shared.push_back({{"device", one.device()},
                        {"charged", one.charged()},
                        {"imported", one.imported()},
                        {"fabric", one.fabric()},
                        {"declared", one.declared()}});
    list.push_back({{"id", session.id()},
                    {"pid", session.pid() == 0 ? Json() : Json(session.pid())},
                    {"uid", session.uid()},
                    {"user", user_name(session.uid())},
                    {"tenant", session.tenant()},
                    {"job", session.job() == 0 ? Json() : Json(session.job())},
                    {"command", session.command()},
                    {"label", session.label()},
                    {"since", session.since()},
                    {"ended", session.ended()},
                    {"detached", session.detached()},
                    {"cannot_be_signalled", session.cannot_be_signalled()},
                    {"slices", std::move(slices)},
                    {"shared", std::move(shared)},
                    {"regions", regions_json(counted[session.id()])}});
  }
  return {{"sessions", std::move(list)}};
}

}  // namespace gpumem::cli
