#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/pods/prepared_claims.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// Reads what claims_text() has written. `source` names it in messages.
/// Errors  kInvalidArgument: `source:line:column: what is wrong`; kFailedPrecondition: another version of
/// gpumemd has written it.
Result<pods::PreparedClaims> parse_claims(std::string_view text, const std::string& source);

/// The claims as TOML, for people to read; nothing of them is lost.
std::string claims_text(const pods::PreparedClaims& claims);

/// The claims that are kept in `folder`. Errors  as parse_claims; kPermissionDenied and others.
Result<pods::PreparedClaims> read_claims(const std::filesystem::path& folder);

/// The claims that are prepared, in the state folder's claims.toml, which survives the broker. The folder is
/// held by the QuotaStore.
///
/// Invariant: claims.toml is whole, and is current(), whenever the machine stops.
/// Threads  one at a time.
class ClaimStore {
 public:
  ClaimStore() = default;
  /// Errors  as read_claims: there may be claims that cannot be read. The message says what to do.
  static Result<ClaimStore> open(const std::filesystem::path& folder);

  const pods::PreparedClaims& current() const { return current_; }

  /// Brings `next` to the disk, beside what is in force. commit() or discard() follows.
  /// Errors  kFailedPrecondition: it cannot be stored (a full disk); nothing has changed.
  Result<void> prepare(pods::PreparedClaims next);
  /// Puts the prepared claims in force. Errors  kFailedPrecondition: nothing has changed.
  Result<void> commit();
  void discard();

 private:
  std::filesystem::path prepared_file() const;

  std::filesystem::path folder_;
  pods::PreparedClaims current_;
  std::optional<pods::PreparedClaims> prepared_;
};

}  // namespace gpumem::host
