#include "daemon/host/audit_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "daemon/host/files.h"

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

}  // namespace gpumem::host
