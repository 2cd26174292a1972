#include "client/cli/web/accounts.h"

#include <vector>

#include "base/text/printable.h"
#include "client/cli/monitor/history_client.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/views/names.h"
#include "client/cli/views/views.h"

namespace gpumem::cli::web {
namespace {

using Amounts = std::vector<std::pair<const char*, double>>;

/// Rows under construction; `devices`  UUIDs, by their places.
class Rows {
 public:
  explicit Rows(std::vector<std::string> devices) : devices_(std::move(devices)) {}

  void add(const std::string& tenant, const std::string& device, double charged, double kept,
           double waiting) {
    if (tenant.empty()) return;  // all of the device
    list_.push_back({{"tenant", escape_non_ascii(tenant_text(tenant))},
                     {"device", escape_non_ascii(device_name(device, devices_))},
                     {"charged", charged},
                     {"kept", kept},
                     {"waiting", waiting}});
  }
  Json json() { return {{"rows", std::move(list_)}}; }

 private:
  const std::vector<std::string> devices_;
  Json list_ = Json::array();
};

Result<Json> from_history(const std::filesystem::path& runtime_folder, std::int64_t since, Rows rows) {
  const auto answer =
      ask_history(runtime_folder, "GET", "/v1/usage?since=" + std::to_string(since) + "&by=tenant,device");
  if (!answer) return answer.error();
  const auto list = answer->find("rows");
  if (list == answer->end() || !list->is_array()) return rows.json();
  for (const nlohmann::json& row : *list)
    rows.add(text_in(row, "tenant"), text_in(row, "device"), account_charge(row), number_in(row, "kept"),
             number_in(row, "waiting"));
  return rows.json();
}

}  // namespace

Result<Json> accounts_json(const std::filesystem::path& runtime_folder, std::optional<std::int64_t> since) {
  const auto monitor = Monitor::connect(runtime_folder);
  const auto status = monitor ? monitor->status() : Result<v1::GetStatusResponse>(monitor.error());
  Rows rows(status ? uuids_of(*status) : std::vector<std::string>());
  if (since) return from_history(runtime_folder, *since, std::move(rows));
  if (!status) return status.error();
  const auto accounts = monitor->accounts();
  if (!accounts) return accounts.error();
  for (const v1::Account& one : accounts->accounts())
    rows.add(one.tenant(), one.device(), account_charge(one), one.kept(), one.waiting());
  return rows.json();
}

}  // namespace gpumem::cli::web
