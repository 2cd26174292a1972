#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/lending/exports.h"
#include "daemon/core/lending/published_regions.h"
#include "daemon/core/lending/region_waits.h"
#include "daemon/core/reclaim/reclaimer.h"
#include "daemon/core/sessions/outbox.h"
#include "daemon/core/sessions/outside.h"
#include "daemon/core/sessions/state.h"
#include "daemon/core/words/types.h"

namespace gpumem::core {

/// The last answers to requests that must not be executed twice. A client whose broker has ended
/// before the answer came makes the request again at the next one, under the same number.
class LastAnswers {
 public:
  /// Requests of a session that may be under way at once; of more, the first are made again.
  static constexpr std::size_t kMostOfSession = Checkpoint::kMostAnswers;

  /// `outbox`  is told of each, for the next broker; outlives it.
  explicit LastAnswers(Outbox& outbox) : outbox_(outbox) {}

  /// The session's request number `request` has been made. 0: it is never made again.
  void note(SessionId session, std::uint64_t request, std::uint64_t value);
  void restore(const Checkpoint::Answer& answer);
  /// The answer that an earlier broker gave, or was about to give.
  std::optional<std::uint64_t> find(SessionId session, std::uint64_t request) const;
  void drop(SessionId session) { by_session_.erase(session); }
  void add_to(Checkpoint& checkpoint) const;

 private:
  struct Entry {
    std::uint64_t request = 0;
    std::uint64_t value = 0;
    bool restored = false;  ///< of the broker before
  };
  void put(SessionId session, const Entry& entry);

  Outbox& outbox_;
  std::map<SessionId, std::deque<Entry>> by_session_;  ///< the latest last
};

/// Memory of other sessions that a session uses, by handles of Exports and by PublishedRegions. It decides
/// who may use it now, who waits for it, and who is to publish it. Events of the Broker that have the same
/// names have their contracts there. What others get by an event is for serve_waits().
class Sharer {
 public:
  Sharer(State& state, const Reclaimer& reclaimer, Outside& outside, Exports& exports,
         PublishedRegions& published)
      : state_(state), reclaimer_(reclaimer), outside_(outside), exports_(exports), published_(published) {}

  Result<RegionId> publish(SessionId session, const Publish& request, TimePoint now);
  Result<Imported> import_handle(SessionId session, const HandleBytes& bytes, TimePoint now);
  Result<MappedRegion> map_region(SessionId session, const MapRegion& request, TimePoint now);
  void map_or_wait(RequestId id, SessionId session, MapRegion request, TimePoint now);
  Result<void> release_reservation(SessionId session, ReservationId reservation);
  void call_off_reservation(SessionId session, std::uint64_t number);
  Result<void> remove_region(SessionId session, const RemoveRegion& request, TimePoint now);

  /// Answers those whose region is there now, or whose turn it is to publish it; not all of many at once.
  /// Returns whether anybody has been answered.
  bool serve_waits(TimePoint now);
  /// Answers those who have waited in vain; to be called after serve_waits().
  void refuse_expired(TimePoint now);
  void refuse_all(const Error& why);
  void cancel(RequestId id);
  /// The session waits for nothing any more, and publishes nothing that it has reserved.
  void end(SessionId session);
  /// The session belongs to another tenant now.
  void follow(const Session& session);
  /// Tenants have moved in the tree, so other regions may be mapped.
  void note_all_due();
  /// Time has passed.
  void tick(TimePoint now);
  std::optional<TimePoint> next_deadline() const;
  void add_to(Checkpoint& checkpoint) const { answers_.add_to(checkpoint); }
  void restore(const Checkpoint::Answer& answer) { answers_.restore(answer); }
  /// Until when a request waits; nothing: it does not.
  std::optional<TimePoint> due(RequestId id) const;
  /// How many regions the session waits for.
  std::size_t waits_of(SessionId session) const { return region_waits_.count_of(session); }

 private:
  static constexpr Duration kPressedPause = std::chrono::milliseconds(250);
  // Waits for regions that are answered in one event.
  static constexpr std::size_t kServedAtOnce = 64;

  Result<MappedRegion> map(Session& session, const Region& region, TimePoint now, MapAs how);
  Result<void> begin_import(Session& session, const Session& holder, DeviceIndex device);
  void note_published(const Session& session, const std::string& name, RegionId published);
  Result<MapOutcome> map_or_reserve(SessionId session, const MapRegion& terms, TimePoint now);
  Result<MapOutcome> reserve(SessionId session, const MapRegion& terms, TimePoint now);
  std::string words_of(const Reservation& reservation) const;
  void answer_map(RequestId id, SessionId session, Result<MapOutcome> answer);
  bool may_come(const Result<MapOutcome>& outcome) const;
  bool is_due(const RegionWait& wait) const;
  void note_due(const std::string& owner, const std::string& name, const std::string& device = {});
  void note_due(const std::vector<Reservation>& ended);
  void wait_for_pressure(RequestId id, TimePoint now);
  void serve_pressed_waits(TimePoint now);

  State& state_;
  const Reclaimer& reclaimer_;
  Outside& outside_;
  Exports& exports_;
  PublishedRegions& published_;
  RegionWaits region_waits_;
  TimePoint pressed_again_ = TimePoint::max();  ///< when those of them are looked at whose region is pressed
  RegionReservations reservations_;
  LastAnswers answers_{state_.outbox};
};

}  // namespace gpumem::core
