#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace gpumem {

/// Owns one file descriptor, or none; closes it on destruction.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  /// Gives the descriptor to the caller, who closes it.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (const int old = std::exchange(fd_, fd); old >= 0) ::close(old);
  }

 private:
  int fd_ = -1;
};

/// Another descriptor of what `fd` is one of, close-on-exec, and none of the standard streams. Invalid: errno
/// says why.
inline UniqueFd duplicate_of(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)); }

/// `fd`, or another descriptor of the same in its place if it is a standard stream, which a program has
/// closed: what is printed there must not go to a broker, nor into memory.
inline UniqueFd above_standard_streams(UniqueFd fd) {
  if (fd.get() > STDERR_FILENO || !fd.valid()) return fd;
  return duplicate_of(fd.get());
}

}  // namespace gpumem
