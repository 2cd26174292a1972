#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace gpumem {

/// Writes lines to a descriptor on a thread of its own, so that whoever writes one never waits for the reader
/// at the other end. Lines that do not fit into the queue are dropped; their number is written once there is
/// room again.
/// Threads  any.
class LineWriter {
 public:
  static constexpr std::size_t kMostQueued = std::size_t{1} << 20;  ///< bytes

  /// `fd`       stays the caller's, and open as long as the process lives.
  /// `dropped`  makes the line that tells of `count` lines dropped. Called on the writer's thread, which may
  ///            outlive the writer.
  LineWriter(int fd, std::function<std::string(std::size_t count)> dropped);
  /// Gives the reader kExitPatience to take what is queued; drops the rest.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  static constexpr std::chrono::milliseconds kExitPatience{500};

  /// Queues `line`, which ends with a newline, or drops it. Does not block.
  void write(std::string line);
  /// Waits until all that was queued has been written, for `patience` at most; whether it has. Blocks.
  bool flush(std::chrono::milliseconds patience);

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's, too: it may be lost in a write
};

}  // namespace gpumem
