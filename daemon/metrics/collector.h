#pragma once
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/core/broker/executor.h"
#include "daemon/core/words/events.h"
#include "daemon/metrics/histogram.h"

namespace gpumem::metrics {

using EventCounts = std::array<std::uint64_t, core::kEventKinds>;

/// What the events of a tenant on one device come to.
struct Counters {
  Bytes granted;
  Bytes returned;
  Bytes freed;
  Bytes quarantined;
  Bytes peak;             ///< the most that was charged to it when it was granted something
  Histogram grant_wait;   ///< from the request to its grant
  Histogram denial_wait;  ///< from the request to its denial
  /// From asking a session for memory until it is not asked any more, or its process ends.
  Histogram reclaim;
};

/// Counts what the core's events tell, by tenant and device.
///
/// Tenants of the configuration have a place each. Users without one have kMostUsers places; one whose last
/// session is over keeps its place until another user needs it. Users without a place are counted as
/// kOtherUsers.
/// Invariant  at most kMostUsers users have places, whoever comes.
/// Threads  the core's.
class Collector final : public core::EventWatcher {
 public:
  static constexpr std::size_t kMostUsers = 128;
  /// Begins as the names of users, and nobody is named so.
  static constexpr std::string_view kOtherUsers = "uid:other";
  using ByDevice = std::map<core::DeviceIndex, Counters>;

  bool tell(const std::shared_ptr<const core::LoggedEvent>& event, const core::Broker& broker) override;
  bool caught_up() override { return true; }
  void closed() override {}

  /// The name under which `tenant` is shown: its own if it has a place, or gets one now.
  std::string name_of(const std::string& tenant, const core::Broker& broker);
  /// Up to `most` of the tenants behind `after`, in the order of their names, with what they come to. Forgets
  /// those among them that were configured and are no more.
  std::map<std::string, ByDevice> page(const std::string& after, std::size_t most,
                                       const core::Broker& broker);
  /// A new round of page() begins: users who had no place may find one again.
  void begin_round(const core::Broker& broker);
  const EventCounts& events() const { return events_; }

 private:
  struct Record {
    core::TimePoint latest;
    ByDevice devices;
  };
  using Records = std::map<std::string, Record, std::less<>>;

  void count(const core::Event& event, const core::Broker& broker);
  void note_reclaim(const core::Event& event, Counters& counters);
  void end_reclaims_of(const core::Event& death, const core::Broker& broker);
  Record& record_of(const std::string& tenant, const core::Broker& broker);
  bool make_room(const core::Broker& broker);

  Records records_;
  std::size_t users_ = 0;  ///< of `records_`, kOtherUsers not counted
  bool full_ = false;      ///< every user that has a place has a session
  EventCounts events_{};
  /// Since when sessions are asked.
  std::map<std::pair<SessionId, core::DeviceIndex>, core::TimePoint> asked_;
};

}  // namespace gpumem::metrics
