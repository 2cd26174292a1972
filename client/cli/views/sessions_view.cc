#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/text/device_name.h"
#include "base/text/printable.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"
#include "gpumem/bytes.h"

namespace gpumem::cli {
namespace {

struct SessionsSum {
  std::uint64_t charged = 0;
  std::uint64_t in_use = 0;
  std::uint64_t waiting = 0;

  void add(const v1::SliceInfo& slice) {
    charged += slice.charged();
    in_use += slice.in_use();
    waiting += slice.waiting();
  }
  void add(const v1::SharedMemory& shared) {
    charged += shared.charged() + shared.declared();
    in_use += shared.charged() + shared.imported();
  }
  void add(const v1::SessionInfo& session) {
    for (const v1::SliceInfo& slice : session.slices()) add(slice);
    for (const v1::SharedMemory& shared : session.shared()) add(shared);
  }
};

std::map<std::string, SessionsSum> sums_of(const v1::ListSessionsResponse& sessions) {
  std::map<std::string, SessionsSum> sums;
  for (const v1::SessionInfo& session : sessions.sessions()) {
    for (const v1::SliceInfo& slice : session.slices()) sums[slice.device()].add(slice);
    for (const v1::SharedMemory& shared : session.shared()) sums[shared.device()].add(shared);
  }
  return sums;
}

std::string join(const std::string& session, const std::string& slice) {
  if (session == slice) return session;  // `gpumem run --name` gives both
  return session.empty() || slice.empty() ? session + slice : session + "/" + slice;
}

std::string state_text(const v1::SessionInfo& session) {
  if (session.detached()) return "kept";
  const std::string state = session.ended() ? "ended" : "open";
  return session.cannot_be_signalled() ? state + ", cannot be signalled" : state;
}

// The tenant, where it is not just the user itself.
std::string tenant_cell(const v1::SessionInfo& session, const Layout& layout) {
  if (layout.is_long) return session.tenant();
  return session.tenant() == "uid:" + std::to_string(session.uid()) ? "" : tenant_text(session.tenant());
}

// One line of a session: a slice, or other memory of one device.
struct Part {
  std::string slice{};
  std::string label{};
  std::string device{};  // UUID
  std::string charged{};
  std::string limit{};
  std::string in_use{};
  std::string waiting{};
};

/// The lines of sessions.
class SessionsTable {
 public:
  SessionsTable(WallTime now, const Layout& layout, const HostMemories& host)
      : now_(now), layout_(layout), host_(host) {}

  void add(const v1::SessionInfo& session, const Part& part) {
    const std::string pid = session.pid() != 0   ? std::to_string(session.pid())
                            : session.detached() ? ""
                                                 : "?";
    table_.add({std::to_string(session.id()), pid, user_name(session.uid()), tenant_cell(session, layout_),
                session.command(), escape_non_ascii(join(session.label(), part.label)),
                age_text(session.since(), now_), state_text(session),
                session.job() == 0 ? "" : std::to_string(session.job()), part.slice,
                part.device.empty() ? "" : layout_.device(part.device), part.charged, part.limit, part.in_use,
                part.waiting, shared_text(session.id())});
  }
  void add_total(const std::string& device, const SessionsSum& sum) {
    table_.add({"total", "", "", "", "", "", "", "", "", "", layout_.device(device), size_text(sum.charged),
                "", size_text(sum.in_use), size_text(sum.waiting)});
  }
  std::string text() const { return table_.text(layout_); }

 private:
  static constexpr auto kRight = Table::Align::kRight;

  // Of the process, so in the first of its lines alone.
  std::string shared_text(std::uint64_t session) {
    const auto found = host_.find(session);
    return found != host_.end() && shown_.insert(session).second ? size_text(found->second.shared) : "";
  }

  const WallTime now_;
  const Layout& layout_;
  const HostMemories& host_;
  std::set<std::uint64_t> shown_;
  Table table_{{{.title = "SESSION", .align = kRight},
                {.title = "PID", .align = kRight},
                {.title = "USER", .least = 8},
                {.title = "TENANT", .usual = "-", .rank = 4, .least = 12},
                {.title = "COMMAND", .least = 8},
                {.title = "LABEL", .usual = "-", .rank = 3, .least = 8},
                {.title = "AGE", .align = kRight, .rank = 7},
                {.title = "STATE", .usual = "open", .rank = 5, .alerts = true},
                {.title = "JOB", .align = kRight, .usual = "-", .rank = 6},
                {.title = "SLICE", .align = kRight, .rank = 8},
                {.title = "DEVICE"},
                {.title = "CHARGED", .align = kRight},
                {.title = "LIMIT", .align = kRight, .rank = 9},
                {.title = "IN USE", .align = kRight, .rank = 2},
                {.title = "WAITING", .align = kRight, .usual = "0B", .rank = 1, .alerts = true},
                {.title = "SHR", .align = kRight, .usual = "-", .rank = 10}}};
};

void add_slice(SessionsTable& table, const v1::SessionInfo& session, const v1::SliceInfo& slice) {
  table.add(session, {std::to_string(slice.id()), slice.label(), slice.device(), size_text(slice.charged()),
                      size_text(slice.limit()), size_text(slice.in_use()), size_text(slice.waiting())});
}

// Charged, and mapped: what it has inherited, and that with what is others'. What it has given out by fabric
// handles is charged above.
void add_shared(SessionsTable& table, const v1::SessionInfo& session, const v1::SharedMemory& shared) {
  const auto add = [&](const char* label, const std::string& charged, const std::string& in_use) {
    table.add(
        session,
        {.label = label, .device = shared.device(), .charged = charged, .in_use = in_use, .waiting = "0B"});
  };
  const std::uint64_t used = shared.charged() + shared.imported();
  if (used != 0) add("shared", size_text(shared.charged()), size_text(used));
  if (shared.fabric() != 0) add("fabric", "", size_text(shared.fabric()));
  if (shared.declared() != 0) add("declared", size_text(shared.declared()), "");
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

// Memory of the machine: lent by the host store, pinned by the program itself, and the process's as the
// kernel tells it.
Json host_json(const v1::SessionInfo& session, const HostMemories& host) {
  std::uint64_t lent = 0, pinned = 0;
  for (const v1::SliceInfo& slice : session.slices())
    lent += slice.device() == kHostStore ? slice.charged() : 0;
  for (const v1::SharedMemory& shared : session.shared())
    pinned += shared.device() == kHostStore ? shared.declared() : 0;
  const auto found = host.find(session.id());
  const auto told = [&](std::uint64_t HostMemory::*bytes) {
    return found == host.end() ? Json() : Json(found->second.*bytes);
  };
  return {{"lent", lent},
          {"pinned", pinned},
          {"resident", told(&HostMemory::resident)},
          {"shared", told(&HostMemory::shared)}};
}

}  // namespace

void choose(v1::ListSessionsResponse& sessions, const SessionsChoice& choice) {
  auto& list = *sessions.mutable_sessions();
  const auto is_other = [&](const v1::SessionInfo& one) { return choice.user && one.uid() != *choice.user; };
  list.erase(std::remove_if(list.begin(), list.end(), is_other), list.end());
  const auto sort_by = [&](auto key) {
    std::stable_sort(list.begin(), list.end(),
                     [&](const v1::SessionInfo& a, const v1::SessionInfo& b) { return key(a) < key(b); });
  };
  if (choice.sort.empty()) return;
  if (choice.sort == "user") return sort_by([](const auto& one) { return user_name(one.uid()); });
  if (choice.sort == "age") return sort_by([](const auto& one) { return one.since(); });
  sort_by([&](const v1::SessionInfo& one) {
    SessionsSum sum;
    sum.add(one);
    return ~(choice.sort == "charged" ? sum.charged : choice.sort == "in-use" ? sum.in_use : sum.waiting);
  });
}

std::string sessions_text(const v1::ListSessionsResponse& sessions, WallTime now,
                          const v1::ListRegionsResponse& regions, const Layout& layout, bool total,
                          const HostMemories& host) {
  if (sessions.sessions().empty()) return "no sessions\n";
  std::map<std::uint64_t, RegionsByDevice> counted = by_session(regions);
  SessionsTable table(now, layout, host);
  for (const v1::SessionInfo& session : sessions.sessions()) {
    if (session.slices().empty() && session.shared().empty()) table.add(session, {.waiting = "0B"});
    for (const v1::SliceInfo& slice : session.slices()) add_slice(table, session, slice);
    for (const v1::SharedMemory& shared : session.shared()) add_shared(table, session, shared);
    for (const auto& [device, counts] : counted[session.id()])
      table.add(session, {.label = regions_text(counts), .device = device, .waiting = "0B"});
  }
  if (!total) return table.text();
  std::map<std::string, SessionsSum> sums = sums_of(sessions);
  for (const std::string& device : layout.devices)
    if (const auto sum = sums.extract(device)) table.add_total(device, sum.mapped());
  for (const auto& [device, sum] : sums) table.add_total(device, sum);
  return table.text();
}

Json sessions_json(const v1::ListSessionsResponse& sessions, const v1::ListRegionsResponse& regions,
                   bool total, const HostMemories& host) {
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
                    {"host", host_json(session, host)},
                    {"slices", std::move(slices)},
                    {"shared", std::move(shared)},
                    {"regions", regions_json(counted[session.id()])}});
  }
  Json json{{"sessions", std::move(list)}};
  if (!total) return json;
  json["total"] = Json::array();
  for (const auto& [device, sum] : sums_of(sessions))
    json["total"].push_back(
        {{"device", device}, {"charged", sum.charged}, {"in_use", sum.in_use}, {"waiting", sum.waiting}});
  return json;
}

}  // namespace gpumem::cli
