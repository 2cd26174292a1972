#pragma once
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "daemon/core/reclaim/reclaim_plan.h"
#include "daemon/core/reclaim/terminations.h"
#include "daemon/core/sessions/state.h"

namespace gpumem::core {

/// Gets lent memory back: asks sessions, waits for them, and terminates those that do not comply, if the
/// device's policy says so. Bytes that should come back have an owner until the driver has proved them free.
/// The owner is the session that pins them. It stays the owner as long as its process lives, with or without
/// a lane.
///
/// Invariant  a session is terminated only a whole deadline after it was asked itself. A session that cannot
///            be asked, because its lane is gone, is given the same time.
class Reclaimer {
 public:
  explicit Reclaimer(State& state);

  /// Plans anew for each device where something has changed: asks, relieves, terminates. Returns the claims
  /// that are to be refused. Takes time by the number of sessions asked; little if nobody waits or owes.
  std::vector<RequestId> update(TimePoint now);
  /// Sends the signals of terminations that are due, unless the sessions have complied meanwhile.
  void tick(TimePoint now);
  /// As Broker::hold_signal().
  void hold_signal(SessionId session, TimePoint now) { terminations_.hold_signal(session, now); }
  std::optional<TimePoint> next_deadline() const;

  /// The session says that it has no more to give. Others are asked for the rest, too, by the next plan,
  /// which is due at once.
  void spent(Session& session, DeviceIndex device, TimePoint now);
  /// A person asks the session to give back `bytes` of what it has now. Nothing follows if it does not. The
  /// request ends when it has, when it says that it has no more to give, or after kManualLife.
  /// `by`  who asks, in words.
  void reclaim_manually(const Session& session, DeviceIndex device, Bytes bytes, std::string by,
                        TimePoint now);
  static constexpr std::chrono::minutes kManualLife{1};
  /// The bytes of the device that the session can be asked for.
  Bytes answerable(const Session& session, DeviceIndex device) const;
  /// The session has given back memory of the device, or its lane has broken. Memory that is not proved free
  /// stays due. Returns whether something becomes due by that.
  bool note_pinned(Session& session, DeviceIndex device);
  /// As note_pinned(), for sessions that may keep memory of `session`.
  bool note_keepers(const Session& session, DeviceIndex device);
  /// Whether memory of the device is demanded of the session by force, or was, for a need that still exists.
  bool presses(const Session& session, DeviceIndex device) const;
  /// Its process is gone.
  void exited(SessionId session);
  /// The session is over.
  void forget(SessionId session);
  /// An input of the plans has changed other than the ledger and the queues.
  void replan();

  /// The outstanding amount of all reclaim requests.
  Bytes asked_back(DeviceIndex device) const;
  const std::set<SessionId>& asked(DeviceIndex device) const { return devices_[device].asked; }
  /// The sessions that are asked for requests of their own tenants.
  const std::set<SessionId>& asked_for_siblings(DeviceIndex device) const {
    return devices_[device].siblings;
  }
  /// The sessions that said that they have no more to give, and until when they are not asked again.
  const std::map<SessionId, TimePoint>& emptied(DeviceIndex device) const { return devices_[device].spent; }
  /// When all that stay liable although they are not asked any more may be ended. None: nobody is.
  std::optional<TimePoint> liable_until(DeviceIndex device) const;
  /// Memory on its way back, or held by a process that is being terminated. Of tenants at or below `of`;
  /// none: of all.
  Bytes coming(DeviceIndex device, TimePoint now, TenantId of = {}) const;
  const Terminations& terminations() const { return terminations_; }

 private:
  struct ManualReclaim {
    Bytes target;  ///< that the session is to have at most
    std::string by;
    TimePoint until;
  };
  struct Device {
    std::set<SessionId> asked;
    std::map<RequestId, TimePoint> lacking;   ///< claims, since when they lack memory
    std::map<TenantId, TimePoint> debts;      ///< since when
    std::map<SessionId, TimePoint> spent;     ///< believed to have nothing to give, until then
    std::set<SessionId> liable;               ///< sessions with a liability in their reclaim request
    std::set<SessionId> siblings;             ///< asked for requests of their own tenants
    std::map<SessionId, TimePoint> late;      ///< siblings that missed their deadline: asked last, until then
    std::map<SessionId, TimePoint> helpless;  ///< siblings that had nothing to return: not asked, until then
    std::map<SessionId, ManualReclaim> manual;
    std::optional<TimePoint> due;
    std::pair<std::uint64_t, std::uint64_t> seen{};  ///< revisions at the latest plan
    bool idle() const {
      return asked.empty() && lacking.empty() && debts.empty() && spent.empty() && liable.empty() &&
             siblings.empty() && manual.empty();
    }
  };
  // The part of one session. `own` and `declared` as in ReclaimRequest.
  struct Share {
    Bytes bytes;
    Bytes own;
    bool forced = false;
    const char* cause = "";
    Bytes declared{};
  };
  enum class Belief { kSpentHaveNothing, kSpentHaveSome };
  // A session that said that it has nothing to give is asked again after this many deadlines.
  static constexpr int kSpentDeadlines = 5;

  std::vector<RequestId> update(DeviceIndex device, TimePoint now);
  ReclaimPlan plan(DeviceIndex device, Belief belief, TimePoint now) const;
  SiblingTargets plan_siblings(DeviceIndex device, const ReclaimPlan& plan, TimePoint now) const;
  ReclaimTargets plan_debt(DeviceIndex device, TenantId debtor, Belief belief, TimePoint now) const;
  std::map<TenantId, Bytes> reserved_again(DeviceIndex device, TimePoint now) const;
  template <class Plan>
  auto with_facts(DeviceIndex device, std::function<Bytes(TenantId)> coming,
                  const std::map<TenantId, Bytes>& declared, Belief belief, TimePoint now, Plan plan) const;
  template <class Plan>
  auto with_debt_facts(DeviceIndex device, Belief belief, TimePoint now, Plan plan) const;
  ReclaimTargets plan_debts(DeviceIndex device, Belief belief, TimePoint now) const;
  Bytes unasked_below(TenantId tenant, DeviceIndex device) const;

  // Sessions that could give memory back.
  bool is_victim(const Session& session, DeviceIndex device, ReclaimCause cause, Belief belief) const;
  Bytes pinned(const Session& session, DeviceIndex device) const;
  std::vector<std::pair<Bytes, SessionId>> victims(TenantId tenant, DeviceIndex device, Belief belief) const;
  Bytes givable(TenantId tenant, DeviceIndex device, ReclaimCause cause, Belief belief, TimePoint now) const;
  std::vector<std::pair<Bytes, SessionId>> declarers(TenantId tenant, DeviceIndex device,
                                                     Belief belief) const;

  // Asking.
  using Shares = std::map<SessionId, Share>;
  void ask_sessions(DeviceIndex device, const ReclaimTargets& targets, TimePoint now);
  Shares divide(DeviceIndex device, const ReclaimTargets& targets, Belief belief) const;
  Shares withheld(DeviceIndex device, TimePoint now) const;
  void ask_keepers(DeviceIndex device, const Shares& of, Shares& shares) const;
  void ask(Session& session, DeviceIndex device, const Share& share, TimePoint now);
  void tell(Session& session, DeviceIndex device, const char* cause, TimePoint now);

  // Asking for requests of the same tenant.
  void ask_siblings(DeviceIndex device, const SiblingTargets& targets, TimePoint now);
  using Givers = std::map<TenantId, std::vector<SessionId>>;  ///< that have something to give, by tenant
  std::vector<std::pair<Bytes, SessionId>> siblings_of(TenantId leaf, DeviceIndex device,
                                                       const SiblingTarget& target, Givers& givers) const;
  const std::vector<SessionId>& givers_of(TenantId tenant, DeviceIndex device, Givers& known) const;
  bool may_be_asked(const Session& session, DeviceIndex device, RequestId request) const;
  void ask_sibling(Session& session, DeviceIndex device, Bytes bytes, TimePoint now);
  void renew_siblings(DeviceIndex device, TimePoint now);
  void renew_manual(DeviceIndex device, TimePoint now);

  // Liabilities of earlier reclaim requests.
  void renew_liabilities(DeviceIndex device, TimePoint now);
  bool note(Session& session, DeviceIndex device);
  bool is_stale(const ReclaimRequest::Liability& liability, const Session& session, DeviceIndex device) const;
  bool answers_for_debt(const Session& session, DeviceIndex device) const;
  bool has_let_go(const Session& session, DeviceIndex device) const;

  // Overdue reclaim requests.
  std::vector<RequestId> watch_claims(DeviceIndex device, const ReclaimPlan& plan, TimePoint now);
  bool lacks_memory(RequestId claim, DeviceIndex device, const ReclaimPlan& plan) const;
  void watch_debts(DeviceIndex device, TimePoint now);
  void end_for_claims(DeviceIndex device, const ReclaimPlan& asked, TimePoint now);
  void name_debtor(Event& event, TenantId debtor, DeviceIndex device) const;
  void end_for_debt(DeviceIndex device, TenantId debtor, TimePoint now);
  bool end_one(DeviceIndex device, const ReclaimTargets& targets, Bytes lack, ReclaimCause cause,
               TimePoint now);
  void end_keepers(const Session& holder, DeviceIndex device, Bytes needed, ReclaimCause cause,
                   TimePoint now);
  std::vector<SessionId> charged_at(TenantId leaf, DeviceIndex device) const;
  const Session* choose(const std::vector<SessionId>& sessions, DeviceIndex device, Bytes needed,
                        TimePoint now) const;
  std::optional<TimePoint> due_of(const Session& session, DeviceIndex device) const;
  std::optional<TimePoint> liable_until(const Session& session, DeviceIndex device) const;
  bool frees_nothing(const Session& session, DeviceIndex device) const;
  void wake(DeviceIndex device, TimePoint at);
  void wake_for(const std::vector<SessionId>& sessions, DeviceIndex device, TimePoint now);

  State& state_;
  Terminations terminations_;
  std::vector<Device> devices_;
};

}  // namespace gpumem::core
