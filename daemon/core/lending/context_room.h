#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/core/lending/leases.h"
#include "daemon/core/sessions/outside.h"
#include "daemon/core/sessions/state.h"
#include "daemon/core/words/requests.h"

namespace gpumem::core {

/// Room for contexts, which only the driver can allocate. A client announces each context that it is about to
/// make. The driver is asked how much of the device is free. If that does not suffice for this context and
/// those announced before, the rest is requested of the pool (Request::Kind::kContext). Granted bytes leave
/// the pool, and are charged to the tenant until the context has been measured.
///
/// Announced room lasts until the context has been measured or has failed, for kLongest, or until the session
/// ends. Until then the pool does not grow into it, and other contexts do not get it.
///
/// Of a user's contexts that are being made at a time, one has its room for nothing. The others are charged
/// for theirs, if the limits allow. What has no room by this rule is left to the driver.
class ContextRoom {
 public:
  static constexpr Duration kLongest = std::chrono::seconds(30);
  /// A measured context tells what others will take, if it was measured so soon after it was made. Later it
  /// has code loaded.
  static constexpr Duration kFresh = std::chrono::seconds(1);

  /// All outlive it.
  ContextRoom(State& state, Leases& leases, Outside& outside);

  /// Answered by AnswerGrow, a grant of nothing.
  void announce(RequestId id, const Session& session, DeviceIndex device, Duration wait, TimePoint now);
  /// The driver has told how much is free. Returns the request for what lacks; none: nothing lacks, or it was
  /// called off.
  std::optional<Request> looked(RequestId id, std::optional<Bytes> free, TimePoint now);
  /// The request cannot be granted now. Answers whether the driver is to decide instead, and says so to the
  /// client: it has some memory, and has not refused this context before. Then the request is over.
  bool leave_to_driver(RequestId id, TimePoint now);
  /// The ledger has given the bytes to the driver.
  void granted(const Request& request, Bytes bytes);
  /// The extents are destroyed.
  void released(RequestId id, TimePoint now);
  /// The request is called off.
  void drop(RequestId id, TimePoint now);
  /// The store has no extents for it. False: the request is not for a context.
  bool unobtainable(RequestId id, TimePoint now);
  /// The request was refused.
  void refused(const Request& request, TimePoint now);
  /// The session's oldest announced context of the device has been made, or has failed.
  void done(const Session& session, DeviceIndex device, ContextDone::Outcome outcome, TimePoint now);
  /// Drops all that the session has announced.
  void end(SessionId session, TimePoint now);
  /// A process is gone. The driver may have room now for contexts that wait for memory of the pool.
  void look_again();

  void begin_observation(DeviceIndex device);
  /// The driver's figures of the device have been charged.
  void observed(DeviceIndex device, TimePoint now);
  void tick(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  /// Whether the request is not answered yet, and does not wait in the arbiter.
  bool is_under_way(RequestId id) const;
  /// Contexts of the device that were refused, or failed for want of memory.
  struct Refusals {
    std::size_t count = 0;
    TimePoint last{};
  };
  const Refusals& refusals(DeviceIndex device) const { return devices_[device].refusals; }

 private:
  enum class Stage {
    kLooking,    ///< the driver is asked
    kWaiting,    ///< in the arbiter
    kReleasing,  ///< extents are destroyed
    kReady,      ///< the client makes the context
    kMade,       ///< the context is to be measured
  };
  struct Announced {
    SessionId session;
    std::uint64_t account = 0;
    DeviceIndex device = 0;
    Stage stage = Stage::kLooking;
    bool is_free_of_charge = false;
    Bytes needed;
    Bytes expected;  ///< of `needed`: the pool does not grow into it
    Bytes claimed;   ///< of the memory that the driver has free
    Bytes charged;   ///< for `claimed`
    Bytes taken;     ///< of the pool
    Bytes crossed;   ///< of others that were made while the driver was asked
    Duration wait{};
    TimePoint asked{};
    TimePoint made{};
    TimePoint until{};      ///< from kReady on
    bool is_first = false;  ///< context of the process, as far as is known
    bool is_seen = false;   ///< made before the latest observation began
  };
  struct Device {
    std::optional<Bytes> measured;  ///< the latest first context of a process
    Bytes expected;                 ///< needed by contexts that are not made yet
    Bytes claimed;                  ///< of the free memory
    std::set<RequestId> looking;
    Refusals refusals;
  };
  using All = std::map<RequestId, Announced>;

  Bytes estimate(const Session& session, DeviceIndex device) const;
  bool has_failed(const Session& session, DeviceIndex device) const;
  bool is_full(const Session& session) const;
  void forget_made(const Session& session, TimePoint now);
  void find_place(Announced& one);
  void lose_place(Announced& one);
  void look(RequestId id, DeviceIndex device);
  void make_ready(RequestId id, Announced& one, TimePoint now);
  void note_made(All::iterator one, TimePoint now);
  void note_failed(All::iterator one, TimePoint now);
  void last_until(RequestId id, Announced& one, TimePoint until);
  void need(Announced& one, Bytes needed);
  void expect(Announced& one, Bytes bytes);
  void claim(Announced& one, Bytes bytes);
  void charge(Announced& one, Bytes bytes);
  All::iterator end(All::iterator one, TimePoint now);
  void note_refusal(DeviceIndex device, TimePoint now);

  State& state_;
  Leases& leases_;
  Outside& outside_;
  All all_;  ///< in the order in which they were announced
  std::map<SessionId, std::vector<RequestId>> by_session_;
  std::unordered_map<std::uint64_t, std::size_t> by_account_;
  std::set<std::pair<std::uint64_t, DeviceIndex>> free_of_charge_;  ///< accounts
  std::set<std::pair<TimePoint, RequestId>> deadlines_;
  std::vector<Device> devices_;
};

}  // namespace gpumem::core
