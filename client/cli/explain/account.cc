#include "client/cli/explain/account.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/system/meminfo.h"
#include "base/text/device_name.h"
#include "base/text/printable.h"
#include "client/cli/views/names.h"
#include "client/cli/views/views.h"

namespace gpumem::cli {
namespace {

std::int64_t to_signed(std::uint64_t bytes) { return static_cast<std::int64_t>(bytes); }

// A broker can send any figures: sums and differences may wrap.
std::int64_t difference(std::int64_t a, std::int64_t b) {
  return to_signed(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

std::int64_t sum_of(const std::vector<Line>& parts) {
  std::uint64_t sum = 0;
  for (const Line& part : parts) sum += static_cast<std::uint64_t>(part.bytes.value_or(0));
  return to_signed(sum);
}

constexpr const char* kRestOfSessions = "of sessions that are not listed";

// Sessions come and go between two pages of a listing.
void add_rest(std::vector<Line>& lines, std::uint64_t bytes, const char* name) {
  const std::int64_t rest = difference(to_signed(bytes), sum_of(lines));
  if (rest != 0) lines.push_back(line_of("not_listed", name, static_cast<std::uint64_t>(rest)));
}

v1::DeviceStatus device_in(const Ledger& ledger, const std::string& uuid) {
  for (const v1::DeviceStatus& one : ledger.status.devices())
    if (one.uuid() == uuid) return one;
  return {};
}

/// A process with what it has of a pool, in one state.
class Holders {
 public:
  /// `state`  of the three.
  Holders(const Ledger& ledger, const std::string& device, std::uint64_t (v1::SessionMemory::*state)() const);

  /// All of them; they add up to `bytes`.
  std::vector<Line> lines(std::uint64_t bytes) const;
  /// As lines(), below their tenants, and these below their parents.
  std::vector<Line> lines_by_tenant(std::uint64_t bytes, const v1::ListTenantsResponse& tenants,
                                    const std::string& device) const;

 private:
  static Line holder(const v1::SessionInfo& session, std::uint64_t bytes);
  static void add(std::vector<Line>& lines, Line one);

  std::map<std::string, std::vector<Line>> by_tenant_;
};

Holders::Holders(const Ledger& ledger, const std::string& device,
                 std::uint64_t (v1::SessionMemory::*state)() const) {
  for (const v1::SessionInfo& session : ledger.sessions.sessions()) {
    for (const v1::SessionMemory& memory : session.memory()) {
      const std::uint64_t bytes = (memory.*state)();
      if (memory.device() == device && bytes != 0) add(by_tenant_[session.tenant()], holder(session, bytes));
    }
  }
}

Line Holders::holder(const v1::SessionInfo& session, std::uint64_t bytes) {
  const std::string command = escape_non_ascii(session.command());
  const std::string number = std::to_string(session.id());
  if (session.detached())
    return {"session", number, "kept regions (session " + number + ")", to_signed(bytes)};
  if (session.pid() == 0)
    return {"session", number, "session " + number + " " + command + " (pid not told)", to_signed(bytes)};
  const std::string pid = std::to_string(session.pid());
  return {"process", pid, pid + " " + command, to_signed(bytes)};
}

// The sessions of one process are one line.
void Holders::add(std::vector<Line>& lines, Line one) {
  const auto same = std::ranges::find_if(
      lines, [&](const Line& other) { return other.key == one.key && other.subject == one.subject; });
  if (same == lines.end())
    lines.push_back(std::move(one));
  else
    same->bytes = sum_of({*same, one});
}

std::vector<Line> Holders::lines(std::uint64_t bytes) const {
  std::vector<Line> all;
  for (const auto& [tenant, holders] : by_tenant_)
    for (const Line& one : holders) add(all, one);
  add_rest(all, bytes, kRestOfSessions);
  return all;
}

std::vector<Line> Holders::lines_by_tenant(std::uint64_t bytes, const v1::ListTenantsResponse& tenants,
                                           const std::string& device) const {
  google::protobuf::RepeatedPtrField<v1::TenantUsage> here;
  for (const v1::TenantUsage& one : tenants.tenants())
    if (one.device() == device) *here.Add() = one;
  // `open` has the line of each depth that further lines may still be parts of.
  std::vector<Line> open(1);
  const auto close_to = [&](std::size_t depth) {
    while (open.size() > depth) {
      Line done = std::move(open.back());
      open.pop_back();
      done.bytes = sum_of(done.parts);
      if (!done.parts.empty()) open.back().add(std::move(done));
    }
  };
  for (const auto& [tenant, depth] : tenant_tree(here)) {
    close_to(depth + 1);
    Line& one = open.emplace_back(Line{.key = "tenant",
                                       .subject = tenant->tenant(),
                                       .name = escape_non_ascii(tenant_text(tenant->tenant()))});
    if (const auto found = by_tenant_.find(tenant->tenant()); found != by_tenant_.end())
      one.parts = found->second;
  }
  close_to(1);
  add_rest(open.front().parts, bytes, kRestOfSessions);
  return std::move(open.front().parts);
}

Line pool_line(const Ledger& ledger, const std::string& device, std::uint64_t extents) {
  const v1::DeviceStatus status = device_in(ledger, device);
  const std::uint64_t lent = status.offered() + status.active();
  Line pool = line_of("pool", "the broker's pool", extents);
  pool.add(line_of("idle", "idle", extents - lent - status.returning() - status.quarantined()));
  Line& lent_line = pool.parts.emplace_back(line_of("lent", "lent", lent));
  lent_line.parts =
      Holders(ledger, device, &v1::SessionMemory::held).lines_by_tenant(lent, ledger.tenants, device);
  Line& returning = pool.parts.emplace_back(line_of("returning", "returning", status.returning()));
  returning.parts = Holders(ledger, device, &v1::SessionMemory::returning).lines(status.returning());
  Line& quarantined = pool.parts.emplace_back(line_of("quarantined", "quarantined", status.quarantined()));
  quarantined.parts = Holders(ledger, device, &v1::SessionMemory::quarantined).lines(status.quarantined());
  return pool;
}

std::string process_name(const v1::SeenProcess& process) {
  if (process.pid() == 0)
    return process.command().empty() ? "a process that has ended" : escape_non_ascii(process.command());
  return std::to_string(process.pid()) + " " + escape_non_ascii(process.command());
}

/// A line with a part for each process of the look that has some.
Line seen_line(const char* key, const char* name, const v1::Accounting& look, std::uint64_t bytes,
               std::uint64_t (v1::SeenProcess::*part)() const) {
  if (!look.tells_processes()) return line_of(key, name, std::nullopt);
  Line all = line_of(key, name, bytes);
  for (const v1::SeenProcess& process : look.processes()) {
    if ((process.*part)() == 0) continue;
    std::string words = process_name(process);
    if (part == &v1::SeenProcess::past_broker)
      words += process.tenant().empty() ? ", charged to nobody"
                                        : ", charged to " + escape_non_ascii(tenant_text(process.tenant()));
    all.add({"process", std::to_string(process.pid()), std::move(words), to_signed((process.*part)())});
  }
  add_rest(all.parts, bytes, "of processes that are not listed");
  return all;
}

bool is_host(const v1::Reconciliation& look) { return look.device() == kHostStore; }

Line used_line(const Ledger& ledger, const v1::Reconciliation& look) {
  const v1::Accounting& seen = look.accounting();
  const bool was_seen = look.has_accounting();
  const std::uint64_t extents = was_seen ? look.extents() : device_in(ledger, look.device()).created();
  Line used = line_of("used", "used", was_seen ? std::optional(look.used()) : std::nullopt);
  used.add(pool_line(ledger, look.device(), extents));
  used.add(seen_line("contexts", "contexts", seen, seen.contexts(), &v1::SeenProcess::context));
  Line declared =
      line_of("declared", "declared by sessions", was_seen ? std::optional(seen.declared()) : std::nullopt);
  declared.parts = seen_line("declared", "", seen, seen.declared(), &v1::SeenProcess::declared).parts;
  used.add(std::move(declared));
  used.add(is_host(look) ? line_of("past_broker", "past the broker", std::nullopt)
                         : seen_line("past_broker", "past the broker", seen, seen.past_broker(),
                                     &v1::SeenProcess::past_broker));
  const auto known = static_cast<std::uint64_t>(sum_of(used.parts));
  used.add(
      line_of("unexplained", "unexplained", was_seen ? std::optional(look.used() - known) : std::nullopt));
  return used;
}

Line total_line(const Ledger& ledger, const v1::Reconciliation& look) {
  const v1::Accounting& seen = look.accounting();
  const auto told = [&](std::uint64_t bytes) {
    return seen.total() != 0 ? std::optional(bytes) : std::nullopt;
  };
  Line total = line_of("total", "total", told(seen.total()));
  total.add(line_of("free", "free", told(seen.free())));
  const auto rest = told(seen.total() - seen.free() - look.used());
  total.add(is_host(look) ? line_of("others", "other memory of the machine", rest)
                          : line_of("driver_reserved", "reserved by the driver", rest));
  total.add(used_line(ledger, look));
  return total;
}

/// Notes in `after` how its lines differ from those of `before`. Answers whether any does.
bool note_moves(const Line& before, Line& after) {
  after.moved = difference(after.bytes.value_or(0), before.bytes.value_or(0));
  bool moved = after.moved != 0;
  const auto is_same = [](const Line& a, const Line& b) { return a.key == b.key && a.subject == b.subject; };
  for (const Line& old : before.parts) {
    const auto found = std::ranges::find_if(after.parts, [&](const Line& one) { return is_same(one, old); });
    if (found != after.parts.end()) continue;
    Line gone = old;
    gone.bytes = 0;
    gone.parts.clear();
    after.add(std::move(gone));
  }
  for (Line& one : after.parts) {
    const auto found = std::ranges::find_if(before.parts, [&](const Line& old) { return is_same(one, old); });
    moved = note_moves(found == before.parts.end() ? Line{} : *found, one) || moved;
  }
  return moved;
}

std::uint64_t estimated_in(const v1::Accounting& look) {
  std::uint64_t sum = 0;
  for (const v1::SeenProcess& one : look.processes()) sum += one.estimate() ? one.context() : 0;
  return sum;
}

// The sessions of one process are one entry.
void add_declared(v1::Accounting& sum, const v1::SessionInfo& session, std::uint64_t bytes) {
  const auto same = std::ranges::find_if(*sum.mutable_processes(), [&](const v1::SeenProcess& one) {
    return one.pid() != 0 && one.pid() == session.pid();
  });
  if (same != sum.mutable_processes()->end()) return same->set_declared(same->declared() + bytes);
  v1::SeenProcess& one = *sum.add_processes();
  one.set_pid(session.pid());
  one.set_uid(session.uid());
  one.set_command(session.pid() != 0 ? session.command()
                                     : "session " + std::to_string(session.id()) + " (pid not told)");
  one.set_tenant(session.tenant());
  one.set_declared(bytes);
}

}  // namespace

Line line_of(const char* key, std::string name, std::optional<std::uint64_t> bytes) {
  return {
      .key = key, .name = std::move(name), .bytes = bytes ? std::optional(to_signed(*bytes)) : std::nullopt};
}

const Line& Line::part(const std::string& of_key) const {
  const auto found = std::ranges::find_if(parts, [&](const Line& one) { return one.key == of_key; });
  GPUMEM_CHECK(found != parts.end(), "the line has this part");
  return *found;
}

std::optional<v1::Reconciliation> look_at_host(const Ledger& ledger, std::string_view meminfo) {
  const v1::DeviceStatus status = device_in(ledger, std::string(kHostStore));
  if (status.uuid().empty()) return std::nullopt;
  v1::Reconciliation look;
  look.set_device(status.uuid());
  look.set_extents(status.created());
  look.set_used(status.created() + status.outside());
  v1::Accounting& sum = *look.mutable_accounting();
  sum.set_declared(status.outside());
  sum.set_tells_processes(true);
  const auto total = meminfo_figure(meminfo, "MemTotal"), free = meminfo_figure(meminfo, "MemAvailable");
  if (total && free) {
    sum.set_total(total->count);
    sum.set_free(free->count);
  }
  for (const v1::SessionInfo& session : ledger.sessions.sessions())
    for (const v1::SharedMemory& shared : session.shared())
      if (shared.device() == look.device() && shared.declared() != 0)
        add_declared(sum, session, shared.declared());
  return look;
}

Account account_of(const Ledger& before, const v1::Reconciliation& look, const Ledger& after) {
  Account account{.device = look.device(),
                  .seen = look.seen(),
                  .problem = look.problem(),
                  .sum = total_line(after, look),
                  .moving = look.accounting().moving(),
                  .reserved_by_jobs = device_in(after, look.device()).reserved(),
                  .estimated = estimated_in(look.accounting())};
  const std::uint64_t created = device_in(before, look.device()).created();
  const bool same_pool = created == device_in(after, look.device()).created() &&
                         (!look.has_accounting() || created == look.extents());
  const bool moved = note_moves(total_line(before, look), account.sum);
  account.is_settled = same_pool && !moved && account.moving == 0;
  return account;
}

}  // namespace gpumem::cli
