#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace gpumem {

/// Fields of the file `stat` of a process, or of a thread, in its folder of /proc.
struct ProcessStat {
  std::string command;                   ///< as it calls itself: any bytes but line ends, 15 at most
  char state = '?';                      ///< Z: it has ended, and its parent has not noticed yet
  std::optional<std::uint64_t> parent;   ///< its pid; field 4
  std::optional<std::uint64_t> flags;    ///< PF_*; field 9
  std::optional<std::uint64_t> started;  ///< when, as the kernel counts; field 22; with the pid, it names it
};

/// Nothing: `text` is no such file's.
std::optional<ProcessStat> parse_stat(std::string_view text);

/// The file of the process or thread with the folder `task` in /proc, by one reading. Nothing: it has ended,
/// or is hidden.
std::optional<std::string> read_stat(const std::filesystem::path& task);
/// Of the process `pid`. Nothing: as both.
std::optional<ProcessStat> stat_of(std::int64_t pid);

/// Whether the process or thread is about to end. It has, if the kernel shows nothing of it.
bool is_ending(const std::optional<ProcessStat>& stat);

}  // namespace gpumem
