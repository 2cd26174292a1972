#pragma once
#include <chrono>
#include <functional>
#include <memory>

#include "client/process/fork_guard.h"
#include "gpumem/result.h"

namespace gpumem::client {

/// What the library's one background thread does for an object. The thread exists while there is a task that
/// has begun. It does one task at a time.
/// Fork     A child has no such thread. A task of the parent is neither used nor destroyed in it. A task of
///          its own starts a thread of its own.
/// Threads  any. No lock is held while the work runs.
class BackgroundTask {
 public:
  /// When there is work: after each period, or when the descriptor can be read.
  struct When {
    std::chrono::milliseconds period{0};  ///< 0: none
    const OwnFd* readable = nullptr;  ///< null: none. It outlives the task. One that is not intact counts as
                                      ///< readable.
  };

  /// `work`  returns whether the descriptor is of use still.
  BackgroundTask(When when, std::function<bool()> work);
  ~BackgroundTask() { end(); }
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  /// From now on the work is done. Again: no effect. Errors  kResourceExhausted: no thread can be started.
  Result<void> begin();
  /// Waits for the work that is being done, unless the work itself calls this.
  /// The work does not begin any more. Only destruction may follow.
  void end();
  /// Whether the work itself is the caller.
  bool is_caller() const;

  struct Task;

 private:
  const std::shared_ptr<Task> task_;
};

}  // namespace gpumem::client
