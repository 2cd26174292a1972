#include <algorithm>

#include "client/cli/table.h"
#include "client/cli/views.h"
#include "gpumem/bytes.h"

namespace gpumem::cli {
namespace {

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

}  // namespace

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
