#include "client/cli/top/rows.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>

#include "base/text/printable.h"
#include "client/cli/views/names.h"

namespace gpumem::cli::top {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Node {
  Row row;
  std::string above;  // its key; empty: none
  std::vector<Node*> below{};
};
using Nodes = std::map<std::string, Node>;

std::string tenant_key(const std::string& name) { return "t" + name; }
std::string job_key(std::uint64_t id) { return "j" + std::to_string(id); }
std::string session_key(std::uint64_t id) { return "s" + std::to_string(id); }

seconds age_of(const std::string& since, WallTime now) {
  const auto then = parse_rfc3339(since);
  return then ? std::max(seconds(0), std::chrono::floor<seconds>(now - *then)) : seconds(0);
}

std::string with_label(std::string name, const std::string& label) {
  return escape_non_ascii(label.empty() || label == name ? name : name + " " + label);
}

// The places of the devices that the session has slices or memory of.
std::string devices_of(const v1::SessionInfo& session, const std::vector<std::string>& uuids) {
  std::set<std::string> used;
  for (const v1::SliceInfo& slice : session.slices()) used.insert(slice.device());
  for (const v1::SharedMemory& shared : session.shared()) used.insert(shared.device());
  std::string text;
  for (std::size_t i = 0; i < uuids.size(); ++i) {
    if (!used.contains(uuids[i])) continue;
    text += (text.empty() ? "" : ",") + (uuids[i] == kHostStore ? uuids[i] : std::to_string(i));
  }
  return text;
}

std::string state_of(const v1::SessionInfo& session) {
  return session.detached() ? "kept" : session.ended() ? "ended" : "";
}

/// What rows of sessions are made of.
struct Source {
  const Picture& picture;
  const Moment& now;
  const std::vector<std::string> devices = picture.device_uuids();
};

std::uint64_t charged_of(const v1::SessionInfo& session) {
  std::uint64_t charged = 0;
  for (const v1::SliceInfo& slice : session.slices()) charged += slice.charged();
  for (const v1::SharedMemory& shared : session.shared()) charged += shared.charged() + shared.declared();
  return charged;
}

// What requests of the session wait for. Those for slices are in its figures already, reservations are not.
void add_requests(const Picture& picture, std::uint64_t session, Row& row) {
  std::uint64_t asked = 0;
  for (const v1::Denial& denial : picture.waiting()) {
    if (denial.session() != session) continue;
    asked += denial.asked();
    row.waits = std::max(row.waits.value_or(milliseconds(0)), milliseconds(denial.waited_ms()));
  }
  row.waiting = std::max(row.waiting, asked);
}

Row row_of(const Picture::Session& session, const Source& source) {
  const v1::SessionInfo& info = session.info;
  const Picture& picture = source.picture;
  Row row{.kind = Row::Kind::kSession, .key = session_key(info.id())};
  row.name = with_label(info.command(), info.label());
  row.user = escape_non_ascii(user_name(info.uid()));
  row.devices = devices_of(info, source.devices);
  row.charged = charged_of(info);
  row.state = state_of(info);
  row.id = info.id();
  row.pid = info.pid();
  row.uid = info.uid();
  row.age = age_of(info.since(), source.now.wall);
  row.quiet = std::chrono::duration_cast<seconds>(source.now.steady - session.changed);
  for (const v1::SliceInfo& slice : info.slices()) {
    row.in_use += slice.in_use();
    row.peak += slice.peak();
    row.waiting += slice.waiting();
  }
  for (const v1::SharedMemory& shared : info.shared()) row.in_use += shared.charged() + shared.imported();
  const auto asked = picture.asked().find(info.id());
  if (asked != picture.asked().end()) row.asked = asked->second.bytes;
  add_requests(picture, info.id(), row);
  row.requests = row.waiting != 0 ? 1 : 0;
  return row;
}

void add_tenants(const Picture& picture, Nodes& nodes) {
  for (const auto& [key, usage] : picture.tenants()) {
    Node& node = nodes[tenant_key(usage.tenant())];
    node.row.key = tenant_key(usage.tenant());
    node.row.name = escape_non_ascii(tenant_text(usage.tenant()));
    node.row.charged += usage.charged();
    node.row.requests += usage.waiting();
    node.above = usage.parent().empty() ? "" : tenant_key(usage.parent());
  }
}

void add_jobs(const Picture& picture, const Moment& now, Nodes& nodes) {
  for (const auto& [id, job] : picture.jobs()) {
    Node& node = nodes[job_key(id)];
    node.row = {.kind = Row::Kind::kJob, .key = job_key(id)};
    node.row.name = with_label("job " + std::to_string(id), job.label());
    node.row.id = id;
    node.row.age = age_of(job.since(), now.wall);
    for (const v1::JobUsage& usage : job.devices()) {
      node.row.charged += usage.charged();
      node.row.requests += usage.waiting();
    }
    // The reservation is asked for by the owner, which stands beside the job.
    const auto owner = picture.sessions().find(job.owner());
    if (owner != picture.sessions().end() && owner->second.info.job() != id)
      add_requests(picture, job.owner(), node.row);
    node.above = tenant_key(job.tenant());
  }
}

void add_sessions(const Picture& picture, const Moment& now, Nodes& nodes) {
  const Source source{picture, now};
  for (const auto& [id, session] : picture.sessions()) {
    const std::string job = job_key(session.info.job());
    nodes[session_key(id)] = {row_of(session, source), session.info.job() != 0 && nodes.contains(job)
                                                           ? job
                                                           : tenant_key(session.info.tenant())};
  }
}

// Adds figures of sessions to all rows above. Tenants and jobs have charges of their own.
void add_up(Nodes& nodes) {
  for (auto& [key, node] : nodes) {
    if (node.row.kind != Row::Kind::kSession) continue;
    std::size_t steps = 0;
    for (auto above = nodes.find(node.above); above != nodes.end() && steps < nodes.size();
         above = nodes.find(above->second.above), ++steps) {
      Row& row = above->second.row;
      row.in_use += node.row.in_use;
      row.peak += node.row.peak;
      row.asked += node.row.asked;
      row.waiting += node.row.waiting;
      if (node.row.waits) row.waits = std::max(row.waits.value_or(milliseconds(0)), *node.row.waits);
    }
  }
}

std::int64_t amount_of(const Row& row, Sort sort) {
  switch (sort) {
    case Sort::kCharged: return static_cast<std::int64_t>(row.charged);
    case Sort::kInUse: return static_cast<std::int64_t>(row.in_use);
    case Sort::kPeak: return static_cast<std::int64_t>(row.peak);
    case Sort::kAsked: return static_cast<std::int64_t>(row.asked);
    case Sort::kWaiting: return static_cast<std::int64_t>(row.waiting);
    case Sort::kAge: return row.age.count();
    case Sort::kQuiet: return row.quiet.count();
    case Sort::kName: break;
  }
  return 0;
}

void sort_nodes(std::vector<Node*>& nodes, Sort sort) {
  std::ranges::sort(nodes, [&](const Node* a, const Node* b) {
    const std::int64_t first = amount_of(a->row, sort), second = amount_of(b->row, sort);
    if (first != second) return first > second;
    return std::tie(a->row.name, a->row.key) < std::tie(b->row.name, b->row.key);
  });
}

bool is_shown(const Node& node, const RowChoice& choice) {
  const bool has_something = node.row.kind != Row::Kind::kTenant || choice.has_empty ||
                             node.row.charged != 0 || node.row.requests != 0;
  if (has_something && (choice.filter.empty() || matches(node.row, choice.filter))) return true;
  return std::ranges::any_of(node.below, [&](const Node* one) { return is_shown(*one, choice); });
}

/// Lists the nodes as rows, each with those below it.
class Lister {
 public:
  explicit Lister(const RowChoice& choice) : choice_(choice) {}

  void add(std::vector<Node*> nodes, const std::vector<bool>& above) {
    std::erase_if(nodes, [&](const Node* node) { return !is_shown(*node, choice_); });
    sort_nodes(nodes, choice_.sort);
    for (const Node* node : nodes) {
      Row row = node->row;
      row.more = above;
      row.more.push_back(node != nodes.back());
      row.has_more = !node->below.empty();
      row.is_folded = row.has_more && choice_.folded.contains(row.key);
      rows.push_back(row);
      if (!row.is_folded) add(node->below, row.more);
    }
  }

  std::vector<Row> rows;

 private:
  const RowChoice& choice_;
};

// A tenant whose parent is not listed stands at the top. Each row comes once, also where parents go round.
std::vector<Node*> tree_of(Nodes& nodes) {
  std::vector<Node*> tops;
  for (auto& [key, node] : nodes) {
    const auto above = nodes.find(node.above);
    bool goes_round = false;
    std::size_t steps = 0;
    for (auto one = above; one != nodes.end() && !goes_round; one = nodes.find(one->second.above))
      goes_round = ++steps > nodes.size();
    (above == nodes.end() || goes_round ? tops : above->second.below).push_back(&node);
  }
  return tops;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

bool matches(const Row& row, const std::string& words) {
  const std::string pid = row.pid == 0 ? "" : std::to_string(row.pid);
  const std::string id = row.id == 0 ? "" : std::to_string(row.id);
  return lower(row.name + " " + row.user + " " + pid + " " + id + " " + row.state).find(lower(words)) !=
         std::string::npos;
}

std::vector<Row> rows_of(const Picture& picture, const RowChoice& choice, const Moment& now) {
  Nodes nodes;
  if (!choice.is_flat) {
    add_tenants(picture, nodes);
    add_jobs(picture, now, nodes);
  }
  add_sessions(picture, now, nodes);
  add_up(nodes);
  Lister lister(choice);
  lister.add(tree_of(nodes), {});
  return std::move(lister.rows);
}

std::vector<Row> quiet_sessions(const Picture& picture, std::size_t most, const Moment& now) {
  constexpr std::chrono::minutes kLong{10};
  constexpr std::uint64_t kMuch = 256ULL << 20;
  std::vector<std::pair<std::uint64_t, const Picture::Session*>> found;
  for (const auto& [id, session] : picture.sessions()) {
    const std::uint64_t charged = charged_of(session.info);
    const bool waits =
        std::ranges::any_of(session.info.slices(), [](const auto& slice) { return slice.waiting() != 0; });
    if (now.steady - session.changed >= kLong && charged >= kMuch && !waits)
      found.emplace_back(charged, &session);
  }
  std::ranges::stable_sort(found, [](const auto& a, const auto& b) { return a.first > b.first; });
  found.resize(std::min(found.size(), most));
  const Source source{picture, now};
  std::vector<Row> rows;
  rows.reserve(found.size());
  for (const auto& [charged, session] : found) rows.push_back(row_of(*session, source));
  return rows;
}

}  // namespace gpumem::cli::top
