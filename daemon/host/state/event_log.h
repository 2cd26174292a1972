#pragma once
#include <memory>
#include <vector>

#include "daemon/core/broker/executor.h"
#include "daemon/host/state/event_history.h"
#include "daemon/host/state/fair_buffer.h"

namespace gpumem::host {

/// The last events, and whoever follows them. Tenants share the room: beyond it the tenant that has most
/// loses its oldest event. Invariant  numbers grow by one; times go back only where the clock was set back.
/// Threads  the loop's.
class EventLog {
 public:
  static constexpr std::size_t kMostKept = 10'000;
  static constexpr std::size_t kMostWords = 1024;  ///< bytes; longer ones are cut

  /// Goes on where `history` ends, and adds to it; null: it begins, and ends with this broker.
  void begin(std::unique_ptr<EventHistory> history, core::WallTime wall);
  /// Appends events of the core, with the time of both clocks.
  void add(std::vector<core::Event> events, const core::Broker& broker, core::TimePoint now,
           core::WallTime wall);
  /// As core::Executor.
  void watch(std::shared_ptr<core::EventWatcher> watcher, std::optional<core::WallTime> since,
             const core::Broker& broker);
  void unwatch(const core::EventWatcher& watcher);
  /// Has each subscriber judged anew.
  void judge(const core::Broker& broker);
  /// Nobody is told of anything any more.
  void close();

 private:
  void keep(const std::shared_ptr<const core::LoggedEvent>& event);
  void tell(const std::shared_ptr<const core::LoggedEvent>& event, const core::Broker& broker);

  FairBuffer<std::shared_ptr<const core::LoggedEvent>> kept_{kMostKept};
  std::vector<std::shared_ptr<core::EventWatcher>> watchers_;
  std::unique_ptr<EventHistory> history_;
  std::uint64_t sequence_ = 0;
  core::WallTime last_{};
  bool closed_ = false;
};

}  // namespace gpumem::host
