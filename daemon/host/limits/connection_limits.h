#pragma once
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "base/system/unique_fd.h"
#include "daemon/core/words/types.h"
#include "gpumem/result.h"

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
  /// Connections of gRPC, in all and of one user: each takes five descriptors.
  std::size_t api() const { return std::max<std::size_t>(std::min(kMostApi, limit_ / 16), 4); }
  std::size_t api_of_a_user() const { return std::max<std::size_t>(api() / 2, 2); }
  /// Descriptors that a user's clients may leave unread, and once more those on connections that have ended:
  /// the kernel's limit for all of them is the same.
  std::size_t unread_of_a_user() const { return std::max<std::size_t>(limit_ / 16, 128); }
  /// Extents of all devices. Each takes one descriptor, and another while an upgrade passes it on.
  std::size_t extents() const { return std::max<std::size_t>(3 * limit_ / 8, 32); }
  /// Whether `fd`, just opened for an extent, is one of the last that administrators' connections need.
  bool is_reserved_from_extents(int fd) const {
    return static_cast<std::size_t>(fd) + 3 * reserve() / 4 >= limit_;
  }
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

/// The peer of each connection of gRPC, by the number of gRPC's descriptor. Limits the connections in all and
/// of each user; those of administrators do not count.
/// Threads  any.
class ApiConnections {
 public:
  struct Limits {
    std::size_t in_all;
    std::size_t of_a_user;
  };
  struct Caller {
    core::Peer peer;
    bool admin = false;
    std::shared_ptr<const UniqueFd> pidfd{};  ///< the process; none: the kernel has no handle for it
  };

  explicit ApiConnections(Limits limits) : limits_(limits) {}
  explicit ApiConnections(const DescriptorBudget& budget) : limits_({budget.api(), budget.api_of_a_user()}) {}

  /// Errors  kResourceExhausted: the limit, in words.
  Result<void> check_room(const Caller& caller) const;
  void add(int number, Caller caller);
  void remove(int number);
  /// Nothing: there is no such connection.
  std::optional<Caller> find(int number) const;

 private:
  const Limits limits_;
  mutable Mutex mutex_;
  std::unordered_map<int, Caller> by_number_ GPUMEM_GUARDED_BY(mutex_);
  std::size_t counted_ GPUMEM_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::size_t> by_user_ GPUMEM_GUARDED_BY(mutex_);
};

/// The connections whose client has not said anything yet: so many in all, and so many of each user. One too
/// many costs a silent one its place, not the newcomer: the oldest of that user, or of the user who has most.
/// Threads  one.
class SilentConnections {
 public:
  struct Limits {
    std::size_t in_all;
    std::size_t of_a_user;
  };
  /// Cuts a connection off; may call remove().
  using Cut = std::function<void(const std::string& why)>;

  explicit SilentConnections(Limits limits) : limits_(limits) {}

  /// `key`  names the connection: its address.
  void add(const void* key, std::uint64_t account, Cut cut);
  /// Its client has spoken, or it is gone. Does nothing for one that is not there.
  void remove(const void* key);
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t account;
    std::uint64_t number;
    Cut cut;
  };
  using Queue = std::map<std::uint64_t, const void*>;  // the oldest first
  void cut_oldest(std::uint64_t account, const std::string& why);

  const Limits limits_;
  std::uint64_t next_ = 0;
  std::unordered_map<const void*, Entry> entries_;
  std::map<std::uint64_t, Queue> by_user_;
};

}  // namespace gpumem::host
