#pragma once
#include <cstdint>
#include <map>
#include <memory>

#include "base/mutex.h"

namespace gpumem::rpc {

/// Places for those who follow events: so many in all, and so many for each user.
/// Threads  any.
class Seats : public std::enable_shared_from_this<Seats> {
 public:
  static constexpr std::size_t kMost = 128;
  static constexpr std::size_t kMostOfAUser = 16;

  /// A place for `uid` until the answer and its copies are gone; nothing if there is none left.
  std::shared_ptr<void> take(std::uint32_t uid);

 private:
  void leave(std::uint32_t uid);

  Mutex mutex_;
  std::size_t taken_ GPUMEM_GUARDED_BY(mutex_) = 0;
  std::map<std::uint32_t, std::size_t> by_user_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::rpc
