#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "daemon/core/broker/executor.h"

namespace gpumem::rpc {

/// Reads the core for listings and explanations. The data is copied on the core's thread, one bounded piece
/// at a time, so that any number of readers delays other calls by one piece at most. Users have turns: each
/// waits for one piece of each other user. The pieces are in
/// docs/guarantees.md, Bounds: a page of a listing; an explanation, which visits each session of the tenant
/// once for each device. A separate thread makes messages of the copies. Threads  any.
class Snapshots {
 public:
  using Present = std::function<void()>;
  /// Copies the data, and returns a function that makes messages of it, which must not touch the core.
  using Copy = std::function<Present(core::Broker& broker, core::TimePoint now)>;
  /// An account (core::Peer::account()), or nobody's.
  using User = std::optional<std::uint64_t>;
  static constexpr std::size_t kMostPending = 1024;

  /// `executor`  outlives it, and is open until all that was taken is done.
  explicit Snapshots(core::Executor& executor);
  /// Waits for what is pending.
  ~Snapshots();
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  /// Has `copy` done, and then what it answers; for one user in the order of the calls. False: too many are
  /// pending, and one of them is of this user.
  bool take(User user, Copy copy);

 private:
  struct Queue {
    User user;
    std::deque<Copy> copies{};
  };

  void work();
  bool next(Copy& copy);

  core::Executor& executor_;
  Mutex mutex_;
  Condition wake_;
  std::list<Queue> ring_ GPUMEM_GUARDED_BY(mutex_);  ///< the next turn first; none is empty
  std::size_t pending_ GPUMEM_GUARDED_BY(mutex_) = 0;
  bool stopping_ GPUMEM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gpumem::rpc
