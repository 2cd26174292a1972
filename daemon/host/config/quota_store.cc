#include "daemon/host/config/quota_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/crash_point.h"
#include "base/log.h"
#include "base/system/files.h"
#include "daemon/host/state/folder_lock.h"

namespace gpumem::host {
namespace {

using Json = nlohmann::ordered_json;

// More than the longest line: 32 devices before and after, with room to spare.
constexpr off_t kTailBytes = off_t{1} << 18;

Json to_json(const std::vector<core::QuotaLine>& lines) {
  Json list = Json::array();
  for (const core::QuotaLine& line : lines) {
    list.push_back({{"device", line.device},
                    {"guarantee", line.quota.guarantee.count},
                    {"limit", line.quota.limit.count},
                    {"weight", line.quota.weight},
                    {"priority", line.quota.priority},
                    {"set", line.set_at_run_time}});
  }
  return list;
}

// A command's name need not be UTF-8.
std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

off_t size_of(int file) {
  struct stat found {};
  return ::fstat(file, &found) == 0 ? found.st_size : 0;
}

std::string read_tail(int file, off_t size) {
  std::string tail(static_cast<std::size_t>(std::min(size, kTailBytes)), '\0');
  const ssize_t got = ::pread(file, tail.data(), tail.size(), size - static_cast<off_t>(tail.size()));
  tail.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return tail;
}

// The revision that the last line tells of, unless that takes one back. A line that a broker was killed over
// tells nothing, unless all but its end was written.
std::uint64_t last_revision(std::string lines) {
  while (!lines.empty()) {
    lines.pop_back();  // its end
    const std::size_t start = lines.find_last_of('\n') + 1;
    const Json last = Json::parse(lines.substr(start), nullptr, false);
    lines.erase(start);
    if (!last.is_object()) continue;
    const auto revision = last.find("revision");
    const bool tells =
        revision != last.end() && revision->is_number_unsigned() && !last.contains("withdrawn");
    return tells ? revision->get<std::uint64_t>() : 0;
  }
  return 0;
}

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

Result<AuditLog> AuditLog::open(const std::filesystem::path& file, std::uint64_t in_force,
                                const std::string& now) {
  UniqueFd opened(::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!opened.valid()) return errno_error(errno, "cannot open " + file.string());
  AuditLog log(file, std::move(opened));
  std::string tail = read_tail(log.file_.get(), size_of(log.file_.get()));
  if (!tail.empty() && tail.back() != '\n') {  // a broker was killed while it wrote
    if (auto ended = log.add_line("\n"); !ended) return ended.error();
    tail += '\n';
  }
  const std::uint64_t told = last_revision(tail);
  if (told <= in_force) return log;
  spdlog::warn("{} tells of revision {} of the quotas, which is not in force: {} is", file.string(), told,
               in_force);
  if (auto ok = log.withdraw(told, now, "not in force when the broker started"); !ok) return ok.error();
  return log;
}

Result<void> AuditLog::add(const Entry& entry) {
  return add_line(line_of({{"time", entry.time},
                           {"revision", entry.outcome.revision},
                           {"uid", entry.by.uid},
                           {"pid", entry.by.pid},
                           {"command", entry.by.command},
                           {"tenant", entry.change.tenant},
                           {"device", entry.change.device},
                           {"reset", entry.change.reset},
                           {"before", to_json(entry.outcome.before)},
                           {"after", to_json(entry.outcome.after)}}));
}

Result<void> AuditLog::withdraw(std::uint64_t revision, const std::string& time, const std::string& why) {
  return add_line(line_of({{"time", time}, {"revision", revision}, {"withdrawn", why}}));
}

Result<void> AuditLog::add_line(const std::string& line) {
  const off_t before = size_of(file_.get());
  Result<void> written = write_all(file_.get(), line);
  if (written && ::fsync(file_.get()) != 0) written = errno_error(errno, "cannot write");
  if (written) return {};
  if (::ftruncate(file_.get(), before) != 0) spdlog::error("{}: a broken line is left in it", path_.string());
  return written.error().in(path_.string());
}

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
  auto lock = lock_folder(folder_, folder_ / kLockName, "--state-dir");
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
