#include "daemon/host/quota_fields.h"

#include "daemon/core/types.h"

namespace gpumem::host {
namespace {

std::vector<TomlReader::Field> quota_fields(TomlReader& reader, QuotaConfig& quota) {
  return {{"guarantee", reader.amount(quota.guarantee)},
          {"limit", reader.amount(quota.limit)},
          {"weight", reader.number(quota.weight, 1, core::kMaxWeight)},
          {"priority", reader.number(quota.priority, 0, core::kMaxPriority)}};
}

}  // namespace

std::vector<TomlReader::Field> quotas_fields(TomlReader& reader, QuotasConfig& quotas) {
  auto fields = quota_fields(reader, quotas.everywhere);
  fields.emplace_back("device", reader.tables([&reader, &quotas](const toml::table& table) {
    std::string uuid;
    QuotaConfig quota;
    auto device_fields = quota_fields(reader, quota);
    device_fields.emplace_back("uuid", reader.text(uuid));
    reader.read(table, "a tenant's device", device_fields);
    if (uuid.empty()) reader.fail(table.source(), "a tenant's device needs its 'uuid'");
    if (!quotas.by_device.emplace(uuid, quota).second) {
      reader.fail(table.source(), "device '" + uuid + "' is given twice for one tenant");
    }
  }));
  return fields;
}

}  // namespace gpumem::host
