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
Result<std::string> device_of_quota(const std::filesystem::path& runtime_folder, const std::string& text) {
  constexpr std::size_t kUuid = 40;
  auto monitor = Monitor::connect(runtime_folder);
  if (!monitor) return monitor.error();
  const auto status = monitor->status();
  if (!status) return status.error();
  auto found = find_device(*status, text);
  if (found || text.size() >= kUuid) return found ? *found : text;
  return found.error().in("--device");
}

// What the command line says.
struct Arguments {
  v1::SetQuotaRequest request;
  std::optional<std::uint64_t> revision;
  bool json = false;
};

Result<std::string> list(const std::filesystem::path& folder, const Arguments& arguments) {
  auto quotas = list_quotas(folder);
  if (!quotas) return quotas.error();
  return arguments.json ? json_text(quotas_json(*quotas)) : quotas_text(*quotas);
}

// Based on the revision that is in force now, if none is given.
Result<std::string> change(const std::filesystem::path& folder, const Arguments& arguments) {
  v1::SetQuotaRequest request = arguments.request;
  if (!request.device().empty()) {
    auto device = device_of_quota(folder, request.device());
    if (!device) return device.error();
    request.set_device(*device);
  }
  if (arguments.revision) {
    request.set_revision(*arguments.revision);
  } else {
    auto quotas = list_quotas(folder);
    if (!quotas) return quotas.error();
    request.set_revision(quotas->revision());
  }
  auto changed = call_broker<v1::Admin>(folder, &v1::Admin::Stub::SetQuota, request, kQuotaTimeout);
  if (!changed) return changed.error();
  if (arguments.json) return json_text(quota_change_json(*changed));
  const bool any = changed->revision() != request.revision();
  return any ? quota_change_text(*changed)
             : "nothing was set for tenant '" + request.tenant() + "'" +
                   (request.device().empty() ? "" : " on " + request.device()) +
                   ": nothing is changed\nrevision " + std::to_string(changed->revision()) + "\n";
}

CLI::App* add_change(CLI::App& quota, const char* name, const char* about, Arguments& arguments) {
  CLI::App* command = quota.add_subcommand(name, about);
  command
      ->add_option_function<std::string>(
          "TENANT", [&](const std::string& tenant) { arguments.request.set_tenant(tenant); },
          "Name, or uid:N for a user without a tenant")
      ->required()
      ->check(refuse_unprintable);
  command
      ->add_option_function<std::string>(
          "--device", [&](const std::string& device) { arguments.request.set_device(device); },
          "Only on this device: UUID, or its place in `gpumem status` [every device]")
      ->check(refuse_unprintable)
      ->type_name("DEVICE");
  add_number(
      *command, "--revision", [&](std::uint64_t revision) { arguments.revision = revision; },
      "Only if the quotas are still at revision N");
  add_json_flag(*command, arguments.json);
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

void add_set(CLI::App& quota, Arguments& arguments) {
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
}

}  // namespace

std::string quotas_text(const v1::ListQuotasResponse& quotas) {
  Table table({{"TENANT"},
               {"DEVICE"},
               {"GUARANTEE", kRight},
               {"LIMIT", kRight},
               {"WEIGHT", kRight},
               {"PRIORITY", kRight},
               {"SET"}});
  for (const auto& [line, depth] : tenant_tree(quotas.quotas())) {
    table.add({std::string(2 * depth, ' ') + line->tenant(), line->device(), size_text(line->guarantee()),
               size_text(line->limit()), std::to_string(line->weight()), std::to_string(line->priority()),
               line->set_at_run_time() ? "yes" : ""});
  }
  const std::string revision = "revision " + std::to_string(quotas.revision()) + "\n";
  return quotas.quotas().empty() ? "no tenants\n" + revision : table.text() + revision;
}

Json quotas_json(const v1::ListQuotasResponse& quotas) {
  return {{"revision", quotas.revision()}, {"quotas", to_json(quotas.quotas())}};
}

std::string quota_change_text(const v1::SetQuotaResponse& change) {
  Table table({{"TENANT"}, {"DEVICE"}, {"GUARANTEE"}, {"LIMIT"}, {"WEIGHT"}, {"PRIORITY"}, {"SET"}});
  for (const v1::QuotaInfo& after : change.after()) {
    const v1::QuotaInfo before = before_of(after, change.before());
    const auto set = [](const v1::QuotaInfo& line) { return line.set_at_run_time() ? "yes" : "no"; };
    table.add({after.tenant(), after.device(),
               arrow(size_text(before.guarantee()), size_text(after.guarantee())),
               arrow(size_text(before.limit()), size_text(after.limit())),
               arrow(std::to_string(before.weight()), std::to_string(after.weight())),
               arrow(std::to_string(before.priority()), std::to_string(after.priority())),
               arrow(set(before), set(after))});
  }
  const std::string revision = "revision " + std::to_string(change.revision()) + "\n";
  return change.after().empty() ? "taken back; the tenant is not configured any more\n" + revision
                                : table.text() + revision;
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
  add_json_flag(*quota, arguments->json);
  add_set(*quota, *arguments);
  CLI::App* reset =
      add_change(*quota, "reset", "Go back to what the configuration says of a tenant", *arguments);
  quota->require_subcommand(0, 1);
  quota->callback([=, &runtime_dir, &status] {
    const std::filesystem::path folder = client::runtime_folder(runtime_dir);
    arguments->request.set_reset(reset->parsed());
    const bool lists = quota->get_subcommands().empty();
    status = print(lists ? list(folder, *arguments) : change(folder, *arguments));
  });
}

}  // namespace gpumem::cli
