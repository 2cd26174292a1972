#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace gpumem::host {

/// Fields of the file `stat` of a process, or of a thread, in its folder of /proc.
struct ProcessStat {
  std::string command;                   ///< as it calls itself: any bytes but line ends, 15 at most
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

}  // namespace gpumem::host
