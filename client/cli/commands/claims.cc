#include "client/cli/commands/commands.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "client/cli/commands/usage.h"
#include "client/cli/monitor/monitor.h"
#include "client/cli/views/text.h"
#include "client/process/runtime_folder.h"
#include "gpumem/v1/claims.grpc.pb.h"

namespace gpumem::cli {
namespace {

constexpr std::chrono::seconds kClaimsTimeout{30};  // the broker may wait for its disk

Result<std::string> list_claims(const std::filesystem::path& folder, const TableFlags& flags) {
  auto monitor = Monitor::connect(folder);
  if (!monitor) return monitor.error();
  const auto claims =
      call_broker<v1::Claims>(folder, &v1::Claims::Stub::List, v1::ListClaimsRequest(), kClaimsTimeout);
  if (!claims) return claims.error();
  return flags.json ? json_text(claims_json(*claims))
                    : claims_text(*claims, layout_for(*monitor, flags.is_long));
}

std::string pods_text(const v1::Claim& claim) {
  std::string names;
  for (const v1::Pod& pod : claim.pods()) names += (names.empty() ? "" : ", ") + pod.name();
  return names;
}

}  // namespace

std::string claims_text(const v1::ListClaimsResponse& claims, const Layout& layout) {
  Table table({{.title = "CLAIM", .least = 8},
               {.title = "PODS", .least = 8},
               {.title = "DEVICE"},
               {.title = "GUARANTEE", .align = Table::Align::kRight},
               {.title = "LIMIT", .align = Table::Align::kRight}});
  for (const v1::Claim& claim : claims.claims()) {
    for (const v1::ClaimAmount& amount : claim.amounts()) {
      table.add({claim.namespace_() + "/" + claim.name(), pods_text(claim), layout.device(amount.device()),
                 size_text(amount.guarantee_bytes()), size_text(amount.limit_bytes())});
    }
  }
  return claims.claims().empty() ? "nothing is prepared for pods\n" : table.text(layout);
}

Json claims_json(const v1::ListClaimsResponse& claims) {
  Json list = Json::array();
  for (const v1::Claim& claim : claims.claims()) {
    Json pods = Json::array();
    for (const v1::Pod& pod : claim.pods())
      pods.push_back({{"uid", pod.uid()}, {"namespace", pod.namespace_()}, {"name", pod.name()}});
    Json amounts = Json::array();
    for (const v1::ClaimAmount& amount : claim.amounts()) {
      amounts.push_back({{"device", amount.device()},
                         {"guarantee", amount.guarantee_bytes()},
                         {"limit", amount.limit_bytes()}});
    }
    list.push_back({{"uid", claim.uid()},
                    {"namespace", claim.namespace_()},
                    {"name", claim.name()},
                    {"pods", std::move(pods)},
                    {"amounts", std::move(amounts)}});
  }
  return {{"claims", std::move(list)}};
}

void add_claims_command(CLI::App& app, const std::string& runtime_dir, int& status) {
  CLI::App* command =
      app.add_subcommand("claims", "List what is prepared for pods of Kubernetes (for administrators)");
  const auto flags = std::make_shared<TableFlags>();
  add_table_flags(*command, *flags);
  command->callback([&runtime_dir, &status, flags] {
    status = print(list_claims(client::runtime_folder(runtime_dir), *flags));
  });
}

}  // namespace gpumem::cli
