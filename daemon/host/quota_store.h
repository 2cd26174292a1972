#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "daemon/host/audit_log.h"
#include "daemon/host/quota_overlay.h"

namespace gpumem::host {

/// The quotas that are kept in `folder`. Errors  as QuotaStore::open, for what is there already.
Result<QuotaOverlay> read_quotas(const std::filesystem::path& folder);

/// The state folder, held by one broker at a time: quotas.toml, which survives the broker, and audit.log.
///
/// Invariant: quotas.toml is whole, and is current(), whenever the machine stops.
/// Threads  one at a time.
class QuotaStore {
 public:
  /// Makes the folder if need be. A folder that cannot be written is read; changing it fails, with the
  /// reason. `now`  RFC 3339.
  /// Errors  kAlreadyExists (another broker has it); kFailedPrecondition (all users may write to it);
  ///         kInvalidArgument, kPermissionDenied and others: there may be quotas that cannot be read. The
  ///         message says what to do.
  static Result<QuotaStore> open(const std::filesystem::path& folder, const std::string& now);

  const QuotaOverlay& current() const { return current_; }

  /// Brings `next` to the disk, beside what is in force, and tells the audit log of it. commit() or discard()
  /// follows. Errors  kFailedPrecondition: it cannot be stored (a full disk); nothing has changed.
  Result<void> prepare(QuotaOverlay next, const AuditLog::Entry& entry);
  /// Puts what was prepared in the place of what was in force. Errors  kFailedPrecondition: nothing has
  /// changed.
  Result<void> commit();
  /// Drops what was prepared. `why`  for the audit log.
  void discard(const std::string& time, const std::string& why);

 private:
  explicit QuotaStore(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path file() const;
  std::filesystem::path prepared_file() const;
  Result<void> claim();

  std::filesystem::path folder_;
  UniqueFd lock_;
  AuditLog audit_;
  QuotaOverlay current_;
  std::optional<QuotaOverlay> prepared_;
  std::optional<Error> read_only_;  ///< why nothing can be stored
};

}  // namespace gpumem::host
