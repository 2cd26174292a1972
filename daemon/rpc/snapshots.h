#pragma once
#include <deque>
#include <functional>
#include <thread>

#include "base/mutex.h"
#include "daemon/core/broker/executor.h"

namespace gpumem::rpc {

/// Reads the core for listings and explanations. The data is copied on the core's thread, one bounded piece
/// at a time, so that any number of readers delays other calls by one piece at most. The pieces are in
/// docs/guarantees.md, Bounds: a page of a listing; an explanation, which visits each session of the tenant
/// once for each device. A separate thread makes messages of the copies. Threads  any.
class Snapshots {
 public:
  using Present = std::function<void()>;
  /// Copies the data, and returns a function that makes messages of it, which must not touch the core.
  using Copy = std::function<Present(core::Broker& broker, core::TimePoint now)>;
  static constexpr std::size_t kMostPending = 1024;

  /// `executor`  outlives it, and is open until all that was taken is done.
  explicit Snapshots(core::Executor& executor);
  /// Waits for what is pending.
  ~Snapshots();
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  /// Has `copy` done, and then what it answers, in the order of the calls. False: too many are pending.
  bool take(Copy copy);

 private:
  void work();
  bool next(Copy& copy);

  core::Executor& executor_;
  Mutex mutex_;
  Condition wake_;
  std::deque<Copy> pending_ GPUMEM_GUARDED_BY(mutex_);
  bool stopping_ GPUMEM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gpumem::rpc
