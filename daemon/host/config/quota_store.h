#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/system/unique_fd.h"
#include "daemon/core/broker/admin.h"
#include "daemon/host/config/quota_overlay.h"

namespace gpumem::host {

/// The record of who changed which quota: one JSON object a line, only ever added to. A line says what was
/// about to be put in force; one that says `withdrawn` takes back the line of its revision.
class AuditLog {
 public:
  struct Entry {
    std::string time;  ///< RFC 3339
    core::Peer by;
    core::QuotaChange change;
    core::QuotaOutcome outcome;
  };

  AuditLog() = default;
  /// Opens `file`, or makes it. If it tells of a later revision than `in_force`, that never came into force.
  /// Errors  of the system, naming the file.
  static Result<AuditLog> open(const std::filesystem::path& file, std::uint64_t in_force,
                               const std::string& now);

  /// On the disk when it returns; on errors the log is as it was.
  Result<void> add(const Entry& entry);
  Result<void> withdraw(std::uint64_t revision, const std::string& time, const std::string& why);

 private:
  AuditLog(std::filesystem::path path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}
  Result<void> add_line(const std::string& line);

  std::filesystem::path path_;
  UniqueFd file_;
};

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
  /// Puts the prepared quotas in force. Errors  kFailedPrecondition: nothing has changed.
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
