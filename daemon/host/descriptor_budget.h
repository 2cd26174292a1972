#pragma once
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>

namespace gpumem::host {

/// The limits on descriptors that clients' connections may use. The rest is reserved for existing sessions,
/// for extents, and for administrators.
class DescriptorBudget {
 public:
  /// Of the process's limit of open files, as it is now.
  static DescriptorBudget of_process() {
    rlimit limit{};
    const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return DescriptorBudget(known ? static_cast<std::size_t>(limit.rlim_cur) : std::size_t{1} << 20);
  }
  explicit DescriptorBudget(std::size_t limit) : limit_(limit) {}

  std::size_t limit() const { return limit_; }
  /// Connections that may wait for their first message, in all and of one user: each takes two descriptors.
  std::size_t silent() const {
    return std::min<std::size_t>(kMostSilent, std::max<std::size_t>(limit_ / 8, 4));
  }
  std::size_t silent_of_a_user() const { return std::max<std::size_t>(silent() / 2, 2); }
  /// Connections of gRPC, in all and of one user: each takes three descriptors, or five when relayed.
  std::size_t api() const { return std::max<std::size_t>(std::min(kMostApi, limit_ / 16), 4); }
  std::size_t api_of_a_user() const { return std::max<std::size_t>(api() / 2, 2); }
  /// Descriptors that a user's clients may leave unread, and once more those on connections that have ended:
  /// the kernel's limit for all of them is the same.
  std::size_t unread_of_a_user() const { return std::max<std::size_t>(limit_ / 16, 128); }
  /// Whether `fd`, just opened for an ordinary user, or for an administrator, is one of the last. The kernel
  /// gives out the lowest free number, so all below it are taken.
  bool is_reserved(int fd, bool for_admin) const {
    return static_cast<std::size_t>(fd) + (for_admin ? reserve() / 2 : reserve()) >= limit_;
  }

 private:
  static constexpr std::size_t kMostSilent = 4096;
  static constexpr std::size_t kMostApi = 8192;
  std::size_t reserve() const { return std::clamp<std::size_t>(limit_ / 16, 32, 1024); }

  std::size_t limit_;
};

}  // namespace gpumem::host
