#include "sim/machine/extent_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <utility>

namespace gpumem::sim {
namespace {

constexpr std::string_view kExtentPrefix = "extent-";

/// Real handles are not descriptors, so a program that is within its limit on the real driver must be here
/// too.
bool raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

/// Calls `make`, a second time with a higher limit if it ran out of descriptors. The descriptor is no
/// standard stream: what a program prints there, which has closed its own, must not go into memory.
template <class Make>
UniqueFd with_descriptor(Make make) {
  UniqueFd fd(make());
  if (!fd.valid() && errno == EMFILE && raise_descriptor_limit()) fd.reset(make());
  return above_standard_streams(std::move(fd));
}

/// A lock that belongs to an open file description, apart from the creator's flock().
struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

std::string extent_name(SlotRef slot) {
  char text[48];
  const int length = std::snprintf(text, sizeof text, "extent-%u-%llu", slot.index,
                                   static_cast<unsigned long long>(slot.generation));
  return {text, static_cast<std::size_t>(length)};
}

std::optional<SlotRef> parse_extent_name(std::string_view name) {
  if (!name.starts_with(kExtentPrefix)) return std::nullopt;
  const char* const end = name.data() + name.size();
  SlotRef slot;
  const auto index = std::from_chars(name.data() + kExtentPrefix.size(), end, slot.index);
  if (index.ec != std::errc() || index.ptr == end || *index.ptr != '-') return std::nullopt;
  const auto generation = std::from_chars(index.ptr + 1, end, slot.generation);
  if (generation.ec != std::errc() || generation.ptr != end) return std::nullopt;
  return slot;
}

UniqueFd create_extent_file(const std::string& path) {
  UniqueFd fd =
      with_descriptor([&] { return ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666); });
  if (!fd.valid()) return fd;
  const bool ready = ::fchmod(fd.get(), 0666) == 0 && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
  if (ready) return fd;
  const int error = errno;
  ::unlink(path.c_str());
  fd.reset();
  errno = error;
  return fd;
}

UniqueFd open_extent_file(const std::string& path) {
  UniqueFd fd =
      with_descriptor([&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); });
  struct flock shared = whole_file(F_RDLCK);
  if (fd.valid() && ::fcntl(fd.get(), F_OFD_SETLK, &shared) != 0) fd.reset();
  return fd;
}

bool bury_if_dead(const std::string& path) {
  const UniqueFd fd =
      with_descriptor([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); });
  if (!fd.valid()) return errno == ENOENT;
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return false;
  struct flock others = whole_file(F_WRLCK);
  if (::fcntl(fd.get(), F_OFD_GETLK, &others) != 0 || others.l_type != F_UNLCK) return false;
  ::unlink(path.c_str());
  return true;
}

UniqueFd duplicate(int fd) {
  return with_descriptor([fd] { return duplicate_of(fd).release(); });
}

std::optional<SlotRef> extent_of(int fd) {
  char link[40];
  std::snprintf(link, sizeof link, "/proc/thread-self/fd/%d", fd);
  char target[PATH_MAX];
  const ssize_t length = ::readlink(link, target, sizeof target);
  if (length <= 0) return std::nullopt;
  const std::string_view path(target, static_cast<std::size_t>(length));
  return parse_extent_name(path.substr(path.rfind('/') + 1));
}

}  // namespace gpumem::sim
