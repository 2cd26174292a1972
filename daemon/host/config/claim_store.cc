#include "daemon/host/config/claim_store.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <limits>
#include <sstream>
#include <utility>

#include "base/log.h"
#include "base/system/files.h"
#include "base/text/number.h"
#include "daemon/host/config/toml_reader.h"

namespace gpumem::host {
namespace {

constexpr const char* kClaimsName = "claims.toml";
constexpr const char* kPreparedClaimsName = "claims.toml.new";
constexpr std::int64_t kClaimsVersion = 1;

constexpr std::string_view kClaimsHeading =
    "# What was prepared for pods of Kubernetes. gpumemd writes this file; edit it only while no broker "
    "runs.\n";

Error claim_not_stored(const Error& error) {
  // As for quotas.
  return {Code::kFailedPrecondition, "the claim cannot be stored, and is as it was: " + error.message};
}

toml::table claim_table(const core::PodClaim& claim, const std::map<std::string, std::string>& tenants) {
  toml::array pods;
  for (const core::Pod& pod : claim.pods) {
    pods.push_back(toml::table{
        {"uid", pod.uid}, {"namespace", pod.space}, {"name", pod.name}, {"tenant", tenants.at(pod.uid)}});
  }
  toml::array amounts;
  for (const core::ClaimAmount& amount : claim.amounts) {
    // As text: TOML's numbers have a sign.
    amounts.push_back(toml::table{{"device", amount.device},
                                  {"guarantee", std::to_string(amount.guarantee.count)},
                                  {"limit", std::to_string(amount.limit.count)}});
  }
  return toml::table{{"uid", claim.uid},
                     {"namespace", claim.space},
                     {"name", claim.name},
                     {"pod", std::move(pods)},
                     {"amount", std::move(amounts)}};
}

void read_pod(TomlReader& reader, const toml::table& table, core::PodClaim& claim,
              pods::PreparedClaims& claims) {
  core::Pod pod;
  std::string tenant;
  reader.read(table, "[[claim.pod]]",
              {{"uid", reader.text(pod.uid)},
               {"namespace", reader.text(pod.space)},
               {"name", reader.text(pod.name)},
               {"tenant", reader.text(tenant)}});
  if (pod.uid.empty() || !pods::is_pods_name(tenant))
    return reader.fail(table.source(), "a pod needs its 'uid' and its 'tenant'");
  const auto known = claims.tenants.emplace(pod.uid, tenant).first;
  if (known->second != tenant)
    reader.fail(table.source(), "pod " + pod.uid + " is of two tenants: '" + known->second + "', too");
  claim.pods.push_back(std::move(pod));
}

void read_amount(TomlReader& reader, const toml::table& table, core::PodClaim& claim) {
  core::ClaimAmount amount;
  const auto bytes = [&reader](Bytes& into) {
    return [&reader, &into](const toml::node& node) {
      const std::string text = node.value<std::string>().value_or("");
      const auto count = whole_number<std::uint64_t>(text);
      if (!count) reader.fail(node.source(), "expected a number of bytes in quotes");
      into = {count.value_or(0)};
    };
  };
  reader.read(table, "[[claim.amount]]",
              {{"device", reader.text(amount.device)},
               {"guarantee", bytes(amount.guarantee)},
               {"limit", bytes(amount.limit)}});
  if (amount.guarantee > amount.limit) reader.fail(table.source(), "the guarantee is more than the limit");
  claim.amounts.push_back(std::move(amount));
}

// The pods of a claim are one tenant: what is taken for granted where claims are counted.
void check_one_tenant(TomlReader& reader, const toml::table& table, const core::PodClaim& claim,
                      const pods::PreparedClaims& claims) {
  if (claim.uid.empty() || claim.pods.empty())
    return reader.fail(table.source(), "a claim needs its 'uid' and a pod");
  for (const core::Pod& pod : claim.pods) {
    if (claims.tenants.at(pod.uid) != claims.tenants.at(claim.pods.front().uid))
      reader.fail(table.source(), "the pods of claim " + claim.uid + " are of several tenants");
  }
}

void read_claim(TomlReader& reader, const toml::table& table, pods::PreparedClaims& claims) {
  core::PodClaim claim;
  reader.read(
      table, "[[claim]]",
      {{"uid", reader.text(claim.uid)},
       {"namespace", reader.text(claim.space)},
       {"name", reader.text(claim.name)},
       {"pod", reader.tables([&](const toml::table& pod) { read_pod(reader, pod, claim, claims); })},
       {"amount", reader.tables([&](const toml::table& amount) { read_amount(reader, amount, claim); })}});
  if (!reader.error()) check_one_tenant(reader, table, claim, claims);
  const std::string uid = claim.uid;
  if (!claims.by_uid.emplace(uid, std::move(claim)).second)
    reader.fail(table.source(), "claim " + uid + " is given twice");
}

}  // namespace

Result<pods::PreparedClaims> parse_claims(std::string_view text, const std::string& source) {
  auto document = parse_toml(text, source);
  if (!document) return document.error();
  // Before anything else: what else is in it only its own version knows.
  const auto version = (*document)["version"].value<std::int64_t>();
  if (version && *version != kClaimsVersion) {
    return Error{Code::kFailedPrecondition,
                 source + " is of version " + std::to_string(*version) + ", and this gpumemd reads version " +
                     std::to_string(kClaimsVersion) + "; start the one that wrote it"};
  }
  pods::PreparedClaims claims;
  TomlReader reader(source);
  std::int64_t read = 0;
  reader.read(
      *document, "the file",
      {{"version", reader.number(read, kClaimsVersion, kClaimsVersion)},
       {"claim", reader.tables([&](const toml::table& table) { read_claim(reader, table, claims); })}});
  // A file that was cut off, even to nothing, is no file without claims.
  if (!version) reader.fail(document->source(), "there is no 'version'");
  if (reader.error()) return *reader.error();
  return claims;
}

std::string claims_text(const pods::PreparedClaims& claims) {
  toml::table document{{"version", kClaimsVersion}};
  toml::array list;
  for (const auto& [uid, claim] : claims.by_uid) list.push_back(claim_table(claim, claims.tenants));
  if (!list.empty()) document.insert("claim", std::move(list));
  std::ostringstream text;
  text << kClaimsHeading << '\n' << document << '\n';
  return text.str();
}

Result<pods::PreparedClaims> read_claims(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kClaimsName;
  auto text = read_text(file);
  if (!text && text.error().code == Code::kNotFound) return pods::PreparedClaims{};
  auto claims = text ? parse_claims(*text, file.string()) : text.error();
  if (claims) return claims;
  return Error{claims.error().code, claims.error().message +
                                        " (what was prepared for pods is kept there; if it cannot be mended, "
                                        "move the file away and restart the pods of this node)"};
}

Result<ClaimStore> ClaimStore::open(const std::filesystem::path& folder) {
  auto claims = read_claims(folder);
  if (!claims) return claims.error();
  ClaimStore store;
  store.folder_ = folder;
  store.current_ = std::move(*claims);
  return store;
}

std::filesystem::path ClaimStore::prepared_file() const { return folder_ / kPreparedClaimsName; }

Result<void> ClaimStore::prepare(pods::PreparedClaims next) {
  if (auto written = write_durably(prepared_file(), claims_text(next)); !written)
    return claim_not_stored(written.error());
  prepared_ = std::move(next);
  return {};
}

Result<void> ClaimStore::commit() {
  if (std::rename(prepared_file().c_str(), (folder_ / kClaimsName).c_str()) != 0)
    return claim_not_stored(errno_error(errno, "cannot rename " + prepared_file().string()));
  current_ = *std::exchange(prepared_, std::nullopt);
  // The new content is in force. If the folder cannot be synced, a crash of the machine may restore the old
  // one.
  if (auto synced = sync_folder(folder_); !synced) spdlog::error("{}", synced.error().message);
  return {};
}

void ClaimStore::discard() {
  ::unlink(prepared_file().c_str());
  prepared_.reset();
}

}  // namespace gpumem::host
