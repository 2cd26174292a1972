#include "client/cli/commands.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "client/cli/monitor.h"
#include "client/cli/text.h"
#include "client/runtime_folder.h"
#include "gpumem/v1/claims.grpc.pb.h"
#include "proto/lane.h"

namespace gpumem::cli {
namespace {

constexpr std::chrono::seconds kClaimsTimeout{30};  // the broker may wait for its disk

Result<v1::ListClaimsResponse> list_claims(const std::filesystem::path& runtime_folder) {
  const std::filesystem::path socket = runtime_folder / kApiSocketName;
  if (auto there = probe(socket); !there) return there.error();
  const auto stub = v1::Claims::NewStub(broker_channel(socket));
  grpc::ClientContext context;
  set_timeout(context, kClaimsTimeout);
  v1::ListClaimsResponse claims;
  const grpc::Status status = stub->List(&context, {}, &claims);
  if (!status.ok()) return call_error(status, socket);
  return claims;
}

std::string pods_text(const v1::Claim& claim) {
  std::string names;
  for (const v1::Pod& pod : claim.pods()) names += (names.empty() ? "" : ", ") + pod.name();
  return names;
}

}  // namespace

std::string claims_text(const v1::ListClaimsResponse& claims) {
  Table table({{"CLAIM"},
               {"PODS"},
               {"DEVICE"},
               {"GUARANTEE", Table::Align::kRight},
               {"LIMIT", Table::Align::kRight}});
  for (const v1::Claim& claim : claims.claims()) {
    for (const v1::ClaimAmount& amount : claim.amounts()) {
      table.add({claim.namespace_() + "/" + claim.name(), pods_text(claim), amount.device(),
                 size_text(amount.guarantee_bytes()), size_text(amount.limit_bytes())});
    }
  }
  return claims.claims().empty() ? "nothing is prepared for pods\n" : table.text();
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
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON: stable keys, sizes in bytes");
  command->callback([&runtime_dir, &status, json] {
    const auto claims = list_claims(client::runtime_folder(runtime_dir));
    if (!claims) {
      status = report(claims.error());
      return;
    }
    std::cout << (*json ? json_text(claims_json(*claims)) : claims_text(*claims)) << std::flush;
    status = std::cout ? 0 : 1;
  });
}

}  // namespace gpumem::cli
