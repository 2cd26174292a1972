#include "client/cli/commands/commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "client/cli/commands/usage.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/views/text.h"
#include "client/process/runtime_folder.h"
#include "gpumem/bytes.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::cli {
namespace {

using Lines = google::protobuf::RepeatedPtrField<v1::QuotaInfo>;

constexpr auto kRight = Table::Align::kRight;

Json to_json(const Lines& lines) {
  Json list = Json::array();
  for (const v1::QuotaInfo& line : lines) {
    list.push_back({{"tenant", line.tenant()},
                    {"parent", line.parent()},
                    {"device", line.device()},
                    {"guarantee", line.guarantee()},
                    {"limit", line.limit()},
                    {"weight", line.weight()},
                    {"priority", line.priority()},
                    {"set", line.set_at_run_time()}});
  }
  return list;
}

std::string arrow(const std::string& before, const std::string& after) {
  return before == after ? after : before + " -> " + after;
}

// What was the same tenant's quota on the same device.
v1::QuotaInfo before_of(const v1::QuotaInfo& after, const Lines& lines) {
  const auto found = std::ranges::find(lines, after.device(), &v1::QuotaInfo::device);
  return found == lines.end() ? after : *found;
}

constexpr std::chrono::seconds kQuotaTimeout{30};  // the broker waits for its disk

Result<v1::ListQuotasResponse> list_quotas(const std::filesystem::path& folder) {
  return call_broker<v1::Admin>(folder, &v1::Admin::Stub::ListQuotas, v1::ListQuotasRequest(), kQuotaTimeout);
}

// A device that is not lent any more may have a quota: of such a one the whole UUID is needed.
Result<std::string> device_of_quota(const Monitor& monitor, const std::string& text) {
  constexpr std::size_t kUuid = 40;
  const auto status = monitor.status();
  if (!status) return status.error();
  auto found = find_device(*status, text);
  if (found || text.size() >= kUuid) return found ? *found : text;
  return found.error().in("--device");
}

// What the command line says.
struct Arguments {
  v1::SetQuotaRequest request;
  std::optional<std::uint64_t> revision;
  TableFlags flags;
};

// The tenant of the quotas that `text` names, as find_tenant().
std::string tenant_in(const v1::ListQuotasResponse& quotas, const std::string& text) {
  const bool is_tenant = std::ranges::count(quotas.quotas(), text, &v1::QuotaInfo::tenant) != 0;
  return is_tenant ? text : tenant_of_user(text);
}

Result<std::string> list(const std::filesystem::path& folder, const Arguments& arguments) {
  auto quotas = list_quotas(folder);
  if (!quotas) return quotas.error();
  if (const std::string& text = arguments.request.tenant(); !text.empty()) {
    const std::string tenant = tenant_in(*quotas, text);
    Lines& lines = *quotas->mutable_quotas();
    const auto is_other = [&](const v1::QuotaInfo& line) { return line.tenant() != tenant; };
    lines.erase(std::remove_if(lines.begin(), lines.end(), is_other), lines.end());
    if (lines.empty()) {
      const auto monitor = Monitor::connect(folder);
      const bool is_known = !monitor || unknown_tenants(*monitor, {tenant}).empty();
      return Error{Code::kNotFound,
                   "tenant '" + tenant +
                       "' has no quota of its own; `gpumem quota show` lists those that have" +
                       (is_known ? ", and `gpumem why '" + tenant + "'` says what holds"
                                 : "; no tenant of this name is known now, see `gpumem tenants`")};
    }
  }
  if (arguments.flags.json) return json_text(quotas_json(*quotas));
  auto monitor = Monitor::connect(folder);
  if (!monitor) return monitor.error();
  return quotas_text(*quotas, layout_for(*monitor, arguments.flags.is_long));
}

// Based on the revision that is in force now, if none is given.
Result<std::string> change(const std::filesystem::path& folder, const Arguments& arguments) {
  v1::SetQuotaRequest request = arguments.request;
  auto monitor = Monitor::connect(folder);  // before anything is changed
  if (!monitor) return monitor.error();
  if (!request.device().empty()) {
    auto device = device_of_quota(*monitor, request.device());
    if (!device) return device.error();
    request.set_device(*device);
  }
  auto quotas = list_quotas(folder);
  if (!quotas) return quotas.error();
  request.set_tenant(tenant_in(*quotas, request.tenant()));
  request.set_revision(arguments.revision.value_or(quotas->revision()));
  auto changed = call_broker<v1::Admin>(folder, &v1::Admin::Stub::SetQuota, request, kQuotaTimeout);
  const Layout layout = layout_for(*monitor, arguments.flags.is_long);
  if (!changed)
    return Error{changed.error().code, with_device_names(changed.error().message, layout.devices)};
  if (arguments.flags.json) return json_text(quota_change_json(*changed));
  const bool any = changed->revision() != request.revision();
  return any ? quota_change_text(*changed, layout)
             : "nothing was set for tenant '" + request.tenant() + "'" +
                   (request.device().empty() ? "" : " on " + layout.device(request.device())) +
                   ": nothing is changed\nrevision " + std::to_string(changed->revision()) + "\n";
}

CLI::Option* add_tenant(CLI::App& command, Arguments& arguments) {
  return command
      .add_option_function<std::string>(
          "TENANT", [&](const std::string& tenant) { arguments.request.set_tenant(tenant); },
          "Name of a tenant, or of a user without one (or uid:N)")
      ->check(refuse_unprintable);
}

CLI::App* add_change(CLI::App& quota, const char* name, const char* about, Arguments& arguments) {
  CLI::App* command = quota.add_subcommand(name, about);
  add_tenant(*command, arguments)->required();
  command
      ->add_option_function<std::string>(
          "--device", [&](const std::string& device) { arguments.request.set_device(device); },
          "Only on this device: UUID, or its place in `gpumem status` [every device]")
      ->check(refuse_unprintable)
      ->type_name("DEVICE");
  add_number(
      *command, "--revision", [&](std::uint64_t revision) { arguments.revision = revision; },
      "Only if the quotas are still at revision N");
  add_table_flags(*command, arguments.flags);
  return command;
}

// The broker is given the text, of which it knows the pool.
void add_amount(CLI::App& command, const char* option, std::function<void(const std::string&)> store,
                const char* about) {
  const auto read = [option, store = std::move(store)](const std::string& text) {
    if (const auto amount = parse_amount(text); !amount)
      throw CLI::ValidationError(option, amount.error().message);
    store(text);
  };
  command.add_option_function<std::string>(option, read, about)->type_name("AMOUNT");
}

void refuse_no_change(const v1::SetQuotaRequest& request) {
  if (request.has_guarantee() || request.has_limit() || request.has_weight() || request.has_priority())
    return;
  throw CLI::ValidationError("gpumem quota set",
                             "nothing is to be changed: give --guarantee, --limit, --weight or --priority");
}

CLI::App* add_set(CLI::App& quota, Arguments& arguments) {
  CLI::App* set = add_change(quota, "set", "Set parts of a tenant's quota, at once and for good", arguments);
  v1::SetQuotaRequest& request = arguments.request;
  add_amount(
      *set, "--guarantee", [&request](const std::string& amount) { request.set_guarantee(amount); },
      "What it can always have: 8GiB, 25% (of the pool)");
  add_amount(
      *set, "--limit", [&request](const std::string& amount) { request.set_limit(amount); },
      "What it can have at most");
  add_number(*set, "--weight",
             [&request](std::uint64_t weight) { request.set_weight(static_cast<std::uint32_t>(weight)); },
             "Of its share in what nobody is promised, 1 to 10000", {1, 10'000});
  add_number(
      *set, "--priority",
      [&request](std::uint64_t priority) { request.set_priority(static_cast<std::uint32_t>(priority)); },
      "Whose bursts go first, 0 to 9", {0, 9});
  set->callback([&request] { refuse_no_change(request); });
  return set;
}

}  // namespace

std::string quotas_text(const v1::ListQuotasResponse& quotas, const Layout& layout) {
  Table table({{.title = "TENANT", .least = 20},
               {.title = "DEVICE"},
               {.title = "GUARANTEE", .align = kRight},
               {.title = "LIMIT", .align = kRight},
               {.title = "WEIGHT", .align = kRight},
               {.title = "PRIORITY", .align = kRight},
               {.title = "SET"}});
  for (const auto& [line, depth] : tenant_tree(quotas.quotas())) {
    table.add({std::string(2 * depth, ' ') + tenant_text(line->tenant()), layout.device(line->device()),
               size_text(line->guarantee()), size_text(line->limit()), std::to_string(line->weight()),
               std::to_string(line->priority()), line->set_at_run_time() ? "yes" : ""});
  }
  const std::string revision = "revision " + std::to_string(quotas.revision()) + "\n";
  return quotas.quotas().empty() ? "no tenants\n" + revision : table.text(layout) + revision;
}

Json quotas_json(const v1::ListQuotasResponse& quotas) {
  return {{"revision", quotas.revision()}, {"quotas", to_json(quotas.quotas())}};
}

std::string quota_change_text(const v1::SetQuotaResponse& change, const Layout& layout) {
  Table table({{.title = "TENANT", .least = 20},
               {.title = "DEVICE"},
               {.title = "GUARANTEE"},
               {.title = "LIMIT"},
               {.title = "WEIGHT"},
               {.title = "PRIORITY"},
               {.title = "SET"}});
  for (const v1::QuotaInfo& after : change.after()) {
    const v1::QuotaInfo before = before_of(after, change.before());
    const auto set = [](const v1::QuotaInfo& line) { return line.set_at_run_time() ? "yes" : "no"; };
    table.add({tenant_text(after.tenant()), layout.device(after.device()),
               arrow(size_text(before.guarantee()), size_text(after.guarantee())),
               arrow(size_text(before.limit()), size_text(after.limit())),
               arrow(std::to_string(before.weight()), std::to_string(after.weight())),
               arrow(std::to_string(before.priority()), std::to_string(after.priority())),
               arrow(set(before), set(after))});
  }
  const std::string revision = "revision " + std::to_string(change.revision()) + "\n";
  return change.after().empty() ? "taken back; the tenant is not configured any more\n" + revision
                                : table.text(layout) + revision;
}

Json quota_change_json(const v1::SetQuotaResponse& change) {
  return {{"revision", change.revision()},
          {"before", to_json(change.before())},
          {"after", to_json(change.after())}};
}

void add_quota_command(CLI::App& app, const std::string& runtime_dir, int& status) {
  const auto arguments = std::make_shared<Arguments>();  // lives as long as the callback
  CLI::App* quota =
      app.add_subcommand("quota", "List the quotas of tenants, or change them while the broker runs");
  add_table_flags(*quota, arguments->flags);
  CLI::App* show = quota->add_subcommand("show", "List the quotas of all tenants, or of one");
  add_tenant(*show, *arguments);
  add_table_flags(*show, arguments->flags);
  CLI::App* set = add_set(*quota, *arguments);
  CLI::App* reset =
      add_change(*quota, "reset", "Go back to what the configuration says of a tenant", *arguments);
  quota->require_subcommand(0, 1);
  quota->callback([=, &runtime_dir, &status] {
    const std::filesystem::path folder = client::runtime_folder(runtime_dir);
    arguments->request.set_reset(reset->parsed());
    const bool changes = set->parsed() || reset->parsed();
    status = print(changes ? change(folder, *arguments) : list(folder, *arguments));
  });
}

}  // namespace gpumem::cli
