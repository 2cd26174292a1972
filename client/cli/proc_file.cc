#include "client/cli/proc_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/unique_fd.h"

namespace gpumem::cli {

Result<std::string> read_proc_file(pid_t pid, const std::string& name) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 16384> part{};
  ssize_t count = file.valid() ? 0 : -1;
  while (file.valid() && (count = ::read(file.get(), part.data(), part.size())) > 0)
    text.append(part.data(), static_cast<std::size_t>(count));
  if (count == 0) return text;
  if (errno == ENOENT || errno == ESRCH)
    return Error{Code::kNotFound, "there is no process " + std::to_string(pid)};
  if (errno == EACCES || errno == EPERM) {
    return Error{Code::kPermissionDenied,
                 "you may not read " + path + ": ask as the user of the process, or as root"};
  }
  return errno_error(errno, "cannot read " + path);
}

}  // namespace gpumem::cli
