#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// Repeats tasks on a thread of its own, each at its pace. After a success a task runs again when its period
/// has passed, or when it is woken. After a failure it runs again in a second, and then twice as late each
/// time. A failure is logged when it begins and when it changes, and again when it is over.
class ReconcileLoop {
 public:
  struct Task {
    std::string name;  ///< for the log: what does not work
    std::chrono::milliseconds period;
    std::function<Result<void>()> run;
  };

  explicit ReconcileLoop(std::vector<Task> tasks);
  /// Waits for the task that runs.
  ~ReconcileLoop();
  ReconcileLoop(const ReconcileLoop&) = delete;
  ReconcileLoop& operator=(const ReconcileLoop&) = delete;

  /// No task begins any more, and what fails from now on is not logged. Does not wait. Threads  any.
  void stop();

  /// Has every task run now. Threads  any; does not block.
  void wake();

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    Task task;
    Clock::time_point due;
    std::chrono::milliseconds pause{};  // since the last failure; zero: there is none
    std::string failure;
  };

  void loop();
  bool await_due();
  void run(Entry& entry);
  bool is_stopping();

  std::vector<Entry> entries_;  // the thread's
  Mutex mutex_;
  Condition changed_;
  bool stopping_ GPUMEM_GUARDED_BY(mutex_) = false;
  bool woken_ GPUMEM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gpumem::kubernetes
