#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>

// Mutexes that clang's thread-safety analysis follows; other compilers see plain ones.
#if defined(__clang__)
#define GPUMEM_THREAD(attribute) __attribute__((attribute))
#else
#define GPUMEM_THREAD(attribute)
#endif
#define GPUMEM_GUARDED_BY(mutex) GPUMEM_THREAD(guarded_by(mutex))
#define GPUMEM_REQUIRES(mutex) GPUMEM_THREAD(requires_capability(mutex))

namespace gpumem {

class GPUMEM_THREAD(capability("mutex")) Mutex {
 public:
  void lock() GPUMEM_THREAD(acquire_capability()) { mutex_.lock(); }
  void unlock() GPUMEM_THREAD(release_capability()) { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

/// Holds a Mutex for its lifetime.
class GPUMEM_THREAD(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) GPUMEM_THREAD(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() GPUMEM_THREAD(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// Lets threads wait for a change of what a Mutex guards.
class Condition {
 public:
  /// Gives the mutex up while it waits; may return without a reason, so it is called in a loop.
  void wait(Mutex& mutex) GPUMEM_THREAD(requires_capability(mutex)) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  /// Waits until `deadline` at the latest.
  template <class TimePoint>
  void wait_until(Mutex& mutex, TimePoint deadline) GPUMEM_THREAD(requires_capability(mutex)) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait_until(lock, deadline);
    lock.release();
  }
  /// Waits until `time` at the latest.
  template <class Clock, class Duration>
  void wait_until(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& time)
      GPUMEM_THREAD(requires_capability(mutex)) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait_until(lock, time);
    lock.release();
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace gpumem
