#include <algorithm>

#include "base/text/time_format.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"
#include "gpumem/bytes.h"

namespace gpumem::cli {
namespace {

std::uint64_t charged(const v1::DeviceStatus& device) {
  return device.offered() + device.active() + device.returning() + device.quarantined() + device.reserved();
}

Json device_json(const v1::DeviceStatus& device) {
  return {{"uuid", device.uuid()},
          {"name", device.name()},
          {"total", device.total()},
          {"pool", device.pool()},
          {"free", device.free()},
          {"warm", device.warm()},
          {"charged", charged(device)},
          {"offered", device.offered()},
          {"active", device.active()},
          {"returning", device.returning()},
          {"quarantined", device.quarantined()},
          {"reserved", device.reserved()},
          {"guaranteed", device.guaranteed()},
          {"missing", device.missing()},
          {"elastic", device.elastic()},
          {"created", device.created()},
          {"contexts", device.contexts()},
          {"contexts_refused", device.contexts_refused()},
          {"context_refused_at",
           device.context_refused_at().empty() ? Json() : Json(device.context_refused_at())},
          {"lend_guarantees", device.lend_guarantees()},
          {"asked_back", device.asked_back()},
          {"outside", device.outside()},
          {"unexplained", device.unexplained()},
          {"waiting", device.waiting()}};
}

struct Line {
  std::uint64_t bytes;
  const char* words;
};

std::string figures_text(const v1::Reconciliation& device) {
  const Line lines[] = {{device.used(), "are used, as the driver says, of which"},
                        {device.extents(), "are extents of the broker's pool, lent or not"},
                        {device.overhead(), "are contexts of sessions"},
                        {device.declared(), "were declared by sessions, whether they are used yet or not"},
                        {device.past_broker(), "were taken past the broker"},
                        {device.unexplained(), "nobody is known to hold"}};
  std::size_t width = 0;
  for (const Line& line : lines) width = std::max(width, size_text(line.bytes).size());
  std::string text;
  for (const Line& line : lines) {
    const std::string bytes = size_text(line.bytes);
    text += "  " + std::string(width - bytes.size(), ' ') + bytes + "  " + line.words + "\n";
  }
  return text;
}

std::string device_text(const v1::Reconciliation& device, WallTime now, const Layout& layout) {
  const bool was_seen = !device.seen().empty();
  std::string text = printable(layout.device(device.device()));
  if (was_seen) text += ", " + age_text(device.seen(), now) + " ago";
  text += "\n";
  if (!device.problem().empty()) text += "  not known: " + printable(device.problem()) + "\n";
  return was_seen ? text + figures_text(device) : text;
}

Json process_json(const v1::ForeignProcess& process) {
  return {{"pid", process.pid()},         {"uid", process.uid()},       {"user", user_name(process.uid())},
          {"command", process.command()}, {"tenant", process.tenant()}, {"bytes", process.bytes()}};
}

std::string elastic_text(const v1::DeviceStatus& device, const Layout& layout) {
  if (!device.elastic()) return "";
  return printable(layout.device(device.uuid())) + ": its pool is created on demand; " +
         size_text(device.created()) + " of " + size_text(device.pool()) + " are created at present\n";
}

}  // namespace

std::vector<std::string> uuids_of(const v1::GetStatusResponse& status) {
  std::vector<std::string> uuids;
  for (const v1::DeviceStatus& device : status.devices()) uuids.push_back(device.uuid());
  return uuids;
}

std::string contexts_refused_text(const v1::DeviceStatus& device, WallTime now, const Layout& layout) {
  constexpr auto kLately = std::chrono::minutes(10);
  const auto last = parse_rfc3339(device.context_refused_at());
  if (!last || now - *last > kLately) return "";
  return printable(layout.device(device.uuid())) + ": no memory for a context of a program, " +
         age_text(device.context_refused_at(), now) +
         " ago; since the broker started: " + std::to_string(device.contexts_refused());
}

std::string status_text(const v1::GetStatusResponse& status, WallTime now, const Layout& layout) {
  const std::string age = age_text(status.started(), now);
  std::string text = "gpumemd " + printable(status.version()) + (age.empty() ? "" : ", up " + age) + ", " +
                     printable(status.driver()) + ", " + std::to_string(status.sessions()) +
                     (status.sessions() == 1 ? " session" : " sessions") + "\n";
  if (!status.not_lending().empty()) text += printable(status.not_lending()) + "\n";
  if (status.devices().empty()) return text + "no devices\n";
  constexpr auto kRight = Table::Align::kRight;
  Table memory({{.title = "DEVICE"},
                {.title = "NAME", .least = 8},
                {.title = "TOTAL", .align = kRight, .rank = 2},
                {.title = "POOL", .align = kRight},
                {.title = "FREE", .align = kRight},
                {.title = "WARM", .align = kRight, .rank = 3},
                {.title = "GUARANTEED", .align = kRight, .rank = 1},
                {.title = "MISSING", .align = kRight, .usual = "0B", .alerts = true},
                {.title = "WAITING", .align = kRight, .usual = "0", .alerts = true}});
  const auto bytes = [](const char* title, int rank, bool alerts) {
    return Table::Column{
        .title = title, .align = kRight, .usual = "0B", .rank = rank, .least = 0, .alerts = alerts};
  };
  Table charges({{.title = "DEVICE"},
                 {.title = "CHARGED", .align = kRight},
                 bytes("OFFERED", 4, false),
                 {.title = "ACTIVE", .align = kRight},
                 bytes("RETURNING", 3, false),
                 bytes("QUARANTINED", 0, true),
                 bytes("RESERVED", 2, false),
                 bytes("ASKED BACK", 1, true),
                 bytes("OUTSIDE", 5, false),
                 bytes("UNEXPLAINED", 0, true),
                 bytes("FOR CONTEXTS", 6, false)});
  for (const v1::DeviceStatus& device : status.devices()) {
    const std::string name = layout.device(device.uuid());
    memory.add({name, device.name(), size_text(device.total()), size_text(device.pool()),
                size_text(device.free()), size_text(device.warm()), size_text(device.guaranteed()),
                size_text(device.missing()), std::to_string(device.waiting())});
    charges.add({name, size_text(charged(device)), size_text(device.offered()), size_text(device.active()),
                 size_text(device.returning()), size_text(device.quarantined()), size_text(device.reserved()),
                 size_text(device.asked_back()), size_text(device.outside()), size_text(device.unexplained()),
                 size_text(device.contexts())});
  }
  text += "\n" + memory.text(layout) + "\n" + charges.text(layout);
  std::string elastic;
  for (const v1::DeviceStatus& device : status.devices()) elastic += elastic_text(device, layout);
  if (!elastic.empty()) text += "\n" + elastic;
  for (const v1::DeviceStatus& device : status.devices())
    if (const std::string refused = contexts_refused_text(device, now, layout); !refused.empty())
      text += "\n" + refused + "; see gpumem why\n";
  return text;
}

Json status_json(const v1::GetStatusResponse& status, WallTime now) {
  Json json{{"version", status.version()}, {"started", status.started()},   {"uptime_seconds", nullptr},
            {"driver", status.driver()},   {"sessions", status.sessions()}, {"devices", Json::array()}};
  json["not_lending"] = status.not_lending().empty() ? Json() : Json(status.not_lending());
  if (const auto started = parse_rfc3339(status.started())) {
    json["uptime_seconds"] = std::chrono::floor<std::chrono::seconds>(now - *started).count();
  }
  for (const v1::DeviceStatus& device : status.devices()) json["devices"].push_back(device_json(device));
  return json;
}

std::string json_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string reconcile_text(const v1::ReconcileResponse& response, WallTime now, const Layout& layout) {
  std::string text;
  constexpr auto kRight = Table::Align::kRight;
  Table table({{.title = "PID", .align = kRight},
               {.title = "USER", .least = 8},
               {.title = "COMMAND", .least = 8},
               {.title = "CHARGED TO", .least = 8},
               {.title = "DEVICE"},
               {.title = "PAST BROKER", .align = kRight, .alerts = true}});
  bool any = false;
  for (const v1::Reconciliation& device : response.devices()) {
    text += device_text(device, now, layout) + "\n";
    for (const v1::ForeignProcess& process : device.processes()) {
      any = true;
      table.add({std::to_string(process.pid()), user_name(process.uid()), process.command(),
                 tenant_text(process.tenant()), layout.device(device.device()), size_text(process.bytes())});
    }
  }
  if (response.devices().empty()) return "no devices\n";
  return text + (any ? table.text(layout) : "no process is known to hold memory past the broker\n");
}

Json reconcile_json(const v1::ReconcileResponse& response) {
  Json devices = Json::array();
  for (const v1::Reconciliation& device : response.devices()) {
    Json processes = Json::array();
    for (const v1::ForeignProcess& process : device.processes()) processes.push_back(process_json(process));
    devices.push_back({{"device", device.device()},
                       {"seen", device.seen().empty() ? Json() : Json(device.seen())},
                       {"used", device.used()},
                       {"extents", device.extents()},
                       {"overhead", device.overhead()},
                       {"declared", device.declared()},
                       {"past_broker", device.past_broker()},
                       {"unexplained", device.unexplained()},
                       {"processes", std::move(processes)},
                       {"problem", device.problem().empty() ? Json() : Json(device.problem())}});
  }
  return {{"devices", std::move(devices)}};
}

}  // namespace gpumem::cli
