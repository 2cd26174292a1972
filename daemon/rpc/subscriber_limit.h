#pragma once
#include <cstdint>
#include <map>
#include <memory>

#include "base/mutex.h"

namespace gpumem::rpc {

/// How many may follow events: so many in all, and so many for each user.
/// Threads  any.
class SubscriberLimit : public std::enable_shared_from_this<SubscriberLimit> {
 public:
  static constexpr std::size_t kMax = 128;
  static constexpr std::size_t kMaxPerUser = 16;

  /// Counts one more of `account` until the answer and its copies are gone; nothing if that would be too
  /// many.
  std::shared_ptr<void> add(std::uint64_t account);

 private:
  void remove(std::uint64_t account);

  Mutex mutex_;
  std::size_t count_ GPUMEM_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::size_t> by_user_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::rpc
