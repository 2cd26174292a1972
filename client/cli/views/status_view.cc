#include <algorithm>

#include "base/time_format.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"
#include "gpumem/bytes.h"

namespace gpumem::cli {
namespace {

std::uint64_t charged(const v1::DeviceStatus& device) {
  return device.offered() + device.active() + device.returning() + device.quarantined() + device.reserved();
}

/// Whether any device has something of it: else it is not worth a column.
bool any(const v1::GetStatusResponse& status, std::uint64_t (v1::DeviceStatus::*figure)() const) {
  return std::any_of(status.devices().begin(), status.devices().end(),
                     [&](const v1::DeviceStatus& device) { return (device.*figure)() != 0; });
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
                        {device.declared(), "were declared by sessions"},
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

std::string device_text(const v1::Reconciliation& device, WallTime now) {
  const bool was_seen = !device.seen().empty();
  std::string text = printable(device.device());
  if (was_seen) text += ", " + age_text(device.seen(), now) + " ago";
  text += "\n";
  if (!device.problem().empty()) text += "  not known: " + printable(device.problem()) + "\n";
  return was_seen ? text + figures_text(device) : text;
}

Json process_json(const v1::ForeignProcess& process) {
  return {{"pid", process.pid()},         {"uid", process.uid()},       {"user", user_name(process.uid())},
          {"command", process.command()}, {"tenant", process.tenant()}, {"bytes", process.bytes()}};
}

std::string elastic_text(const v1::DeviceStatus& device) {
  if (!device.elastic()) return "";
  return printable(device.uuid()) + ": its pool is created on demand; " + size_text(device.created()) +
         " of " + size_text(device.pool()) + " are created at present\n";
}

}  // namespace

std::string contexts_refused_text(const v1::DeviceStatus& device, WallTime now) {
  constexpr auto kLately = std::chrono::minutes(10);
  const auto last = parse_rfc3339(device.context_refused_at());
  if (!last || now - *last > kLately) return "";
  return printable(device.uuid()) + ": no memory for a context of a program, " +
         age_text(device.context_refused_at(), now) +
         " ago; since the broker started: " + std::to_string(device.contexts_refused());
}

std::string status_text(const v1::GetStatusResponse& status, WallTime now) {
  const std::string age = age_text(status.started(), now);
  std::string text = "gpumemd " + printable(status.version()) + (age.empty() ? "" : ", up " + age) + ", " +
                     printable(status.driver()) + ", " + std::to_string(status.sessions()) +
                     (status.sessions() == 1 ? " session" : " sessions") + "\n";
  if (status.devices().empty()) return text + "no devices\n";
  constexpr auto kRight = Table::Align::kRight;
  Table memory({{"DEVICE"},
                {"NAME"},
                {"TOTAL", kRight},
                {"POOL", kRight},
                {"FREE", kRight},
                {"WARM", kRight},
                {"GUARANTEED", kRight},
                {"MISSING", kRight},
                {"WAITING", kRight}});
  const bool reserved = any(status, &v1::DeviceStatus::reserved);
  const bool asked_back = any(status, &v1::DeviceStatus::asked_back);
  const bool outside = any(status, &v1::DeviceStatus::outside);
  const bool unexplained = any(status, &v1::DeviceStatus::unexplained);
  const bool contexts = any(status, &v1::DeviceStatus::contexts);
  std::vector<Table::Column> columns{{"DEVICE"},         {"CHARGED", kRight},   {"OFFERED", kRight},
                                     {"ACTIVE", kRight}, {"RETURNING", kRight}, {"QUARANTINED", kRight}};
  if (reserved) columns.push_back({"RESERVED", kRight});
  if (asked_back) columns.push_back({"ASKED BACK", kRight});
  if (outside) columns.push_back({"OUTSIDE", kRight});
  if (unexplained) columns.push_back({"UNEXPLAINED", kRight});
  if (contexts) columns.push_back({"FOR CONTEXTS", kRight});
  Table charges(std::move(columns));
  for (const v1::DeviceStatus& device : status.devices()) {
    memory.add({device.uuid(), device.name(), size_text(device.total()), size_text(device.pool()),
                size_text(device.free()), size_text(device.warm()), size_text(device.guaranteed()),
                size_text(device.missing()), std::to_string(device.waiting())});
    std::vector<std::string> cells{device.uuid(),
                                   size_text(charged(device)),
                                   size_text(device.offered()),
                                   size_text(device.active()),
                                   size_text(device.returning()),
                                   size_text(device.quarantined())};
    if (reserved) cells.push_back(size_text(device.reserved()));
    if (asked_back) cells.push_back(size_text(device.asked_back()));
    if (outside) cells.push_back(size_text(device.outside()));
    if (unexplained) cells.push_back(size_text(device.unexplained()));
    if (contexts) cells.push_back(size_text(device.contexts()));
    charges.add(std::move(cells));
  }
  text += "\n" + memory.text() + "\n" + charges.text();
  std::string elastic;
  for (const v1::DeviceStatus& device : status.devices()) elastic += elastic_text(device);
  if (!elastic.empty()) text += "\n" + elastic;
  for (const v1::DeviceStatus& device : status.devices())
    if (const std::string refused = contexts_refused_text(device, now); !refused.empty())
      text += "\n" + refused + "; see gpumem why\n";
  return text;
}

Json status_json(const v1::GetStatusResponse& status, WallTime now) {
  Json json{{"version", status.version()}, {"started", status.started()},   {"uptime_seconds", nullptr},
            {"driver", status.driver()},   {"sessions", status.sessions()}, {"devices", Json::array()}};
  if (const auto started = parse_rfc3339(status.started())) {
    json["uptime_seconds"] = std::chrono::floor<std::chrono::seconds>(now - *started).count();
  }
  for (const v1::DeviceStatus& device : status.devices()) json["devices"].push_back(device_json(device));
  return json;
}

std::string json_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string reconcile_text(const v1::ReconcileResponse& response, WallTime now) {
  std::string text;
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"PID", kRight}, {"USER"}, {"COMMAND"}, {"CHARGED TO"}, {"DEVICE"}, {"PAST BROKER", kRight}});
  bool any = false;
  for (const v1::Reconciliation& device : response.devices()) {
    text += device_text(device, now) + "\n";
    for (const v1::ForeignProcess& process : device.processes()) {
      any = true;
      table.add({std::to_string(process.pid()), user_name(process.uid()), process.command(), process.tenant(),
                 device.device(), size_text(process.bytes())});
    }
  }
  if (response.devices().empty()) return "no devices\n";
  return text + (any ? table.text() : "no process is known to hold memory past the broker\n");
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
