#pragma once
#include <mutex>

// Mutexes that clang's thread-safety analysis follows; other compilers see plain ones.
#if defined(__clang__)
#define GPUMEM_THREAD(attribute) __attribute__((attribute))
#else
#define GPUMEM_THREAD(attribute)
#endif
#define GPUMEM_GUARDED_BY(mutex) GPUMEM_THREAD(guarded_by(mutex))
#define GPUMEM_REQUIRES(mutex) GPUMEM_THREAD(requires_capability(mutex))

namespace gpumem::client {

class GPUMEM_THREAD(capability("mutex")) Mutex {
 public:
  void lock() GPUMEM_THREAD(acquire_capability()) { mutex_.lock(); }
  void unlock() GPUMEM_THREAD(release_capability()) { mutex_.unlock(); }

 private:
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

}  // namespace gpumem::client
