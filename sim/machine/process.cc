#include "sim/machine/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/system/unique_fd.h"

namespace gpumem::sim {
namespace {

struct Stat {
  char state;
  long threads;
  std::uint64_t start;
};

/// /proc/PID/stat: proc(5). The name, field 2, may hold anything, so reading starts after its last bracket.
std::optional<Stat> read_stat(pid_t pid) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  const UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return std::nullopt;
  char text[1024];
  const ssize_t length = ::read(fd.get(), text, sizeof text - 1);
  if (length <= 0) return std::nullopt;
  text[length] = '\0';
  const char* rest = std::strrchr(text, ')');
  if (rest == nullptr) return std::nullopt;
  Stat stat{};
  unsigned long long start = 0;
  const int read = std::sscanf(
      rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu",
      &stat.state, &stat.threads, &start);
  stat.start = start;
  return read == 3 ? std::optional(stat) : std::nullopt;
}

}  // namespace

ProcessId this_process() {
  const pid_t pid = ::getpid();
  const auto stat = read_stat(pid);
  return {pid, stat ? stat->start : 0};
}

bool is_alive(ProcessId process) {
  const auto stat = read_stat(process.pid);
  if (!stat || stat->start != process.start) return false;
  const bool ended = stat->state == 'Z' || stat->state == 'X';
  return !ended || stat->threads > 1;  // the first thread may end before the others
}

}  // namespace gpumem::sim
