#include "client/cli/web/sample_json.h"

#include <algorithm>
#include <array>

#include "base/text/device_name.h"
#include "base/text/printable.h"
#include "client/cli/views/names.h"
#include "client/cli/views/text.h"

namespace gpumem::cli::web {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostRows = 200;

template <class Time>
std::int64_t milliseconds_of(Time time) {
  return std::chrono::duration_cast<milliseconds>(time).count();
}

Json device_json(const v1::DeviceSample& device, const std::vector<std::string>& devices) {
  const v1::DeviceStatus& status = device.status();
  const v1::Reconciliation& seen = device.reconciliation();
  return {{"name", device_name(status.uuid(), devices)},
          {"model", escape_non_ascii(status.name())},
          {"uuid", escape_non_ascii(status.uuid())},
          {"total", status.total()},
          {"pool", status.pool()},
          {"lent", top::lent_of(status)},
          {"reserved", status.reserved()},
          {"free", status.free()},
          {"contexts", seen.overhead()},
          {"unmanaged", seen.past_broker() + seen.declared() + seen.unexplained()},
          {"missing", status.missing()},
          {"quarantined", status.quarantined()},
          {"asked", status.asked_back()},
          {"waiting", status.waiting()},
          {"utilization", device.has_utilization() ? Json(device.utilization()) : Json()}};
}

Json extents_json(const v1::SessionInfo& session, const std::vector<std::string>& devices) {
  Json list = Json::array();
  for (const v1::SessionMemory& memory : session.memory())
    for (const v1::ExtentCount& extents : memory.extents())
      list.push_back({{"device", device_name(memory.device(), devices)},
                      {"size", extents.size()},
                      {"count", extents.count()}});
  return list;
}

Json row_json(const top::Row& row, const top::Picture& picture, const std::vector<std::string>& devices) {
  constexpr std::array<const char*, 3> kKinds{"tenant", "job", "session"};
  Json json{{"kind", kKinds.at(static_cast<std::size_t>(row.kind))},
            {"depth", row.more.size() - 1},
            {"key", escape_non_ascii(row.key)},
            {"name", row.name},
            {"user", row.user},
            {"id", row.id},
            {"pid", row.pid},
            {"devices", row.devices},
            {"state", row.state},
            {"charged", row.charged},
            {"in_use", row.in_use},
            {"peak", row.peak},
            {"asked", row.asked},
            {"waiting", row.waiting},
            {"requests", row.requests}};
  if (row.kind != top::Row::Kind::kSession) return json;
  const auto session = picture.sessions().find(row.id);
  if (session != picture.sessions().end()) json["extents"] = extents_json(session->second.info, devices);
  return json;
}

Json waiting_json(const v1::Denial& denial, const std::vector<std::string>& devices) {
  return {{"tenant", escape_non_ascii(tenant_text(denial.tenant()))},
          {"session", denial.session()},
          {"device", device_name(denial.device(), devices)},
          {"asked", denial.asked()},
          {"waited_ms", denial.waited_ms()},
          {"wait_limit_ms", denial.wait_limit_ms()},
          {"ahead", denial.waiters_ahead()},
          {"why", escape_non_ascii(with_device_names(obstacle_words(denial), devices))},
          {"command", "gpumem why " + std::to_string(denial.session())}};
}

Json point_json(const Timeline::Point& point) {
  Json devices = Json::array();
  for (const std::vector<Share>& shares : point.devices) {
    Json list = Json::array();
    for (const Share& share : shares) list.push_back(Json::array({share.name, share.bytes}));
    devices.push_back(std::move(list));
  }
  return Json::array({point.seconds, std::move(devices)});
}

}  // namespace

Timeline::Point point_of(const top::Picture& picture, const top::Moment& now) {
  Timeline::Point point{std::chrono::duration_cast<std::chrono::seconds>(now.wall.time_since_epoch()).count(),
                        {}};
  for (const std::string& device : picture.device_uuids())
    point.devices.push_back(shares_of(picture, device));
  return point;
}

Json sample_json(const top::Picture& picture, const top::Moment& now) {
  const std::vector<std::string> uuids = picture.device_uuids();
  const std::vector<top::Row> rows = top::rows_of(picture, {}, now);
  Json json{{"point", point_json(point_of(picture, now))},
            {"devices", Json::array()},
            {"rows", Json::array()},
            {"row_count", rows.size()},
            {"waiting", Json::array()}};
  for (const v1::DeviceSample& device : picture.devices())
    json["devices"].push_back(device_json(device, uuids));
  for (std::size_t i = 0; i < std::min(rows.size(), kMostRows); ++i)
    json["rows"].push_back(row_json(rows[i], picture, uuids));
  for (const v1::Denial& denial : picture.waiting()) json["waiting"].push_back(waiting_json(denial, uuids));
  return json;
}

Json event_json(const v1::Event& event, const std::vector<std::string>& devices) {
  const auto time = parse_rfc3339(event.time());
  return {{"time_ms", time ? Json(milliseconds_of(time->time_since_epoch())) : Json()},
          {"kind", escape_non_ascii(event.kind())},
          {"tenant", escape_non_ascii(tenant_text(event.tenant()))},
          {"session", event.session()},
          {"job", event.job()},
          {"pid", event.pid()},
          {"device", event.device().empty() ? "" : device_name(event.device(), devices)},
          {"words", printable(event_words(event, devices))}};
}

}  // namespace gpumem::cli::web
