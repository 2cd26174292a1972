#pragma once
#include <compare>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/host/config/config.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// Finds users and groups by name, and names by number, as this machine has them (getpwnam(3), getgrgid(3)).
/// Blocks.
struct AccountLookup {
  using Find = std::function<std::optional<std::uint32_t>(const std::string& name)>;
  using Name = std::function<std::optional<std::string>(std::uint32_t number)>;
  Find user, group;
  Name user_name, group_name;
  static AccountLookup of_machine();
};

/// A user or a group that the configuration names.
struct Account {
  std::string key;                      ///< the part of the configuration: `tenant 'ann'`, `admin_group`
  std::string words;                    ///< `user 'ann'`, `group 'lab'`
  std::optional<std::uint32_t> number;  ///< that it has in the configuration
  auto operator<=>(const Account&) const = default;
};

/// The accounts of a configuration, apart from those that it gives as numbers.
struct Accounts {
  std::vector<Account> found, missing;
  bool operator==(const Accounts&) const = default;
};

/// Puts the numbers of the users and groups that `config` names into it. A missing account has the number
/// that it has in `before`, so that nobody loses a tenant because a directory service is away; not if
/// another account has that number now, and the log says so. Without one its tenant waits: it has quotas,
/// and no members.
Accounts look_up(Config& config, const Config& before = {},
                 const AccountLookup& lookup = AccountLookup::of_machine());

/// Puts the number of the reader of accounts into `config`. A missing one is no error: most machines have
/// none.
void look_up_reader(Config& config, const AccountLookup& lookup = AccountLookup::of_machine());

/// `tenant 'ann' waits: this machine has no user 'ann' at present`.
std::string in_words_missing(const Account& account);

/// The accounts that the broker has found, in the state folder's `accounts`. They survive the broker, so that
/// an account that was deleted can be told from a mistake in the configuration.
class KnownAccounts {
 public:
  /// Errors  as read_text(), except that a missing file means that none is known.
  static Result<KnownAccounts> open(const std::filesystem::path& state_folder);

  /// Errors  kInvalidArgument: one of the missing accounts was never found; names it, and says what to do.
  Result<void> check(const Accounts& accounts) const;
  /// Remembers the accounts that were found now or before, and forgets all that `accounts` does not have. If
  /// the disk refuses, the log says so.
  void put_in_force(const Accounts& accounts);

 private:
  std::filesystem::path file_;
  std::set<std::string> known_;  ///< Account::words
};

}  // namespace gpumem::host
