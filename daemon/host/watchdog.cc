#include "daemon/host/watchdog.h"

#include <optional>
#include <utility>

#include "base/mutex.h"

namespace gpumem::host {

struct Watchdog::State {
  Mutex mutex;
  Condition changed;
  bool stopping GPUMEM_GUARDED_BY(mutex) = false;
  std::optional<std::string> answer GPUMEM_GUARDED_BY(mutex);

  void put(std::string line) {
    const MutexLock lock(mutex);
    answer = std::move(line);
    changed.notify_all();
  }
  // None: the watchdog ends.
  std::optional<std::string> await_answer() {
    const MutexLock lock(mutex);
    while (!answer && !stopping) changed.wait(mutex);
    return stopping ? std::nullopt : std::exchange(answer, std::nullopt);
  }
  // Whether the watchdog goes on.
  bool pause(std::chrono::microseconds interval) {
    const auto end = std::chrono::steady_clock::now() + interval;
    const MutexLock lock(mutex);
    while (!stopping && std::chrono::steady_clock::now() < end) changed.wait_until(mutex, end);
    return !stopping;
  }
  void stop() {
    const MutexLock lock(mutex);
    stopping = true;
    changed.notify_all();
  }
};

Watchdog::Watchdog(std::chrono::microseconds interval, Ask ask, Report report)
    : state_(std::make_shared<State>()),
      thread_([interval, state = state_, ask = std::move(ask), report = std::move(report)] {
        do {
          ask([state](std::string line) { state->put(std::move(line)); });
          const auto line = state->await_answer();
          if (!line) return;
          report(*line);
        } while (state->pause(interval));
      }) {}

Watchdog::~Watchdog() {
  state_->stop();
  thread_.join();
}

}  // namespace gpumem::host
