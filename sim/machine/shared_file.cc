#include "sim/machine/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/system/unique_fd.h"

namespace gpumem::sim {
namespace {

Error failed(const std::string& path) { return Error{Code::kInternal, errno_error(errno, path).message}; }

void* map(int fd, std::size_t size) {
  void* const address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return address == MAP_FAILED ? nullptr : address;
}

/// Makes the file without a name and links it to `path` when it is whole: a maker that is killed leaves
/// nothing.
Result<void> make(const std::string& folder, const std::string& path, std::size_t size,
                  const std::function<void(void*)>& fill) {
  if (::mkdir(folder.c_str(), 0777) == 0) ::chmod(folder.c_str(), 0777);
  const UniqueFd fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
  if (!fd.valid()) return failed(folder);
  const bool is_sized = ::fchmod(fd.get(), 0666) == 0 && ::ftruncate(fd.get(), static_cast<off_t>(size)) == 0;
  void* const address = is_sized ? map(fd.get(), size) : nullptr;
  if (address == nullptr) return failed(path);
  fill(address);
  ::munmap(address, size);
  const std::string unnamed = "/proc/thread-self/fd/" + std::to_string(fd.get());
  if (::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0 && errno != EEXIST)
    return failed(path);
  return {};
}

}  // namespace

Result<void*> map_shared_file(const Machine& machine, const std::string& name, std::size_t size,
                              const std::function<void(void*)>& fill) {
  const std::string folder = machine.data_folder().string();
  const std::string path = folder + "/" + name;
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) {
    if (auto made = make(folder, path, size, fill); !made) return made.error();
    fd.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  }
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) return failed(path);
  if (status.st_size != static_cast<off_t>(size))
    return Error{Code::kInternal, path + ": damaged or of another version; create the machine anew"};
  void* const address = map(fd.get(), size);
  if (address == nullptr) return failed(path);
  return address;
}

void init_shared_mutex(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
}

}  // namespace gpumem::sim
