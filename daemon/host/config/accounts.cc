#include "daemon/host/config/accounts.h"

#include <grp.h>
#include <pwd.h>

#include <map>
#include <sstream>
#include <utility>

#include "base/log.h"
#include "base/system/files.h"
#include "base/text/number.h"

namespace gpumem::host {
namespace {

constexpr const char* kUser = "user";
constexpr const char* kGroup = "group";

// Calls `visit` with the key, the kind, the name and the number of each account of `config`, which may be
// const.
template <class AnyConfig, class Visit>
void for_each_account(AnyConfig& config, Visit visit) {
  for (auto& tenant : config.tenants) {
    const std::string key = "tenant '" + tenant.name + "'";
    visit(key, kUser, tenant.user, tenant.uid);
    visit(key, kGroup, tenant.group, tenant.gid);
  }
  visit("admin_group", kGroup, config.admin_group, config.admin_gid);
  visit("[metrics] group", kGroup, config.metrics.group, config.metrics.gid);
}

// By Account::words.
using Numbers = std::map<std::string, std::uint32_t>;
Numbers numbers_of(const Config& config) {
  Numbers numbers;
  for_each_account(config, [&](const std::string&, const char* kind, const std::string& name,
                               const std::optional<std::uint32_t>& number) {
    if (number) numbers.emplace(std::string(kind) + " '" + name + "'", *number);
  });
  return numbers;
}

}  // namespace

AccountLookup AccountLookup::of_machine() {
  return {[](const std::string& name) -> std::optional<std::uint32_t> {
            const passwd* entry = ::getpwnam(name.c_str());
            return entry ? std::optional(entry->pw_uid) : std::nullopt;
          },
          [](const std::string& name) -> std::optional<std::uint32_t> {
            const ::group* entry = ::getgrnam(name.c_str());
            return entry ? std::optional(entry->gr_gid) : std::nullopt;
          },
          [](std::uint32_t number) -> std::optional<std::string> {
            const passwd* entry = ::getpwuid(number);
            return entry ? std::optional(entry->pw_name) : std::nullopt;
          },
          [](std::uint32_t number) -> std::optional<std::string> {
            const ::group* entry = ::getgrgid(number);
            return entry ? std::optional(entry->gr_name) : std::nullopt;
          }};
}

Accounts look_up(Config& config, const Config& before, const AccountLookup& lookup) {
  const Numbers kept = numbers_of(before);
  Accounts accounts;
  for_each_account(config, [&](const std::string& key, const char* kind, const std::string& name,
                               std::optional<std::uint32_t>& number) {
    number = whole_number<std::uint32_t>(name);
    if (name.empty() || number) return;
    Account account{key, std::string(kind) + " '" + name + "'", {}};
    const bool is_user = kind == kUser;
    number = (is_user ? lookup.user : lookup.group)(name);
    const bool found = number.has_value();
    if (const auto had = kept.find(account.words); !found && had != kept.end()) {
      const auto heir = (is_user ? lookup.user_name : lookup.group_name)(had->second);
      if (!heir) number = had->second;
      if (heir)
        spdlog::warn("{}: number {}, which {} had, is that of {} '{}' now", key, had->second, account.words,
                     kind, *heir);
    }
    account.number = number;
    (found ? accounts.found : accounts.missing).push_back(std::move(account));
  });
  look_up_reader(config, lookup);
  return accounts;
}

void look_up_reader(Config& config, const AccountLookup& lookup) {
  AccountsConfig& accounts = config.accounts;
  accounts.uid = whole_number<std::uint32_t>(accounts.reader);
  if (!accounts.uid && !accounts.reader.empty()) accounts.uid = lookup.user(accounts.reader);
}

std::string in_words_missing(const Account& account) {
  const std::string missing = "this machine has no " + account.words + " at present";
  if (!account.number) return account.key + " waits: " + missing;
  return account.key + " keeps the number " + std::to_string(*account.number) +
         " until another account gets it, or the broker restarts: " + missing;
}

Result<KnownAccounts> KnownAccounts::open(const std::filesystem::path& state_folder) {
  KnownAccounts known;
  known.file_ = state_folder / "accounts";
  const auto text = read_text(known.file_);
  if (!text && text.error().code != Code::kNotFound) return text.error();
  std::istringstream lines(text ? *text : "");
  for (std::string line; std::getline(lines, line);) known.known_.insert(line);
  return known;
}

Result<void> KnownAccounts::check(const Accounts& accounts) const {
  for (const Account& account : accounts.missing) {
    if (known_.contains(account.words)) continue;
    return Error{Code::kInvalidArgument, account.key + ": there is no " + account.words +
                                             " on this machine, and there was none before: correct the name, "
                                             "or create the account first"};
  }
  return {};
}

void KnownAccounts::put_in_force(const Accounts& accounts) {
  std::set<std::string> next;
  for (const Account& account : accounts.found) next.insert(account.words);
  for (const Account& account : accounts.missing)
    if (known_.contains(account.words)) next.insert(account.words);
  if (next == known_) return;
  known_ = std::move(next);
  std::string text;
  for (const std::string& words : known_) text += words + "\n";
  const std::filesystem::path written = file_.string() + ".new";
  if (auto done = write_durably(written, text); !done)
    return spdlog::warn("the accounts that were found are not remembered: {}", done.error().message);
  std::error_code failed;
  std::filesystem::rename(written, file_, failed);
  if (failed) spdlog::warn("the accounts that were found are not remembered: {}", failed.message());
}

}  // namespace gpumem::host
