#include "base/system/process_stat.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "base/system/unique_fd.h"

namespace gpumem {
namespace {

/// The fields after the command, the first of which has the number 3.
std::optional<std::uint64_t> field(std::string_view fields, int number) {
  for (int before = 3; before < number; ++before) {
    const std::size_t end = fields.find(' ');
    if (end == fields.npos) return std::nullopt;
    fields.remove_prefix(end + 1);
  }
  std::uint64_t value = 0;
  const auto read = std::from_chars(fields.data(), fields.data() + fields.size(), value);
  return read.ec == std::errc() ? std::optional(value) : std::nullopt;
}

}  // namespace

// `PID (COMMAND) STATE PPID ...`: the command may hold any character, so it ends at the last parenthesis.
std::optional<ProcessStat> parse_stat(std::string_view text) {
  const std::size_t begin = text.find('(');
  const std::size_t end = text.rfind(')');
  if (begin == text.npos || end == text.npos || end < begin) return std::nullopt;
  std::string_view fields = text.substr(end + 1);
  fields.remove_prefix(std::min(fields.find_first_not_of(' '), fields.size()));
  const std::string_view command = text.substr(begin + 1, end - begin - 1);
  return ProcessStat{std::string(command.substr(0, command.find('\n'))),
                     fields.empty() ? '?' : fields.front(), field(fields, 4), field(fields, 9),
                     field(fields, 22)};
}

std::optional<std::string> read_stat(const std::filesystem::path& task) {
  const UniqueFd file(::open((task / "stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  std::array<char, 4096> text;  // 52 numbers and a name take half of it
  ssize_t size = 0;
  do {
    size = ::read(file.get(), text.data(), text.size());
  } while (size < 0 && errno == EINTR);
  if (size < 0) return std::nullopt;  // the process has ended since
  return std::string(text.data(), static_cast<std::size_t>(size));
}

std::optional<ProcessStat> stat_of(std::int64_t pid) {
  const auto text = read_stat("/proc/" + std::to_string(pid));
  return text ? parse_stat(*text) : std::nullopt;
}

bool is_ending(const std::optional<ProcessStat>& stat) {
  constexpr std::uint64_t kExiting = 0x4;  // PF_EXITING
  return !stat || !stat->flags || (*stat->flags & kExiting) != 0;
}

}  // namespace gpumem
