#pragma once
#include <condition_variable>
#include <memory>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "daemon/history/sample.h"
#include "gpumem/v1/broker.grpc.pb.h"

namespace gpumem::history {

/// Follows the broker's events on a thread of its own, keeps them and counts some.
/// Threads  one at a time, for its calls.
class EventReader {
 public:
  explicit EventReader(v1::Monitor::Stub& stub) : stub_(stub) {}
  ~EventReader() { stop(); }
  EventReader(const EventReader&) = delete;
  EventReader& operator=(const EventReader&) = delete;

  /// Goes on behind `position`. No effect if it runs.
  void start(const EventPosition& position);
  /// Drops what was not taken.
  void stop();
  /// Moves what was read since the last call into `sample`.
  void take(Sample& sample);

 private:
  void work();
  void follow();
  void note(const v1::Event& event, EventPosition& seen, const EventPosition& skip);

  v1::Monitor::Stub& stub_;
  Mutex mutex_;
  Condition changed_;
  std::thread thread_;
  Sample read_ GPUMEM_GUARDED_BY(mutex_);  ///< events, their counts and their position
  grpc::ClientContext* call_ GPUMEM_GUARDED_BY(mutex_) = nullptr;
  bool stopping_ GPUMEM_GUARDED_BY(mutex_) = false;
};

}  // namespace gpumem::history
