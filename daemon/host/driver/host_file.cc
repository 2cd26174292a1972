#include "daemon/host/driver/host_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/log.h"

namespace gpumem::host {
namespace {

void warn_once(bool& has_warned, const char* what_to_do, const Error& why) {
  if (std::exchange(has_warned, true)) return;
  spdlog::warn("returned host memory cannot be proved free ({}), and stays charged: {}", why.message,
               what_to_do);
}

// The kernel grants a write lease only if the file is open nowhere else. A mapping counts as its descriptor
// does.
bool is_only_ours(int file) {
  static bool lacks_files = false, lacks_leases = false;
  const UniqueFd own = open_again(file, true);
  if (own.valid() && ::fcntl(own.get(), F_SETLEASE, F_WRLCK) == 0) return true;
  const int error = errno;
  if (!own.valid() && (error == EMFILE || error == ENFILE)) {
    warn_once(lacks_files,
              "it is tried again; raise the broker's limit of open files (LimitNOFILE=), or the machine's "
              "(sysctl fs.file-max)",
              errno_error(error, "no descriptor is left for the check"));
  } else if (error != EAGAIN) {
    warn_once(lacks_leases, "the broker needs /proc and leases of files (sysctl fs.leases-enable=1)",
              errno_error(error, own.valid() ? "F_SETLEASE" : "open /proc/self/fd"));
  }
  return false;
}

}  // namespace

bool seal_host_file(int file, bool is_private) {
  static_cast<void>(::fcntl(file, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL | (is_private ? 0 : F_SEAL_SHRINK)));
  return is_shared_host_file(file);
}

bool is_shared_host_file(int file) {
  const int seals = ::fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

// O_NONBLOCK: an open waits for a client's lease of the file (fcntl) otherwise.
UniqueFd open_again(int file, bool read_only) {
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  return UniqueFd(::open(path.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK));
}

// The service manager may have a duplicate of a shared file's descriptor for a moment longer, so the pages go
// by themselves.
bool free_host_file(int file) {
  if (!is_shared_host_file(file)) return ::ftruncate(file, 0) == 0;
  struct stat info {};
  return is_only_ours(file) && ::fstat(file, &info) == 0 &&
         ::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, info.st_size) == 0;
}

}  // namespace gpumem::host
