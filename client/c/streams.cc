#include "client/c/streams.h"

#include <atomic>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "client/process/fork_guard.h"
#include "client/slice/driver_streams.h"

namespace gpumem::c_abi {
namespace {

/// A device's streams, with reusable events. It is never destroyed.
class Marks {
 public:
  Marks(const cuda::Driver& driver, int ordinal) : streams_(driver, ordinal) {}

  Result<void> synchronize(StreamHandle stream) {
    const auto mark = set(stream);
    if (!mark) return mark.error();
    auto waited = streams_.wait(*mark);
    drop(*mark);
    return waited;
  }

 private:
  using Mark = allocator::StreamPort::Mark;
  Result<Mark> set(StreamHandle stream) {
    if (auto here = client::check_not_forked(generation_); !here) return here.error();
    const MutexLock lock(mutex_);
    streams_.forget_default();  // the caller means that of its own context
    return streams_.mark(stream);
  }
  void drop(Mark mark) {
    const MutexLock lock(mutex_);
    streams_.drop(mark);
  }

  const std::uint64_t generation_ = client::process_generation();
  Mutex mutex_;
  client::DriverStreams streams_;  ///< guarded by mutex_, except wait
};

struct Devices : client::OfProcess {
  Mutex mutex;
  std::map<int, Marks> marks GPUMEM_GUARDED_BY(mutex);
};

Devices& devices() {
  static std::atomic<Devices*> latest{nullptr};
  return client::this_process(latest, [](const Devices*) { return std::make_unique<Devices>(); });
}

/// Errors  kFailedPrecondition: this process has not opened the driver.
Result<Marks*> marks_of(int ordinal) {
  const auto driver = cuda::Driver::current();
  if (!driver) return driver.error();
  Devices& own = devices();
  const MutexLock lock(own.mutex);
  return &own.marks.try_emplace(ordinal, **driver, ordinal).first->second;
}

}  // namespace

Result<void> synchronize(int ordinal, StreamHandle stream) {
  const auto marks = marks_of(ordinal);
  return marks ? (*marks)->synchronize(stream) : Result<void>(marks.error());
}

}  // namespace gpumem::c_abi
