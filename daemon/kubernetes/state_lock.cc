#include "daemon/kubernetes/state_lock.h"

#include <sys/file.h>

#include <cerrno>

namespace gpumem::kubernetes {

Result<StateLock> StateLock::take(const std::filesystem::path& folder) {
  const std::filesystem::path name = folder / "serialize.lock";
  UniqueFd file(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) return errno_error(errno, "cannot make " + name.string());
  while (::flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return errno_error(errno, "cannot lock " + name.string());
  }
  return StateLock(std::move(file));
}

}  // namespace gpumem::kubernetes
