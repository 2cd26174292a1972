#pragma once
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "daemon/history/sample.h"
#include "daemon/history/store.h"

namespace gpumem::history {

/// Writes samples into a store. If the disk refuses, it says so once, writes nothing for a minute, and then
/// opens the store again. A damaged file is set aside, and a new one begun.
class Recorder {
 public:
  static constexpr std::chrono::seconds kPause{60};

  Recorder(std::filesystem::path file, std::uint64_t most_bytes)
      : file_(std::move(file)), most_bytes_(most_bytes) {}

  /// Opens the store, unless it is open, or its pause is not over. `steady`, `time`  as in Sample.
  /// The events that it has; nothing: it is not open.
  std::optional<EventPosition> open(std::chrono::nanoseconds steady, std::int64_t time);
  /// False: it was not written. The next sample brings its amounts, if not its events.
  bool record(const Sample& sample);

  /// The file looks damaged to a reader: the store is checked before the next sample. Threads  any.
  void doubt() { is_doubted_ = true; }
  /// Why nothing is written now; empty: it is. Threads  any.
  std::string problem() const;

 private:
  void fail(const Error& error, std::chrono::nanoseconds steady, std::int64_t time);
  void set_problem(const std::string& words);
  void look_at_clock(const Sample& sample);
  bool put_aside(const Error& damage, std::int64_t time);
  bool is_there() const;

  const std::filesystem::path file_;
  const std::uint64_t most_bytes_;
  std::optional<Store> store_;
  ino_t inode_ = 0;                                ///< of the file that is open
  std::optional<std::chrono::nanoseconds> again_;  ///< when the store is to be opened, after an error
  bool is_behind_ = false;                         ///< the clock shows less than the last row
  std::atomic<bool> is_doubted_ = false;
  mutable Mutex mutex_;
  std::string problem_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::history
