#include "client/cli/views/host_memory.h"

#include <algorithm>
#include <charconv>

namespace gpumem::cli {
namespace {

// The words of the line `name:` of /proc/PID/status.
std::string_view field(std::string_view status, std::string_view name) {
  for (std::size_t begin = 0; begin < status.size();) {
    const std::size_t end = std::min(status.find('\n', begin), status.size());
    std::string_view text = status.substr(begin, end - begin);
    if (text.starts_with(name) && text.substr(name.size()).starts_with(":\t")) {
      text.remove_prefix(name.size() + 2);
      return text.substr(std::min(text.find_first_not_of(' '), text.size()));
    }
    begin = end + 1;
  }
  return {};
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<std::uint64_t> kibibytes_in(std::string_view status, std::string_view name) {
  const auto kibibytes = number(field(status, name));
  return kibibytes ? std::optional(*kibibytes << 10) : std::nullopt;
}

}  // namespace

std::optional<HostMemory> host_memory_in(std::string_view status, const std::string& command,
                                         std::uint32_t uid) {
  // Real, effective, saved and of files: the broker knows the second.
  const std::string_view uids = field(status, "Uid");
  const auto effective = number(uids.substr(std::min(uids.find('\t'), uids.size() - 1) + 1));
  if (!command.empty() && (field(status, "Name") != command || effective != uid)) return std::nullopt;
  const auto virt = kibibytes_in(status, "VmSize"), resident = kibibytes_in(status, "VmRSS");
  const auto files = kibibytes_in(status, "RssFile"), shared = kibibytes_in(status, "RssShmem");
  if (!virt || !resident || !files || !shared) return std::nullopt;
  return HostMemory{*virt, *resident, *files + *shared};
}

}  // namespace gpumem::cli
