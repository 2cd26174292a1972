#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/unique_fd.h"
#include "daemon/core/admin.h"

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

}  // namespace gpumem::host
