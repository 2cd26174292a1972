#include "daemon/host/quota_store.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/crash_point.h"
#include "base/log.h"
#include "daemon/host/files.h"
#include "daemon/host/folder_lock.h"

namespace gpumem::host {
namespace {

constexpr const char* kQuotasName = "quotas.toml";
constexpr const char* kPreparedName = "quotas.toml.new";
constexpr const char* kAuditName = "audit.log";

Error not_stored(const Error& error) {
  // Not kUnavailable, which says that nobody is there: trying again is of no use before the disk is mended.
  return {Code::kFailedPrecondition,
          "the quotas cannot be stored, the old ones stay in force: " + error.message};
}

Result<void> make_folder(const std::filesystem::path& folder) {
  std::error_code failed;
  std::error_code unknown;
  if (std::filesystem::create_directories(folder, failed)) {
    std::filesystem::permissions(folder, std::filesystem::perms(0750), failed);
    return sync_folder(folder.parent_path());
  }
  if (std::filesystem::is_directory(folder, unknown)) return {};
  const bool in_the_way = std::filesystem::exists(folder, unknown);
  return Error{in_the_way ? Code::kAlreadyExists : Code::kPermissionDenied,
               "cannot make the state folder " + folder.string() + ": " +
                   (in_the_way ? "something else is there; choose another --state-dir" : failed.message())};
}

}  // namespace

Result<QuotaOverlay> read_quotas(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kQuotasName;
  auto text = read_text(file);
  if (!text && text.error().code == Code::kNotFound) return QuotaOverlay{};
  auto overlay = text ? parse_overlay(*text, file.string()) : text.error();
  if (overlay) return overlay;
  return Error{overlay.error().code,
               "the quotas that were set at run time cannot be read: " + overlay.error().message +
                   "; mend the file, or move it away to start " +
                   "with the configuration alone (audit.log beside it says what was set)"};
}

Result<QuotaStore> QuotaStore::open(const std::filesystem::path& folder, const std::string& now) {
  if (auto closed = check_closed(folder, "--state-dir"); !closed) return closed.error();
  QuotaStore store(folder);
  if (auto claimed = store.claim(); !claimed) {
    if (claimed.error().code == Code::kAlreadyExists) return claimed.error();
    store.read_only_ = claimed.error();
  }
  auto overlay = read_quotas(folder);
  if (!overlay) return overlay.error();
  store.current_ = std::move(*overlay);
  if (!store.read_only_) {
    auto audit = AuditLog::open(folder / kAuditName, store.current_.revision, now);
    if (audit)
      store.audit_ = std::move(*audit);
    else
      store.read_only_ = audit.error();
  }
  if (store.read_only_) {
    spdlog::warn("quotas cannot be changed at run time: {} (choose another --state-dir)",
                 store.read_only_->message);
  }
  return store;
}

Result<void> QuotaStore::claim() {
  if (auto made = make_folder(folder_); !made) return made.error();
  auto lock = lock_folder(folder_, "--state-dir");
  if (!lock) return lock.error();
  lock_ = std::move(*lock);
  if (::unlink(prepared_file().c_str()) != 0 && errno != ENOENT)  // of a broker that was killed
    return errno_error(errno, "cannot remove " + prepared_file().string());
  return {};
}

std::filesystem::path QuotaStore::file() const { return folder_ / kQuotasName; }
std::filesystem::path QuotaStore::prepared_file() const { return folder_ / kPreparedName; }

Result<void> QuotaStore::prepare(QuotaOverlay next, const AuditLog::Entry& entry) {
  if (read_only_) return not_stored(*read_only_);
  if (fails_at(CrashPoint::kQuotaPrepare)) return not_stored(errno_error(ENOSPC, "cannot write"));
  if (auto written = write_durably(prepared_file(), overlay_text(next)); !written)
    return not_stored(written.error());
  if (auto told = audit_.add(entry); !told) {
    ::unlink(prepared_file().c_str());
    return not_stored(told.error());
  }
  prepared_ = std::move(next);
  crash_at(CrashPoint::kQuotaPrepared);
  return {};
}

Result<void> QuotaStore::commit() {
  crash_at(CrashPoint::kQuotaApplied);
  if (fails_at(CrashPoint::kQuotaCommit)) return not_stored(errno_error(EIO, "cannot rename"));
  if (std::rename(prepared_file().c_str(), file().c_str()) != 0)
    return not_stored(errno_error(errno, "cannot rename " + prepared_file().string()));
  crash_at(CrashPoint::kQuotaCommitted);
  current_ = *std::exchange(prepared_, std::nullopt);
  // The new content is in force. If the folder cannot be synced, a crash of the machine may restore the old
  // one.
  if (auto synced = sync_folder(folder_); !synced) spdlog::error("{}", synced.error().message);
  return {};
}

void QuotaStore::discard(const std::string& time, const std::string& why) {
  ::unlink(prepared_file().c_str());
  const auto dropped = std::exchange(prepared_, std::nullopt);
  if (!dropped) return;
  if (auto told = audit_.withdraw(dropped->revision, time, why); !told)
    spdlog::error("{}", told.error().message);
}

}  // namespace gpumem::host
