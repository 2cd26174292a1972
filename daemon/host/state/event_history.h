#pragma once
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/system/unique_fd.h"
#include "daemon/core/broker/executor.h"
#include "daemon/host/state/fair_buffer.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// The events of the last day in a file of the state folder, for the next broker: a JSON object a line. When
/// the file has grown to kMostBytes, its lines move to a second file. Tenants share that one: beyond
/// kMostBytes the tenant with most bytes in it loses its oldest events.
///
/// A thread writes, a moment later: neither a slow nor a full disk delays anybody. Events that cannot be
/// written are lost, and the log says so once.
/// Threads  one at a time; does not block, but for open() and the destructor.
class EventHistory {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;  ///< of each of the two files
  static constexpr std::size_t kMostUnwritten =
      10'000;  ///< events; the oldest of the tenant with most are lost
  static constexpr std::chrono::hours kLife{24};
  using Events = std::vector<std::shared_ptr<const core::LoggedEvent>>;

  /// `devices`  UUIDs, by the policy's places.   Errors  of the system, naming the file.
  static Result<std::unique_ptr<EventHistory>> open(const std::filesystem::path& folder,
                                                    std::vector<std::string> devices);
  /// Writes what was added.
  ~EventHistory();
  EventHistory(const EventHistory&) = delete;
  EventHistory& operator=(const EventHistory&) = delete;

  /// The events before this broker: those of the day before `now`, numbered from 1. Lines that cannot be read
  /// are left out. To be called before add().
  Events read(core::WallTime now) const;
  void add(const Events& events);

 private:
  using Unwritten = FairBuffer<std::shared_ptr<const core::LoggedEvent>>;

  EventHistory(const std::filesystem::path& folder, std::vector<std::string> devices);
  Result<void> open_file();
  void write_down();
  Result<void> write(const Unwritten& events);
  Result<void> write_lines(const std::string& lines);
  Result<void> begin_next_file();

  const std::filesystem::path file_, older_file_;
  const std::vector<std::string> devices_;
  UniqueFd opened_;  ///< the thread's, once it runs
  std::size_t size_ = 0;

  Mutex mutex_;
  Condition changed_;
  Unwritten unwritten_ GPUMEM_GUARDED_BY(mutex_){kMostUnwritten};
  bool closed_ GPUMEM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gpumem::host
