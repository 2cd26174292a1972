#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/promises/asked_sessions.h"
#include "tests/promises/books.h"
#include "tests/promises/claim_clock.h"
#include "tests/promises/process.h"

namespace gpumem::core::promises {

/// What the world knows of a session that the broker has not forgotten.
struct SessionFacts {
  std::int64_t pid = 0;  ///< 0: it has no process, and what it has is kept
  std::string tenant;
  bool honest = false;
  bool has_lane = true;
  CommandJobId job{};               ///< that it is in
  std::set<DeviceIndex> outside{};  ///< where it declared memory, or its process took some past the broker
};

/// Sessions, by device, with the tenants that are charged for what they share.
using Sharers = std::map<std::pair<SessionId, DeviceIndex>, std::set<std::string>>;

/// What an event of the broker brought about.
struct Happened {
  std::set<SessionId> bells;
  std::vector<std::pair<SessionId, Signal>> signals;
  std::vector<std::pair<std::int64_t, Signal>> foreign_signals;  ///< by pid
  std::set<std::pair<SessionId, DeviceIndex>> grants;
  std::map<std::pair<std::string, DeviceIndex>, Bytes> inherited{};  ///< by tenant: charges that came to it
  std::set<CommandJobId> inheriting{};                               ///< jobs to which charges came
};

/// What must hold after every event, whatever the rules are by which it comes about. The world tells what
/// happened; nothing here acts.
class Promises {
 public:
  Promises(const WatchedBroker& broker, const Books& books) : broker_(broker), books_(books) {}

  struct State {
    const std::map<SessionId, SessionFacts>& sessions;
    const std::map<RequestId, OpenRequest>& open;
    /// When each job has last been lent memory of a device, has given some back, or has reserved some.
    const std::map<std::pair<CommandJobId, DeviceIndex>, TimePoint>& jobs_used;
    const std::map<std::int64_t, bool>& honest;  ///< by pid
    const std::vector<bool>& stolen;             ///< by device: somebody took memory that is the pool's
    /// Who has mapped memory that other sessions are charged for, and has not said that it has unmapped it.
    const Sharers& keepers;
    /// Who has shared memory with a process that says it has let go of it and keeps it: nobody can tell them
    /// apart (docs/guarantees.md).
    const Sharers& entangled;
    TimePoint now;
  };
  /// Answers the promise that is broken, and how; empty: none.
  std::string check(const Happened& happened, const State& state);
  /// Whether a refusal breaks one. What has waited as long as it wanted to may be refused.
  std::string check_refusal(RequestId id, const OpenRequest& request, const std::string& why,
                            TimePoint now) const;
  /// What must hold when all processes have ended and the driver has given everything back.
  std::string check_end() const;

  /// A regular look has found that the process holds so much of the device that was not lent to it.
  void seen(std::int64_t pid, DeviceIndex device, Bytes own);
  void said_spent(SessionId session, DeviceIndex device) { asked_.said_spent(session, device); }
  void forget_session(SessionId session) { asked_.forget(session); }

  const ClaimClock& claims() const { return claims_; }

 private:
  using Accounts = ClaimClock::Accounts;
  using Jobs = ClaimClock::Jobs;
  std::string check_books(const Accounts& accounts, const Jobs& jobs, const State& state) const;
  std::string check_jobs(const Happened& happened, const Jobs& jobs, const State& state);
  std::string check_line(const Accounts& accounts, const Jobs& jobs, const State& state) const;
  void note_inherited(const Happened& happened);
  std::string check_limits(const Happened& happened, const Accounts& accounts, const State& state) const;
  std::string check_signal(SessionId session, Signal signal, const Accounts& accounts, const State& state);
  std::string check_foreign_signal(std::int64_t pid, Signal signal, const State& state);
  std::string check_bells(const Happened& happened, const State& state);
  std::string check_answers(const State& state) const;
  bool may_be_ended(SessionId session, const SessionFacts& facts, DeviceIndex device,
                    const Accounts& accounts, const State& state) const;
  bool is_past_broker(std::int64_t pid) const;
  /// Whether memory of the device has been wanted for so long without a break.
  bool waits_long(DeviceIndex device, Duration time, TimePoint now) const;
  std::string check_kill(TimePoint terminated, TimePoint now) const;

  const WatchedBroker& broker_;
  const Books& books_;
  AskedSessions asked_;
  ClaimClock claims_;
  Accounts before_;                                             ///< the latest event
  std::map<std::pair<std::int64_t, DeviceIndex>, int> excess_;  ///< regular looks in a row that found some
  std::map<std::int64_t, TimePoint> terminated_;                ///< by pid
  std::map<DeviceIndex, TimePoint> indebted_;                   ///< since when somebody is
  std::map<DeviceIndex, TimePoint> wanted_;                     ///< since when, by requests or for a debt
  std::set<std::pair<std::string, DeviceIndex>> crowded_;  ///< tenants below which charges came with regions
  std::set<CommandJobId> crowded_jobs_;                    ///< jobs to which charges came with regions
};

}  // namespace gpumem::core::promises
