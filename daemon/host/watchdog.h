#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace gpumem::host {

/// Reports that the core's thread decides: asks it, waits for its answer, reports that, and asks again after
/// `interval`. While the thread is stuck nothing is reported, so the service manager notices.
class Watchdog {
 public:
  /// Has the core's thread call `answer` with a line on how things stand. Does not block. The answer may
  /// never come, or come after the watchdog's end.
  using Ask = std::function<void(std::function<void(std::string)> answer)>;
  /// Called on the watchdog's own thread; may block.
  using Report = std::function<void(const std::string& status)>;

  Watchdog(std::chrono::microseconds interval, Ask ask, Report report);
  /// Ends at once, whether the core answers or not.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;  // the answers', too
  std::thread thread_;
};

}  // namespace gpumem::host
